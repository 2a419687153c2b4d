# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The faster setting keeps float32's precision on this CPU."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from monai_afire.apps.runs import cpu, tune_cpu
from monai_afire.apps.runs.cpu import M_MMAP_MAX, M_TOP_PAD, M_TRIM_THRESHOLD


def has_matrix_units() -> bool:
    info = Path("/proc/cpuinfo")
    return info.is_file() and "amx_bf16" in info.read_text()


@pytest.fixture(autouse=True)
def restored_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU gets another setting")
@pytest.mark.skipif(
    has_matrix_units(), reason="AMX computes float32 products in bfloat16 under this setting"
)
def test_products_keep_the_error_of_float32() -> None:
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = a.double() @ b.double()
    usual = (a @ b - exact).norm() / exact.norm()
    tune_cpu()
    assert torch.get_float32_matmul_precision() == "medium"
    tuned = (a @ b - exact).norm() / exact.norm()
    tuned_linear = (torch.nn.functional.linear(a, b.T) - exact).norm() / exact.norm()
    rounded = (a.bfloat16().double() @ b.bfloat16().double() - exact).norm() / exact.norm()
    assert max(tuned, tuned_linear) < 5 * usual < 1e-5
    assert rounded > 1e-3  # what bfloat16 would cost


def test_gpu_gets_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torch.accelerator.current_accelerator", lambda **options: torch.device("cuda")
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("the memory is left alone"))
    tune_cpu()
    assert torch.get_float32_matmul_precision() == "high"


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    tune_cpu()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # without mallopt
    tune_cpu()


@pytest.mark.skipif(
    torch.cuda.is_available() or sys.platform != "linux", reason="for CPUs on Linux"
)
def test_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {}
    library = SimpleNamespace(mallopt=lambda name, value: settings.update({name: value}))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    tune_cpu()
    assert settings == {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 1 << 30, M_TOP_PAD: 1 << 26}


@pytest.mark.parametrize(
    ("idle", "cores", "planned", "expected"),
    [(1.0, 8, 8, 8), (0.25, 8, 8, 2), (0.0, 8, 8, 1), (0.1, 64, 4, 4), (0.01, 64, 4, 1)],
)
def test_threads_are_left_to_free_cores(
    monkeypatch: pytest.MonkeyPatch, idle: float, cores: int, planned: int, expected: int
) -> None:
    """Ticks of /proc/stat as proc(5) has them: user, nice, system, idle, iowait, irq, softirq, steal, guest twice."""
    before = "cpu 100 0 50 1000 0 0 0 0 70 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
    free = round(1000 * idle)
    after = f"cpu {100 + 1000 - free} 0 50 {1000 + free} 0 0 0 0 70 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
    texts = iter([before, after])
    monkeypatch.setattr(Path, "read_text", lambda path: next(texts))
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    monkeypatch.setattr(cpu.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert cpu.free_threads(planned) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cpu.free_threads(planned) == planned, "nobody's own setting is overruled"


@pytest.mark.parametrize(("free", "said"), [(1, "1 thread of 4"), (3, "3 threads of 4"), (4, None)])
def test_lowered_threads_are_told(
    free: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "free_threads", lambda planned: free)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    told = cpu._leave_busy_cores.__wrapped__()
    assert chosen == [free]
    assert told is None if said is None else said in told and "OMP_NUM_THREADS" in told
