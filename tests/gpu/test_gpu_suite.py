# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The suite for a GPU runs on a CPU in miniature, from packed images to weights in pieces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from integration.bundle_runs import at
from PIL import Image

from tests.benchmarks.gpu_suite.checks import outcomes
from tests.benchmarks.gpu_suite.packed_images import pack, unpack
from tests.benchmarks.gpu_suite.results import Deadline, Results
from tests.benchmarks.gpu_suite.weight_pieces import join_pieces, write_pieces

TINY_RUN = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
    **at("network_def", decoder_dim=24, decoder_layers=1, num_clusters=8),
    "batch_size": 4,
    "add_lesions::num_masks": 1,
}


def radiographs(folder: Path, count: int, size: int = 48) -> list[str]:
    folder.mkdir()
    noise = np.random.default_rng(0)
    paths = [folder / f"image_{number}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(noise.integers(0, 255, (size, size), dtype=np.uint8)).save(path)
    return [str(path) for path in paths]


def test_packed_images_come_back(tmp_path: Path) -> None:
    paths = radiographs(tmp_path / "images", 5)
    assert pack(paths, tmp_path / "packed.zip", 48, megabytes=1) == 95
    folder = unpack(tmp_path / "packed.zip", tmp_path / "unpacked")
    assert sorted(path.name for path in folder.iterdir()) == [
        f"image_{number}.jpg" for number in range(5)
    ]
    for path in paths:
        with Image.open(path) as given, Image.open(folder / f"{Path(path).stem}.jpg") as found:
            assert np.abs(np.asarray(given, dtype=float) - np.asarray(found)).mean() < 5


def test_quality_falls_until_the_file_is_small_enough(tmp_path: Path) -> None:
    paths = radiographs(tmp_path / "images", 8)
    best = pack(paths, tmp_path / "large.zip", 48, megabytes=1)
    limit = 0.7 * (tmp_path / "large.zip").stat().st_size / 1e6
    assert pack(paths, tmp_path / "small.zip", 48, limit) < best
    assert (tmp_path / "small.zip").stat().st_size <= limit * 1e6
    with pytest.raises(ValueError, match="8 images of 48 x 48 do not fit"):
        pack(paths, tmp_path / "none.zip", 48, 0.001)
    with pytest.raises(ValueError, match="the same file name"):
        pack([*paths, paths[0]], tmp_path / "none.zip", 48, 1)


def test_pieces_join_to_the_whole(tmp_path: Path) -> None:
    state = {f"a.{number}": torch.randn(100, 10) for number in range(7)} | {
        "b.count": torch.tensor(3)
    }
    torch.save(state, tmp_path / "model.pt")
    # two tensors of 2 kB each
    pieces = write_pieces(tmp_path / "model.pt", tmp_path, megabytes=0.005)
    assert len(pieces) == 4
    assert all(piece.stat().st_size < 5500 for piece in pieces)
    joined = join_pieces(tmp_path)
    assert joined.keys() == state.keys()
    assert joined["b.count"] == 3
    for name in state:
        torch.testing.assert_close(joined[name], state[name], rtol=1e-3, atol=1e-3)
    chosen = write_pieces(tmp_path / "model.pt", tmp_path, ["b."])
    assert [path.name for path in chosen] == ["weights_0.safetensors"]


def test_outcomes_are_read_from_pytest_s_words() -> None:
    log = (
        "tests/gpu/test_on_gpu.py::test_a[afire] PASSED [ 5%]\n"
        "tests/gpu/test_on_gpu.py::test_b SKIPPED (needs a GPU) [10%]\n"
        "tests/gpu/test_on_gpu.py::test_c[0-1] FAILED [15%]\n"
        "FAILED tests/gpu/test_on_gpu.py::test_c[0-1] - AssertionError: no\n"
    )
    assert outcomes(log) == {
        "test_a[afire]": "passed",
        "test_b": "skipped",
        "test_c[0-1]": "failed: AssertionError: no",
    }


def test_results_are_on_disk_at_once_and_are_kept(tmp_path: Path) -> None:
    results = Results(tmp_path, {"machine": "here"})
    results.add("steps", "afire", {"images/s": 3.5})
    again = Results(tmp_path, {"machine": "there"})
    again.add("steps", "peac", "no time left")
    assert json.loads((tmp_path / "results.json").read_text()) == {
        "about": {"machine": "there"},
        "steps": {"afire": {"images/s": 3.5}, "peac": "no time left"},
    }
    assert "| afire | 3.5 |" in (tmp_path / "results.md").read_text()
    assert Deadline(-1).left < 0


@pytest.mark.slow
def test_the_suite_in_miniature(repository_root: Path, tmp_path: Path) -> None:
    packed = tmp_path / f"{tmp_path.name}.zip"  # the run's folder has this name
    pack(radiographs(tmp_path / "images", 12), packed, 32, megabytes=1)
    words = ["--minutes", "5", "--out", str(tmp_path / "out"), "--size", "tiny", "--device", "cpu"]
    words += [
        "--ways",
        "eager",
        "--stage",
        "speed",
        "train",
        "--images",
        str(packed),
        "--train_options",
    ]
    words += [f"{name}={value}" for name, value in TINY_RUN.items()] + ["epochs=2"]
    words += [f"output_dir={tmp_path / 'run'}"]
    result = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.gpu_suite", *words],
        cwd=repository_root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(found["steps"]) == 5
    for row in found["steps"].values():
        assert row["images/s"] * row["s/step"] == pytest.approx(row["batch"], rel=0.02)
        assert {"MFU", "GiB", "shares", "loader processes needed"} < set(row)
    for way in ("float32", "bfloat16", "float32, torch.export", "float32, ONNX"):
        assert found["inference"][way]["images/s"] > 0
    assert set(found["parts"]) == {
        "lesion maps",
        "head, forward and backward",
        "losses, forward and backward",
    }
    assert found["train"]["ended"] == "exit code 0"
    state = join_pieces(tmp_path / "out")
    whole = torch.load(tmp_path / "run/models/model.pt", weights_only=True)
    assert state.keys() == whole.keys()
    assert (tmp_path / "out" / "restoration.png").is_file()
