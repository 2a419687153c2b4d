# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The device of a run, on machines that this one is not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY_ROOT
from torch.nn import functional as F

from monai_afire.inferers import AutocastInferer
from monai_afire.utils import default_num_workers, join_process_group, run_device
from monai_afire.utils.device import (
    default_device,
    distributed_backend,
    half_precision,
    has_bfloat16,
    pins_memory,
    widest_float,
)


def has_matrix_units() -> bool:
    info = Path("/proc/cpuinfo")
    return info.is_file() and "amx_bf16" in info.read_text()


def pretend(monkeypatch: pytest.MonkeyPatch, kind: str | None, count: int = 1) -> None:
    """A machine with these accelerators."""
    device = None if kind is None else torch.device(kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: device)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_what_is_there_is_chosen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, kind)
    assert default_device() == torch.device(kind)
    assert default_num_workers(default_device()) >= 1


@pytest.mark.parametrize(
    ("kind", "backend", "is_pinned", "widest"),
    [
        ("cpu", "gloo", False, torch.float64),
        ("cuda", "nccl", True, torch.float64),
        ("xpu", "xccl", True, torch.float64),
        ("mps", "gloo", False, torch.float32),
    ],
)
def test_what_the_kinds_can_do(
    kind: str, backend: str, is_pinned: bool, widest: torch.dtype
) -> None:
    device = torch.device(kind)
    assert (distributed_backend(device), pins_memory(kind), widest_float(kind)) == (
        backend,
        is_pinned,
        widest,
    )


@pytest.mark.parametrize(("name", "current"), [("cuda:1", [1]), ("cuda", []), ("cpu", [])])
def test_a_device_with_a_number_becomes_the_current_one(
    name: str, current: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(torch.accelerator, "set_device_index", calls.append)
    join_process_group(name)
    assert calls == current


@pytest.mark.parametrize(
    ("kind", "expected"), [("cuda", "cuda:1"), ("xpu", "xpu:1"), ("mps", "cpu"), (None, "cpu")]
)
def test_each_process_has_a_device(
    kind: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, kind, count=2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert str(run_device()) == expected
    monkeypatch.setenv("LOCAL_RANK", "2")
    if expected == "cpu":
        assert str(run_device()) == "cpu"
    else:
        with pytest.raises(
            RuntimeError, match=r"process 2 of this machine has no GPU, there are 2: start one"
        ):
            run_device()


@pytest.mark.skipif(
    has_matrix_units(), reason="AMX rounds the products of this setting to bfloat16"
)
def test_tuned_products_keep_the_error_of_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = a.double() @ b.double()
    usual = (a @ b - exact).norm() / exact.norm()
    join_process_group("cpu")
    tuned = [(product - exact).norm() / exact.norm() for product in (a @ b, F.linear(a, b.T))]
    assert max(tuned) < 5 * usual < 1e-5


@pytest.mark.parametrize(
    ("capability", "half"),
    [
        ((9, 0), torch.bfloat16),
        ((7, 5), torch.float16),
        ((6, 1), None),
    ],
)
def test_an_imitated_bfloat16_does_not_count(
    capability: tuple[int, int],
    half: torch.dtype | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's own question, with the answers of a machine that has such a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(major=capability[0], minor=capability[1])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert half_precision("cuda") == half
    assert AutocastInferer().precision("cuda") == half
    assert AutocastInferer(enabled=False).precision("cuda") is None


@pytest.mark.parametrize(
    ("instructions", "has_it"),
    [
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "aarch64", "bf16": True}, True),
    ],
)
def test_a_processor_has_bfloat16_by_its_instructions(
    instructions: dict[str, object], has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions, raising=False)
    assert has_bfloat16("cpu") == has_it
    result = AutocastInferer()(torch.rand(2, 3), torch.nn.Linear(3, 4))
    assert result.dtype == (torch.bfloat16 if has_it else torch.float32)


def test_configs_ask_in_one_place() -> None:
    for path in REPOSITORY_ROOT.glob("bundles/*/configs/**/*.json"):
        text = path.read_text()
        assert "cuda" not in text, path
        if path.stem in ("train", "inference"):
            assert json.loads(text)["device"] == "$monai_afire.utils.run_device()", path
