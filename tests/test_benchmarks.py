# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The benchmark of whole steps runs, with networks so small that its figures mean nothing, and counts correctly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_way_of_every_method_is_measured(repository_root: Path) -> None:
    settings = {
        "size": "tiny",
        "batch": 3,
        "micro-batch": 2,
        "variants": 2,
        "rounds": 1,
        "device": "cpu",
    }
    words = [
        "--no-memory",
        *(word for name, value in settings.items() for word in (f"--{name}", str(value))),
    ]
    result = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bench_pretrain", *words],
        cwd=repository_root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    tables = result.stdout.split("network: 3 images, 2 samples of each, 2 images in a pass\n")[1:]
    assert len(tables) == 3
    for table in tables:
        speed = [line.split() for line in table.splitlines() if line.endswith(" x")]
        assert [" ".join(row[:2]) for row in speed] == [
            "naive, float32",
            "monai_afire, fp32",
            "monai_afire, bf16",
        ]
        for row in speed:
            images, samples, seconds = map(float, row[2:5])
            assert samples == pytest.approx(2 * images, rel=0.02)
            # seconds have three decimals
            assert images * seconds == pytest.approx(3, abs=0.0006 * images + 0.02)
        shares = [line.split()[2:9] for line in table.splitlines() if line.endswith(" -")]
        assert len(shares) == 3
        for row in shares:
            assert sum(float(share.rstrip("%")) for share in row) == pytest.approx(100, abs=0.5)
        assert "one process of a loader prepares" in table
