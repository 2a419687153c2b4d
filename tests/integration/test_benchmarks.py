# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The benchmarks of speed run in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import bench_data, bench_pretrain


@pytest.mark.slow
def test_whole_steps_are_measured(
    repository_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository_root)
    methods = ["afire", "mae"]
    words = "--size tiny --batch 2 --variants 2 --rounds 1 --device cpu --method"
    bench_pretrain.main([*words.split(), *methods])
    printed = capsys.readouterr().out
    for method in methods:
        assert f"{method}, tiny network: 2 images" in printed
    assert printed.count("monai_afire, bf16") == 2 * len(methods)


@pytest.mark.slow
def test_readers_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    bench_data.main(["--images", "2", "--sizes", "64x48", "--num_workers", "0"])
    assert capsys.readouterr().out.count("64x48") == 4
