# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-lists that compare with a hospital's own normal images, and those of images that are not judged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pydicom
import pytest
import torch
from apps.worklist.makers import (
    fitted_detector,
    read_csv,
    write_pictures,
    write_results,
    write_source,
)

from monai_afire.apps.worklist import RunNormals, load_normals
from monai_afire.data import DatalistError
from monai_afire.detection import AnomalyDetector

DIGEST = "sha256:1"


def normals_of(detector: AnomalyDetector, folder: Path, **changes: Any) -> RunNormals:
    """Own normal images, loaded as pictures of noise that depend on their file."""

    def load(item: dict[str, Any]) -> dict[str, Any]:
        pixels = np.frombuffer(Path(item["image"]).read_bytes()[-64:], np.uint8)
        generator = torch.Generator().manual_seed(int(pixels.sum()))
        reason = "broken" if "bad" in item["image"] else ""
        picture = torch.randint(0, 255, (1, 48, 48), dtype=torch.uint8, generator=generator)
        image = torch.rand(1, 32, 32, generator=generator)
        return {"image": image, "picture": picture, "rejected": reason}

    file: Any = SimpleNamespace(description=SimpleNamespace(digest=DIGEST))
    options = {"preprocessing": load, "calibrate": str(folder / "ward"), **changes}
    return RunNormals(detector, file, str(folder / "out"), **options)


def write_ward(folder: Path, number: int) -> list[dict[str, Any]]:
    return write_pictures(folder / "ward", [f"n{i}.png" for i in range(number)])


def test_own_normal_images_are_scored_and_kept(tmp_path: Path) -> None:
    detector = fitted_detector()
    write_ward(tmp_path, 24)
    write_pictures(tmp_path / "ward", ["bad.png"])
    found = normals_of(detector, tmp_path).load()
    assert found.number == 24  # one could not be read
    path = tmp_path / "out/normals.safetensors"
    read = load_normals(path, DIGEST)
    np.testing.assert_allclose(found.scores, read.scores, rtol=1e-6)
    again = normals_of(detector, tmp_path / "next", calibrate=str(path)).load()
    np.testing.assert_array_equal(again.scores, read.scores)
    other = normals_of(detector, tmp_path, resume=True, preprocessing=None)
    np.testing.assert_array_equal(other.load().scores, read.scores)  # nothing is scored again


def test_a_run_with_results_gets_no_other_normal_images(tmp_path: Path) -> None:
    detector, out = fitted_detector(), tmp_path / "out"
    items = write_pictures(tmp_path / "in", ["a.png", "b.png"])
    write_ward(tmp_path, 24)
    write_results(detector, items, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    normals = normals_of(detector, tmp_path, resume=True)
    with pytest.raises(ValueError, match="settings"):
        write_results(detector, items, out, resume=True, normals=normals)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_too_few_normal_images_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    detector, items = fitted_detector(), write_ward(tmp_path, 18)
    with pytest.raises(DatalistError, match=r"ward.* 19"):
        write_results(detector, items, tmp_path / "out", normals=normals_of(detector, tmp_path))
    assert not list((tmp_path / "out").glob("*.csv"))
    with pytest.raises(DatalistError, match="none"):
        normals_of(detector, tmp_path, calibrate=str(tmp_path / "none")).load()


@pytest.mark.filterwarnings("ignore:.*left 5 abnormal")
def test_abnormal_images_of_a_datalist_are_no_normal_images(tmp_path: Path) -> None:
    written = write_ward(tmp_path, 25)
    items = [{"image": item["image"], "label": int(i < 5)} for i, item in enumerate(written)]
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps({"training": items[:10], "test": items[10:]}))
    assert normals_of(fitted_detector(), tmp_path, calibrate=str(listed)).load().number == 20


def test_normal_images_of_another_detector_do_not_count(tmp_path: Path) -> None:
    detector = fitted_detector(normals=30)
    write_ward(tmp_path, 20)
    normals_of(detector, tmp_path).load()
    file: Any = SimpleNamespace(description=SimpleNamespace(digest="sha256:2"))
    path = str(tmp_path / "out/normals.safetensors")
    assert RunNormals(detector, file, str(tmp_path), shipped=path).load().number == 30  # its own
    with pytest.raises(ValueError, match="another detector"):
        RunNormals(detector, file, str(tmp_path), calibrate=path).load()


def test_an_image_that_is_not_judged_has_no_number_anywhere_but_its_score(tmp_path: Path) -> None:
    detector, out = fitted_detector(), tmp_path / "out"
    write_ward(tmp_path, 20)
    files = [write_source(tmp_path / f"{view}.dcm", ViewPosition=view) for view in ("LL", "PA")]
    items = [{"image": str(path)} for path in files]
    kinds, normals = ("thumbnails", "dicom"), normals_of(detector, tmp_path)
    write_results(detector, items, out, saved=kinds, normals=normals)
    rows = {row["image"]: row for row in read_csv(out / "worklist.csv")}
    lateral, reason = rows[str(files[0])], "other view (ViewPosition LL)"
    assert lateral["not_judged"] == reason
    for name in ("p_value", "decision", "threshold", "percentile"):
        assert lateral.get(name, "") == ""
    assert np.isfinite(float(lateral["score"]))
    page = (out / "worklist.html").read_text()
    assert reason in page
    assert "20 normal images of ward" in page
    assert reason in pydicom.dcmread(out / "dicom/LL.dcm").DerivationDescription


@pytest.mark.parametrize(("number", "specificity", "needed"), [(18, None, 19), (25, 0.99, 99)])
def test_too_few_normal_images_of_the_detector_decide_nothing(
    tmp_path: Path, number: int, specificity: float | None, needed: int
) -> None:
    detector, out = fitted_detector(number), tmp_path / "out"
    items = write_pictures(tmp_path / "in", ["a.png", "b.png"])
    normals = normals_of(detector, tmp_path, calibrate=None, specificity=specificity)
    write_results(detector, items, out, saved=("thumbnails",), normals=normals)
    empty = {"decision", "threshold", "percentile", "p_value", "discovery", "not_judged"}
    assert not empty & set(read_csv(out / "worklist.csv")[0])
    assert {row["abnormal"] for row in read_csv(out / "scores.csv")} == {""}
    page = (out / "worklist.html").read_text()
    assert f"needs {needed}" in page
    assert set(re.findall('<li class="(.*?)"', page)) == {""}
