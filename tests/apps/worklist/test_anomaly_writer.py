# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Statistics that follow the network, results streamed to disk, and the report of an evaluation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nibabel
import numpy as np
import pytest
import torch
from apps.worklist.makers import (
    batches_of,
    fitted_detector,
    judging,
    make_detector,
    read_csv,
    write_pictures,
    write_results,
    write_source,
)
from PIL import Image
from pydicom.dataset import Dataset

from monai_afire.apps.results import AnomalyReport
from monai_afire.apps.worklist.image_facts import ImageFactsReader
from monai_afire.data import scan_radiographs
from monai_afire.detection import AnomalyDetector, detection_items
from monai_afire.handlers import DetectorFit


def test_fit_precedes_and_thresholds_follow_the_validation() -> None:
    detector, label = make_detector(), torch.tensor([0, 0, 0, 0, 1, 1])
    normal = [{"image": torch.rand(10, 1, 32, 32)} for _ in range(2)]
    batches = [{"image": torch.rand(6, 1, 32, 32), "label": label} for _ in range(3)]
    engine = judging(detector)
    DetectorFit(detector, normal, specificity=0.5).attach(engine)
    engine.run(batches)
    expected = AnomalyDetector(detector.network).eval()
    expected.fit([batch["image"] for batch in normal])
    scores = torch.cat([expected(batch["image"])["scores"] for batch in batches]).detach()
    torch.testing.assert_close(detector.map_mean, expected.map_mean)
    normal_scores = scores[label.repeat(3) == 0]
    middle = normal_scores.median(0).values.lerp(normal_scores.sort(0).values[6], 0.5)
    torch.testing.assert_close(detector.thresholds, middle, rtol=1e-4, atol=1e-4)

    # a second run starts afresh: the network may have changed
    with torch.no_grad():
        detector.network.teacher_encoder.norm.weight.mul_(2.0)
    before = detector.density.mean.clone()
    engine.run(batches)
    assert not torch.allclose(detector.density.mean, before)
    assert not detector.training


def test_percentiles_are_shares_of_the_normal_images() -> None:
    detector = make_detector()
    normal = torch.rand(40, len(detector.score_names))
    assert np.isnan(detector.normal_percentiles([0.5])).all()
    labels = torch.cat([torch.zeros(40), torch.ones(5)])
    detector.fit_thresholds(torch.cat([normal, torch.full_like(normal[:5], 9.0)]), labels)
    for score in (0.1, 0.5, 0.9):
        below = float((normal[:, -1] < score).float().mean()) * 100
        assert detector.normal_percentiles([score])[0] == pytest.approx(below, abs=2.6)
    limits = detector.normal_percentiles([-1, 8.0, float(detector.thresholds[-1])])
    assert limits.tolist() == pytest.approx([0, 100, 95], abs=0.01)
    restored = make_detector()
    restored.load_state_dict(detector.state_dict())
    assert restored.normal_percentiles([0.5]) == detector.normal_percentiles([0.5])


def test_each_image_has_its_own_results(tmp_path: Path) -> None:
    names = ["a.png", "=day 1/a.png", "bad.png", "c.png"]
    items, out = write_pictures(tmp_path / "in", names), tmp_path / "out"
    detector, batches = fitted_detector(), batches_of(items)
    kinds = ("overlays", "thumbnails", "dicom", "maps", "embeddings")
    writer = write_results(detector, items, out, batches, saved=kinds)
    rows = read_csv(out / "scores.csv")
    good = [name for name in names if "bad" not in name]
    assert [Path(row["image"]).relative_to(tmp_path / "in").as_posix() for row in rows] == good
    expected = detector(batches[0]["image"])["scores"][1]
    for number, name in enumerate(detector.score_names):
        assert float(rows[1][name]) == pytest.approx(float(expected[number]), rel=1e-4)
    assert rows[1]["abnormal"] == str(int(expected[-1] >= detector.thresholds[-1]))
    [rejected] = read_csv(out / "rejected.csv")
    assert (Path(rejected["image"]).name, rejected["reason"]) == ("bad.png", "broken")
    for name in good:
        with Image.open(out / "overlays" / f"{name}.jpg") as overlay:
            assert overlay.size[0] > 2 * 32
        heat = nibabel.load(out / "maps" / f"{name}.nii.gz").get_fdata()
        assert heat.shape == (60, 40)
        assert heat.any()
        assert not heat[[0, -1]].any()  # no score looks at the border
        assert np.load(out / "embeddings" / f"{name}.npz")["tokens"].shape == (16, 24)
    assert not list(out.rglob("*bad*"))
    assert not (out / "dicom").exists()
    assert len(writer.without_study) == 3  # a PNG has no study
    with pytest.raises(SystemExit) as exit_code:
        writer.exit_if_rejected()
    assert exit_code.value.code == 2

    sources = re.findall(r'src="([^"]+)"', (out / "worklist.html").read_text(encoding="utf-8"))
    ranked = [Path(row["image"]) for row in read_csv(out / "worklist.csv")]
    shown = [f"thumbnails/{path.relative_to(tmp_path / 'in').as_posix()}.jpg" for path in ranked]
    assert [unquote(source) for source in sources] == shown
    for source in shown:
        with Image.open(out / source) as picture:
            assert picture.size == (384, 192)


def test_files_of_an_earlier_run_are_refused_with_its_tables(tmp_path: Path) -> None:
    """Pictures of one folder beside the scores of another would be another patient's."""
    detector, out = fitted_detector(), tmp_path / "out"
    items = write_pictures(tmp_path / "in", ["a.png", "b.png"])
    write_results(detector, items, out, saved=("overlays",))
    for table in ("scores.csv", "rejected.csv", "worklist.csv", "resume.jsonl"):
        (out / table).unlink()
    other = write_pictures(tmp_path / "in", ["c.png"])
    with pytest.raises(FileExistsError, match="overlays"):
        write_results(detector, other, out, saved=("overlays",))
    assert {path.name for path in (out / "overlays").glob("*.jpg")} == {"a.png.jpg", "b.png.jpg"}
    with pytest.warns(UserWarning, match="out"):
        assert scan_radiographs(tmp_path) == ["in/a.png", "in/b.png", "in/c.png"]


def test_strict_views_reject_by_the_header(tmp_path: Path) -> None:
    files = [write_source(tmp_path / f"{view}.dcm", ViewPosition=view) for view in ("PA", "LL")]
    items = [{"image": str(path)} for path in files]
    write_results(fitted_detector(), items, tmp_path / "out", strict_view=True)
    assert [row["image"] for row in read_csv(tmp_path / "out/scores.csv")] == [str(files[0])]
    [rejected] = read_csv(tmp_path / "out/rejected.csv")
    assert (rejected["image"], "LL" in rejected["reason"]) == (str(files[1]), True)


def test_a_resumed_run_has_all_images_on_its_work_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = write_pictures(tmp_path / "in", [f"{number}.png" for number in range(6)])
    detector, out, good = fitted_detector(), tmp_path / "out", batches_of(items)
    with pytest.raises(KeyError):
        write_results(detector, items, out, [*good[:2], {"nothing": 1}])
    write_results(detector, items, out, good[1:], resume=True).print_summary()
    rows = read_csv(out / "worklist.csv")
    scores = {row["image"]: float(row["fused"]) for row in read_csv(out / "scores.csv")}
    assert [row["image"] for row in rows] == sorted(scores, key=lambda name: -scores[name])
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    above = sum(row["decision"] == "above" for row in rows)
    assert f"{above} of 6 above the threshold" in capsys.readouterr().out


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_image_whose_scores_are_no_numbers_is_rejected(tmp_path: Path, value: float) -> None:
    """A comparison of NaN with the threshold is false: such an image was called normal, and its map ended the run."""
    items = write_pictures(tmp_path / "in", ["a.png", "b.png"])
    batches = batches_of(items)
    batches[0]["image"][0, 0, 3, 3] = value
    write_results(fitted_detector(), items, tmp_path / "out", batches, saved=("overlays",))
    assert [row["image"] for row in read_csv(tmp_path / "out/scores.csv")] == [items[1]["image"]]
    [rejected] = read_csv(tmp_path / "out/rejected.csv")
    assert rejected["image"] == items[0]["image"]
    assert not list((tmp_path / "out").rglob("a.png.*"))


def test_view_age_and_pose_do_not_depend_on_the_pictures_to_see() -> None:
    """A small --picture_size made chests "turned, inverted, or no single chest", which are not judged."""
    reader = ImageFactsReader(fitted_detector())
    images = torch.rand(1, 1, 32, 32)
    large = torch.randint(0, 255, (1, 1, 512, 512), dtype=torch.uint8)
    small = large[..., :7, :7]
    tokens, lungs = reader.detector(images)["tokens"], reader.lungs(images)
    batches = ({"picture": small, "judged_picture": large}, {"picture": large}, {"picture": small})
    found = [reader.read(batch, tokens, [Dataset()], lungs)[0].looks for batch in batches]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_report_of_an_evaluation(tmp_path: Path) -> None:
    listed = [{"image": f"{index}.png", "label": index % 2, "view": "PA"} for index in range(8)]
    listed[1]["boxes"] = [[4, 8, 16, 12]]
    items = detection_items(listed, {"kinds": ["SoftNodule"], "contrasts": [0.2], "sizes": [0.2]})
    detector, images, masks = (
        fitted_detector(),
        torch.rand(12, 1, 32, 32),
        torch.zeros(12, 1, 32, 32),
    )
    masks[8:, :, 10:20, 10:20] = 1
    batch = {
        "image": images,
        "index": torch.arange(12),
        "label": torch.tensor([item["label"] for item in items]),
        "lesion_mask": masks,
        "spatial_shape": torch.tensor([[64, 64]] * 12),
        "brightness": torch.linspace(0.4, 0.41, 12),
        "sharpness": torch.rand(12),
    }
    dataset: Any = [{"image": image} for image in images]
    options: dict[str, Any] = {"num_bootstraps": 20, "num_pictures": 6}
    engine = judging(detector)
    AnomalyReport(detector, dataset, items, str(tmp_path), **options).attach(engine)
    engine.run([batch])
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["images"] == {"normal": 4, "abnormal": 4}
    assert set(metrics["detection"]) == {*detector.score_names, "darkness", "sharpness"}
    assert metrics["matched_pairs"]["pairs"] == 4
    assert metrics["localization"]["fused"]["images"] == 1
    [(title, entry)] = metrics["controlled"].items()
    assert "SoftNodule" in title
    assert entry["images"] == entry["localization"]["fused"]["images"] == 4
    assert len(read_csv(tmp_path / "evaluation.csv")) == 12
    for name in ("roc_pr.png", "heat_maps.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 200
