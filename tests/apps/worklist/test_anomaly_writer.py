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
from apps.results.test_result_tables import read_csv
from apps.worklist.dicom_sources import write_source
from ignite.engine import Engine, Events
from monai.data import DataLoader, Dataset
from PIL import Image

from monai_afire.apps.results import AnomalyReport
from monai_afire.apps.worklist import AnomalyWriter
from monai_afire.apps.worklist.anomaly_result import SAVERS
from monai_afire.data import scan_radiographs
from monai_afire.detection import AnomalyDetector, detection_items
from monai_afire.handlers import DetectorFit
from monai_afire.networks import AFiRe, ViTEncoder


def make_detector() -> AnomalyDetector:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    return AnomalyDetector(AFiRe(encoder, 6, 12, 16, 1, 2)).eval()


SCORE_NAMES = make_detector().score_names


def fitted_detector() -> AnomalyDetector:
    detector = make_detector()
    detector.fit([torch.rand(20, 1, 32, 32)])
    detector.fit_thresholds(detector(torch.rand(20, 1, 32, 32))["scores"].detach())
    return detector


def judging(detector: AnomalyDetector) -> Engine:
    """An evaluator in miniature."""

    def judge(engine: Engine, batch: dict[str, Any]) -> dict[str, Any]:
        with torch.no_grad():
            return {"pred": detector(batch["image"]), "label": batch.get("label")}

    return Engine(judge)


def test_fit_precedes_and_thresholds_follow_the_validation() -> None:
    detector = make_detector()
    normal = [{"image": torch.rand(10, 1, 32, 32)} for _ in range(2)]
    batches = [
        {"image": torch.rand(6, 1, 32, 32), "label": torch.tensor([0, 0, 0, 0, 1, 1])}
        for _ in range(3)
    ]
    engine = judging(detector)
    DetectorFit(detector, normal, specificity=0.5).attach(engine)
    engine.run(batches)
    expected = AnomalyDetector(detector.network).eval()
    expected.fit([batch["image"] for batch in normal])
    scores = torch.cat([expected(batch["image"])["scores"] for batch in batches]).detach()
    torch.testing.assert_close(detector.map_mean, expected.map_mean)
    normal_scores = scores[torch.cat([batch["label"] for batch in batches]) == 0]
    torch.testing.assert_close(
        detector.thresholds,
        normal_scores.median(0).values.lerp(normal_scores.sort(0).values[6], 0.5),
        rtol=1e-4,
        atol=1e-4,
    )

    # a second run starts afresh: the network may have changed
    with torch.no_grad():
        detector.network.teacher_encoder.norm.weight.mul_(2.0)
    before = detector.density.mean.clone()
    engine.run(batches)
    assert not torch.allclose(detector.density.mean, before)
    assert not detector.training


class Radiographs:
    """A loader of the batches that the inference bundle makes, from pictures written here."""

    def __init__(self, folder: Path, names: list[str], rejected: tuple[str, ...] = ()) -> None:
        rng = np.random.default_rng(0)
        self.items, self.rejected = [], rejected
        for index, name in enumerate(names):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (60, 40), dtype=np.uint8)).save(path, format="PNG")
            self.items.append({"image": str(path), "index": index})

    def batches(self, size: int = 2) -> list[dict[str, Any]]:
        batches = []
        for start in range(0, len(self.items), size):
            items = self.items[start : start + size]
            count = len(items)
            batches.append(
                {
                    "image": torch.rand(count, 1, 32, 32),
                    "index": torch.tensor([item["index"] for item in items]),
                    "rejected": [
                        "broken" if Path(i["image"]).name in self.rejected else "" for i in items
                    ],
                    "spatial_shape": torch.tensor([[60, 40]] * count),
                    "affine": torch.eye(4).repeat(count, 1, 1),
                    "picture": torch.randint(0, 255, (count, 1, 48, 48), dtype=torch.uint8),
                }
            )
        return batches


def test_thumbnails_come_with_a_page_in_the_order_of_the_worklist(tmp_path: Path) -> None:
    data = Radiographs(
        tmp_path / "in", ["a.png", "=day 1/a.png", "bad.png", "c.png"], rejected=("bad.png",)
    )
    detector, out = fitted_detector(), tmp_path / "out"
    engine = judging(detector)
    AnomalyWriter(detector, data.items, str(out), saved=("thumbnails",)).attach(engine)
    engine.run(data.batches())
    page = (out / "worklist.html").read_text(encoding="utf-8")
    sources = [unquote(source) for source in re.findall(r'src="([^"]+)"', page)]
    names = [
        Path(row["image"]).relative_to(tmp_path / "in").as_posix()
        for row in read_csv(out / "worklist.csv")
    ]
    assert sources == [f"thumbnails/{name}.jpg" for name in names]
    for source in sources:
        assert (out / source).stat().st_size <= 20_000
        with Image.open(out / source) as picture:
            assert picture.size == (384, 192)


def test_every_kind_of_file_that_the_option_names_is_written(tmp_path: Path) -> None:
    data, detector = Radiographs(tmp_path / "in", ["a.png"]), fitted_detector()
    writer = AnomalyWriter(detector, data.items, str(tmp_path / "out"), saved=SAVERS)
    engine = judging(detector)
    writer.attach(engine)
    engine.run(data.batches())
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == set(SAVERS) - {
        "dicom",
        "sr",
    }
    # a PNG has no study, so that "dicom" and "sr" were tried alone
    assert len(writer.without_study) == 1


def test_writer_streams_every_result(tmp_path: Path) -> None:
    data = Radiographs(
        tmp_path / "in", ["a.png", "day 1/a.png", "bad.png", "c.png"], rejected=("bad.png",)
    )
    detector, out = fitted_detector(), tmp_path / "out"
    writer = AnomalyWriter(detector, data.items, str(out), saved=("overlays", "maps", "embeddings"))
    engine = judging(detector)
    writer.attach(engine)
    batches = data.batches()
    engine.run(batches)
    rows = read_csv(out / "scores.csv")
    assert [Path(row["image"]).relative_to(tmp_path / "in").as_posix() for row in rows] == [
        "a.png",
        "day 1/a.png",
        "c.png",
    ]
    expected = detector(batches[0]["image"])["scores"][1]
    for number, name in enumerate(SCORE_NAMES):
        assert float(rows[1][name]) == pytest.approx(float(expected[number]), rel=1e-4)
    assert rows[1]["abnormal"] == str(int(expected[-1] >= detector.thresholds[-1]))
    [rejected] = read_csv(out / "rejected.csv")
    assert rejected["reason"] == "broken"
    assert rejected["image"].endswith("bad.png")
    for name in ("a.png", "day 1/a.png", "c.png"):
        with Image.open(out / "overlays" / f"{name}.jpg") as overlay:
            assert overlay.size[0] > 2 * 32
        heat = nibabel.load(out / "maps" / f"{name}.nii.gz").get_fdata()
        assert heat.shape == (60, 40)
        assert heat.any()
        assert not heat[[0, -1]].any()  # no score looks at the border
        assert not heat[:, [0, -1]].any()
        assert np.load(out / "embeddings" / f"{name}.npz")["tokens"].shape == (16, 24)
    assert not list(out.rglob("*bad*"))
    with pytest.raises(SystemExit) as exit_code:
        writer.exit_if_rejected()
    assert exit_code.value.code == 2


def test_files_of_an_earlier_run_are_refused_with_its_tables(tmp_path: Path) -> None:
    """Pictures of one folder beside the scores of another would be another patient's."""
    detector, out = fitted_detector(), tmp_path / "out"
    data, engine = Radiographs(tmp_path / "in", ["a.png", "b.png"]), judging(detector)
    AnomalyWriter(detector, data.items, str(out), saved=("overlays",)).attach(engine)
    engine.run(data.batches())
    for table in ("scores.csv", "rejected.csv", "worklist.csv", "resume.jsonl"):
        (out / table).unlink()
    other, engine = Radiographs(tmp_path / "in", ["c.png"]), judging(detector)
    AnomalyWriter(detector, other.items, str(out), saved=("overlays",)).attach(engine)
    with pytest.raises(FileExistsError, match="overlays is of another run"):
        engine.run(other.batches())
    assert sorted(path.name for path in (out / "overlays").glob("*.jpg")) == [
        "a.png.jpg",
        "b.png.jpg",
    ]
    with pytest.warns(UserWarning, match="out"):
        assert scan_radiographs(tmp_path) == ["in/a.png", "in/b.png", "in/c.png"]


def test_a_fit_says_how_many_images_it_learned_and_held_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    items = [{"image": f"{number}.png"} for number in range(40)]
    loader = DataLoader(Dataset(items, lambda item: {"image": torch.rand(1, 32, 32)}), batch_size=8)
    evaluator = Engine(lambda engine, batch: None)
    DetectorFit(make_detector(), loader).attach(evaluator)
    evaluator.state.dataloader = DataLoader(Dataset([{"image": "a.png", "label": 0}]))
    with caplog.at_level("INFO"):
        evaluator.fire_event(Events.STARTED)
    assert "learned 40 normal images; held out 1 more" in caplog.text


def test_strict_views_reject_by_the_header(tmp_path: Path) -> None:
    data, detector = Radiographs(tmp_path / "in", ["a.png", "b.png"]), fitted_detector()
    items = [
        {"image": str(write_source(tmp_path / f"{view}.dcm", ViewPosition=view))}
        for view in ("PA", "LL")
    ]
    writer = AnomalyWriter(detector, items, str(tmp_path / "out"), saved=(), strict_view=True)
    engine = judging(detector)
    writer.attach(engine)
    engine.run(data.batches())
    assert [Path(row["image"]).name for row in read_csv(tmp_path / "out/scores.csv")] == ["PA.dcm"]
    [rejected] = read_csv(tmp_path / "out/rejected.csv")
    assert rejected["reason"] == "is no frontal chest radiograph by its header (ViewPosition LL)"


def test_writer_without_thresholds_decides_nothing(tmp_path: Path) -> None:
    data, detector = Radiographs(tmp_path / "in", ["a.png"]), make_detector()
    detector.fit([torch.rand(9, 1, 32, 32)])
    engine = judging(detector)
    AnomalyWriter(detector, data.items, str(tmp_path / "out"), saved=()).attach(engine)
    engine.run(data.batches())
    assert read_csv(tmp_path / "out/scores.csv")[0]["abnormal"] == ""
    [row] = read_csv(tmp_path / "out/worklist.csv")
    assert not {"threshold", "decision", "percentile", "p_value"} & set(row)


def test_a_resumed_run_has_all_images_on_its_work_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Radiographs(tmp_path / "in", [f"{number}.png" for number in range(6)])
    detector, out, good = fitted_detector(), tmp_path / "out", data.batches()
    first, engine = AnomalyWriter(detector, data.items, str(out), saved=()), judging(detector)
    first.attach(engine)
    with pytest.raises(KeyError):
        engine.run([*good[:2], {"nothing": 1}])
    second, again = (
        AnomalyWriter(detector, data.items, str(out), saved=(), resume=True),
        judging(detector),
    )
    second.attach(again)
    again.run(good[1:])
    rows = read_csv(out / "worklist.csv")
    scores = {row["image"]: float(row["fused"]) for row in read_csv(out / "scores.csv")}
    assert [row["image"] for row in rows] == sorted(scores, key=lambda name: -scores[name])
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    second.print_summary()
    above = sum(row["decision"] == "above" for row in rows)
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"{above} of 6 above the threshold; 0 at a false discovery rate of 10 %")
    assert "20 normal validation images of the detector (no p-value is below 0.048" in said


def test_percentiles_are_shares_of_the_normal_images() -> None:
    detector, normal = make_detector(), torch.rand(40, len(SCORE_NAMES))
    assert np.isnan(detector.normal_percentiles([0.5])).all()
    labels = torch.cat([torch.zeros(40), torch.ones(5)])
    detector.fit_thresholds(torch.cat([normal, torch.full((5, len(SCORE_NAMES)), 9.0)]), labels)
    for score in (0.1, 0.5, 0.9):
        below = float((normal[:, -1] < score).float().mean()) * 100
        assert detector.normal_percentiles([score])[0] == pytest.approx(below, abs=2.6)
    limits = detector.normal_percentiles([-1, 8.0, float(detector.thresholds[-1])])
    assert limits.tolist() == pytest.approx([0, 100, 95], abs=0.01)
    restored = make_detector()
    restored.load_state_dict(detector.state_dict())
    assert restored.normal_percentiles([0.5]) == detector.normal_percentiles([0.5])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_writer_rejects_an_image_whose_scores_are_no_numbers(tmp_path: Path, value: float) -> None:
    """A comparison of NaN with the threshold is false: such an image was called normal, and its map ended the run."""
    data, detector = Radiographs(tmp_path / "in", ["a.png", "b.png"]), fitted_detector()
    batches = data.batches()
    batches[0]["image"][0, 0, 3, 3] = value
    writer = AnomalyWriter(detector, data.items, str(tmp_path / "out"))
    engine = judging(detector)
    writer.attach(engine)
    engine.run(batches)
    assert [Path(row["image"]).name for row in read_csv(tmp_path / "out/scores.csv")] == ["b.png"]
    [rejected] = read_csv(tmp_path / "out/rejected.csv")
    assert rejected["image"].endswith("a.png")
    assert "NaN or infinite" in rejected["reason"]
    assert not list((tmp_path / "out").rglob("a.png.*"))


def test_report_of_an_evaluation(tmp_path: Path) -> None:
    listed = [{"image": f"{index}.png", "label": index % 2, "view": "PA"} for index in range(8)]
    listed[1]["boxes"] = [[4, 8, 16, 12]]
    items = detection_items(listed, {"kinds": ["SoftNodule"], "contrasts": [0.2], "sizes": [0.2]})
    assert len(items) == 12
    detector = fitted_detector()
    images = torch.rand(12, 1, 32, 32)
    masks = torch.zeros(12, 1, 32, 32)
    masks[8:, :, 10:20, 10:20] = 1
    dataset: Any = [{"image": image} for image in images]
    batch = {
        "image": images,
        "index": torch.arange(12),
        "label": torch.tensor([item["label"] for item in items]),
        "lesion_mask": masks,
        "spatial_shape": torch.tensor([[64, 64]] * 12),
        "brightness": torch.linspace(0.4, 0.41, 12),
        "sharpness": torch.rand(12),
    }
    engine = judging(detector)
    report = AnomalyReport(
        detector, dataset, items, str(tmp_path), num_bootstraps=20, num_pictures=6
    )
    report.attach(engine)
    engine.run([batch])
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["images"] == {"normal": 4, "abnormal": 4}
    assert set(metrics["detection"]) == {*SCORE_NAMES, "darkness", "sharpness"}
    assert metrics["matched_pairs"]["pairs"] == 4
    assert metrics["localization"]["fused"]["images"] == 1
    assert 0 <= metrics["localization"]["fused"]["aupro"] <= 1
    [(title, entry)] = metrics["controlled"].items()
    assert "SoftNodule" in title
    assert entry["images"] == 4
    assert entry["localization"]["fused"]["images"] == 4
    rows = read_csv(tmp_path / "evaluation.csv")
    assert len(rows) == 12
    for name in ("roc_pr.png", "heat_maps.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 200
