# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-lists that compare with a hospital's own normal images, and those of images that are not judged."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pydicom
import pytest
import torch
from apps.worklist.dicom_sources import write_source
from apps.worklist.test_anomaly_writer import Radiographs, fitted_detector, judging, read_csv

from monai_afire.apps.worklist import AnomalyWriter, RunNormals, load_normals, normals_from
from monai_afire.apps.worklist.image_facts import ImageFacts
from monai_afire.apps.worklist.normal_images import DetectorNormals
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
    options = {"preprocessing": load, **changes}
    return RunNormals(detector, file, str(folder / "out"), **options)


def test_own_normal_images_are_scored_kept_and_named(tmp_path: Path) -> None:
    detector = fitted_detector()
    names = [f"n{i}.png" for i in range(24)] + ["bad.png"]
    Radiographs(tmp_path / "ward", names)
    calibrate = str(tmp_path / "ward")
    found = normals_of(detector, tmp_path, calibrate=calibrate).load()
    assert found.number == 24  # one could not be read
    assert str(found).startswith("24 normal images of ward, 20")
    path = tmp_path / "out/normals.safetensors"
    assert path.stat().st_size < 100_000
    read = load_normals(path, DIGEST)
    again = normals_of(detector, tmp_path / "next", calibrate=str(path)).load()
    np.testing.assert_array_equal(again.scores, read.scores)
    np.testing.assert_allclose(found.scores, read.scores, rtol=1e-6)
    other = normals_of(detector, tmp_path, calibrate=calibrate, resume=True, preprocessing=None)
    np.testing.assert_array_equal(other.load().scores, read.scores)  # nothing is scored again


def test_a_run_with_results_gets_no_other_normal_images(tmp_path: Path) -> None:
    detector, out = fitted_detector(), tmp_path / "out"
    data = Radiographs(tmp_path / "in", ["a.png", "b.png"])
    Radiographs(tmp_path / "ward", [f"n{i}.png" for i in range(24)])

    def score(resume: bool = False, normals: RunNormals | None = None) -> None:
        engine = judging(detector)
        options: dict[str, Any] = {"saved": (), "resume": resume, "normals": normals}
        AnomalyWriter(detector, data.items, str(out), **options).attach(engine)
        engine.run(data.batches())

    score()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = normals_of(detector, tmp_path, calibrate=str(tmp_path / "ward"), resume=True)
    with pytest.raises(ValueError, match="other settings"):
        score(resume=True, normals=other)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_too_few_normal_images_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    detector = fitted_detector()
    data = Radiographs(tmp_path / "ward", [f"n{i}.png" for i in range(18)])
    normals = normals_of(detector, tmp_path, calibrate=str(tmp_path / "ward"))
    with pytest.raises(DatalistError, match=r"ward: 18 normal images .* give at least 19"):
        normals.load()
    engine = judging(detector)
    AnomalyWriter(detector, data.items, str(tmp_path / "out"), normals=normals).attach(engine)
    with pytest.raises(DatalistError):
        engine.run(data.batches())
    assert not list((tmp_path / "out").glob("*.csv"))
    with pytest.raises(DatalistError, match="no such folder or file"):
        normals_of(detector, tmp_path, calibrate=str(tmp_path / "none")).load()


@pytest.mark.filterwarnings("ignore:.*left 5 abnormal")
def test_abnormal_images_of_a_datalist_are_no_normal_images(tmp_path: Path) -> None:
    data = Radiographs(tmp_path / "ward", [f"n{i}.png" for i in range(25)])
    items = [{"image": item["image"], "label": int(i < 5)} for i, item in enumerate(data.items)]
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps({"training": items[:10], "test": items[10:]}))
    assert normals_of(fitted_detector(), tmp_path, calibrate=str(listed)).load().number == 20


def test_normal_images_of_another_detector_do_not_count(tmp_path: Path) -> None:
    detector = fitted_detector()
    Radiographs(tmp_path / "ward", [f"n{i}.png" for i in range(20)])
    normals_of(detector, tmp_path, calibrate=str(tmp_path / "ward")).load()
    file: Any = SimpleNamespace(description=SimpleNamespace(digest="sha256:2"))
    path = str(tmp_path / "out/normals.safetensors")
    shipped = RunNormals(detector, file, str(tmp_path), shipped=path)
    assert isinstance(shipped.load(), DetectorNormals)
    with pytest.raises(ValueError, match="another detector"):
        RunNormals(detector, file, str(tmp_path), calibrate=path).load()


def test_an_image_that_is_not_judged_has_no_number_anywhere_but_its_score(tmp_path: Path) -> None:
    detector, ward = fitted_detector(), tmp_path / "ward"
    Radiographs(ward, [f"n{i}.png" for i in range(20)])
    normals = normals_of(detector, tmp_path, calibrate=str(ward))
    data = Radiographs(tmp_path / "in", ["a.png", "b.png"])
    items = [
        {"image": str(write_source(tmp_path / f"{view}.dcm", ViewPosition=view))}
        for view in ("LL", "PA")
    ]
    engine, out = judging(detector), tmp_path / "out"
    AnomalyWriter(detector, items, str(out), saved=("thumbnails", "dicom"), normals=normals).attach(
        engine
    )
    engine.run(data.batches())
    rows = {Path(row["image"]).name: row for row in read_csv(out / "worklist.csv")}
    assert rows["LL.dcm"]["not_judged"] == "other view (ViewPosition LL)"
    for name in ("p_value", "decision", "threshold", "percentile"):
        assert rows["LL.dcm"].get(name, "") == ""
    assert math.isfinite(float(rows["LL.dcm"]["score"]))
    assert {row["image"] for row in read_csv(out / "scores.csv")} == {i["image"] for i in items}
    page = (out / "worklist.html").read_text()
    assert "Compared with 20 normal images of ward" in page
    assert "not like the images this detector knows: other view (ViewPosition LL)" in page
    capture = pydicom.dcmread(out / "dicom/LL.dcm")
    assert "not judged: other view (ViewPosition LL)" in capture.DerivationDescription


@pytest.mark.parametrize(
    ("number", "specificity", "needed"), [(1, None, 19), (18, None, 19), (25, 0.99, 99)]
)
def test_too_few_normal_images_of_the_detector_decide_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    specificity: float | None,
    needed: int,
) -> None:
    detector = fitted_detector()
    detector.fit_thresholds(detector(torch.rand(number, 1, 32, 32))["scores"].detach())
    data, out = Radiographs(tmp_path / "in", [f"{i}.png" for i in range(24)]), tmp_path / "out"
    normals = normals_of(detector, tmp_path, specificity=specificity)
    engine = judging(detector)
    writer = AnomalyWriter(detector, data.items, str(out), saved=("thumbnails",), normals=normals)
    writer.attach(engine)
    engine.run(data.batches())
    rows = read_csv(out / "worklist.csv")
    for name in ("decision", "threshold", "percentile", "p_value", "discovery", "not_judged"):
        assert name not in rows[0]
    assert {row["abnormal"] for row in read_csv(out / "scores.csv")} == {""}
    writer.print_summary()
    page, said = (out / "worklist.html").read_text(), capsys.readouterr().out
    for text in (page, said):
        assert f"a threshold needs {needed}" in text
    assert set(re.findall('<li class="(.*?)"', page)) == {""}


def test_a_folder_of_two_views_with_too_few_of_each_is_refused(tmp_path: Path) -> None:
    """Views are not told apart then, and those of the rarer one are left out."""
    facts = [ImageFacts(view=view) for view in ["PA"] * 12 + ["AP"] * 10]
    with pytest.raises(ValueError, match=r"12 normal images of one view .* at least 19"):
        normals_from(np.arange(22.0), facts, level=0.05)
