# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Devices and shares of a batch of processes that train together; ``integration/distributed`` lets them talk."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from monai_afire.optimizers import scaled_lr
from monai_afire.utils import join_process_group, per_process_batch, run_device


@pytest.mark.parametrize(
    ("processes", "steps", "share"), [(1, 1, 64), (8, 1, 8), (4, 2, 8), (1, 64, 1)]
)
def test_every_division_of_a_global_batch_has_one_learning_rate(
    processes: int, steps: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: processes)
    assert per_process_batch(64, steps) == share
    assert scaled_lr(5e-4, share, steps) == pytest.approx(5e-4 * 64 / 256)
    with pytest.raises(ValueError, match="--batch_size"):
        per_process_batch(64, 3 * steps)


@pytest.mark.parametrize(("name", "current"), [("cuda:1", [1]), ("cuda", []), ("cpu", [])])
def test_a_device_with_a_number_becomes_the_current_one(
    name: str, current: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(torch.accelerator, "set_device_index", calls.append)
    join_process_group(name)
    assert calls == current


@pytest.mark.parametrize(
    ("kind", "devices"),
    [
        ("cuda", ["cuda", "cuda:1"]),
        ("xpu", ["xpu", "xpu:1"]),
        ("mps", ["mps", "cpu"]),
        (None, ["cpu", "cpu"]),
    ],
)
def test_a_run_and_each_of_its_processes_has_a_device(
    kind: str | None, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = None if kind is None else torch.device(kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: device)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    alone = run_device()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [str(alone), str(run_device())] == devices
    monkeypatch.setenv("LOCAL_RANK", "2")
    if devices[1] != "cpu":
        with pytest.raises(RuntimeError, match="process 2"):
            run_device()
