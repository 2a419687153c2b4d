# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tables that grow while a network runs: the predictions of a classifier, and embeddings."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from html_pages import Elements
from ignite.engine import Engine
from monai.handlers import ClassificationSaver
from PIL import Image

from monai_afire.apps.results import EmbeddingWriter, PredictionWriter, ResultTables

NAMES = ["Edema", "Pleural Effusion"]
LISTED = list("cabed")
ITEMS = [{"image": f"folder/{name}.png"} for name in LISTED]
LOGITS = torch.tensor([[0.0, -1.0], [3.0, 30.0], [-0.5, 0.5], [1.0, 2.0], [-40.0, 0.25]])
ORDER = torch.tensor([3, 0, 4, 1, 2])


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def batches(outputs: torch.Tensor = LOGITS, order: torch.Tensor = ORDER) -> list[dict[str, Any]]:
    """Images in batches of two, in another order than that of the items."""
    return [{"pred": outputs[part], "index": part} for part in order.split(2)]


def run(writer: ResultTables, data: list[dict[str, Any]], *others: Any) -> None:
    engine = Engine(lambda engine, batch: {"pred": batch["pred"]})
    for handler in (writer, *others):
        handler.attach(engine)
    engine.run(data)


def test_probabilities_and_decisions_of_every_image(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    thresholds = torch.tensor([1.0, 1.0])
    writer = PredictionWriter(ITEMS, NAMES, str(folder), thresholds)
    thresholds.copy_(torch.tensor([0.5, math.nan]))  # as a checkpoint does when it is loaded
    run(writer, batches())
    rows = read_csv(folder / "predictions.csv")
    kinds = "probability", "threshold", "decision"
    assert list(rows[0]) == ["image", *(f"{kind}_{name}" for kind in kinds for name in NAMES)]
    assert [row["image"][-5] for row in rows] == LISTED
    for row, logits in zip(rows, LOGITS.tolist(), strict=True):
        for name, logit in zip(NAMES, logits, strict=True):
            probability = float(row[f"probability_{name}"])
            assert probability == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)
        assert (row["threshold_Edema"], row["decision_Edema"]) == ("0.5", str(int(logits[0] >= 0)))
        assert row["threshold_Pleural Effusion"] == row["decision_Pleural Effusion"] == ""
    assert (folder / "rejected.csv").read_text().split() == ["image,reason"]


def test_files_without_prediction(tmp_path: Path) -> None:
    writer = PredictionWriter(ITEMS, NAMES, str(tmp_path))
    data = batches()
    data[0]["pred"] = torch.tensor([[0.0, math.nan], [1.0, 1.0]])
    data[1]["rejected"] = ["", "no pixels"]
    run(writer, data)
    assert [row["image"][-5] for row in read_csv(tmp_path / "predictions.csv")] == list("cbd")
    rejected = {row["image"][-5]: row["reason"] for row in read_csv(tmp_path / "rejected.csv")}
    assert rejected["a"] == "no pixels"
    assert "NaN" in rejected["e"]
    with pytest.raises(SystemExit) as exit_code:
        writer.exit_if_rejected()
    assert exit_code.value.code == 2


@pytest.mark.parametrize(
    ("names", "thresholds", "named"),
    [(NAMES, [0.5], "thresholds"), (["Edema"], None, "Edema")],
)
def test_refused_settings(tmp_path: Path, names: list, thresholds: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        run(PredictionWriter(ITEMS, names, str(tmp_path), thresholds), batches())


def test_names_of_files_are_no_markup(tmp_path: Path) -> None:
    names = ["<b>a.png", "b.png"]
    for name in names:
        Image.new("L", (48, 40), 128).save(tmp_path / name)
    items = [{"image": str(tmp_path / name)} for name in names]
    logits = torch.tensor([[1.0, -9], [-1.0, 2]])
    writer = PredictionWriter(items, NAMES, str(tmp_path / "out"), thresholds=[0.9, 0.1])
    run(writer, batches(logits, torch.arange(2)))
    text = (tmp_path / "out/predictions.html").read_text(encoding="utf-8")
    assert text.index("&lt;b&gt;a") > text.index("b.png"), "by probability over threshold"
    assert len(Elements(text).named("img")) == 2
    assert not Elements(text).named("b")


def test_embeddings_are_written_as_monai_writes_them(tmp_path: Path) -> None:
    features = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    saver = ClassificationSaver(
        str(tmp_path / "monai"),
        batch_transform=lambda batch: [
            {"filename_or_obj": ITEMS[index]["image"]} for index in batch["index"]
        ],
        output_transform=lambda output: list(output["pred"].flatten(2).mean(2)),
    )
    run(EmbeddingWriter(ITEMS, str(tmp_path)), batches(features, torch.arange(5)), saver)
    found = (tmp_path / "embeddings.csv").read_text()
    assert found == (tmp_path / "monai" / "predictions.csv").read_text()
    values = [[float(cell) for cell in row[1:]] for row in csv.reader(found.splitlines())]
    assert torch.equal(torch.tensor(values), features.flatten(2).mean(2)), "no digit is lost"
