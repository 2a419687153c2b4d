# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tables that grow while a network runs, and the predictions of a classifier in them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from html_pages import Elements
from ignite.engine import Engine
from PIL import Image

from monai_afire.apps.results import PredictionWriter, ResultTables

NAMES = ["Edema", "Pleural Effusion"]
ITEMS = [{"image": f"folder/{name}.png"} for name in "abcde"]
LOGITS = torch.tensor([[0.0, -1.0], [3.0, 30.0], [-0.5, 0.5], [1.0, 2.0], [-40.0, 0.25]])


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def batches(reasons: list[str] | None = None) -> list[dict[str, Any]]:
    """Five images in batches of two, in another order than that of the items."""
    order = [3, 0, 4, 1, 2]
    parts = [order[start : start + 2] for start in (0, 2, 4)]
    made: list[dict[str, Any]] = [
        {"image": LOGITS[part], "index": torch.tensor(part)} for part in parts
    ]
    if reasons is not None:
        for batch, part in zip(made, parts, strict=True):
            batch["rejected"] = [reasons[index] for index in part]
    return made


def run(writer: ResultTables, data: list[dict[str, Any]]) -> None:
    engine = Engine(lambda engine, batch: {"pred": batch["image"]})
    writer.attach(engine)
    engine.run(data)


def test_probabilities_of_every_image(tmp_path: Path) -> None:
    run(PredictionWriter(ITEMS, NAMES, str(tmp_path / "new" / "out")), batches())
    rows = read_csv(tmp_path / "new/out/predictions.csv")
    assert list(rows[0]) == ["image", "probability_Edema", "probability_Pleural Effusion"]
    assert [row["image"][-5] for row in rows] == list("abcde")
    for row, logits in zip(rows, LOGITS.tolist(), strict=True):
        expected = [1 / (1 + math.exp(-logit)) for logit in logits]
        assert [float(row[f"probability_{name}"]) for name in NAMES] == pytest.approx(
            expected, rel=1e-5
        )
    assert (tmp_path / "new/out/rejected.csv").read_text().split() == ["image,reason"]


def test_decisions(tmp_path: Path) -> None:
    run(PredictionWriter(ITEMS, NAMES, str(tmp_path), thresholds=[0.5, math.nan]), batches())
    rows = {row["image"]: row for row in read_csv(tmp_path / "predictions.csv")}
    assert [rows[item["image"]]["decision_Edema"] for item in ITEMS] == ["1", "1", "0", "1", "0"]
    assert {row["threshold_Edema"] for row in rows.values()} == {"0.5"}
    for column in ("threshold_Pleural Effusion", "decision_Pleural Effusion"):
        assert {row[column] for row in rows.values()} == {""}


def test_thresholds_are_read_when_the_run_starts(tmp_path: Path) -> None:
    thresholds = torch.tensor([0.0, 0.0])
    writer = PredictionWriter(ITEMS, NAMES, str(tmp_path), thresholds)
    thresholds.fill_(1.0)  # as a checkpoint does when it is loaded
    run(writer, batches())
    assert {row["decision_Edema"] for row in read_csv(tmp_path / "predictions.csv")} == {"0"}


def test_files_without_prediction(tmp_path: Path) -> None:
    writer = PredictionWriter(ITEMS, NAMES, str(tmp_path))
    data = batches(["", "no pixels", "", "", ""])
    data[0]["image"] = torch.tensor([[0.0, math.nan], [1.0, 1.0]])
    run(writer, data)
    assert [row["image"][-5] for row in read_csv(tmp_path / "predictions.csv")] == list("ace")
    rejected = {row["image"][-5]: row["reason"] for row in read_csv(tmp_path / "rejected.csv")}
    assert rejected["b"] == "no pixels"
    assert "NaN" in rejected["d"]
    with pytest.raises(SystemExit) as exit_code:
        writer.exit_if_rejected()
    assert exit_code.value.code == 2


def test_names_that_are_no_valid_text(tmp_path: Path) -> None:
    items = [{"image": "caf\udce9,\n.png"}]
    run(
        PredictionWriter(items, NAMES, str(tmp_path)),
        [{"image": LOGITS[:1], "index": torch.tensor([0])}],
    )
    assert read_csv(tmp_path / "predictions.csv")[0]["image"] == "caf\\udce9,\n.png"


@pytest.mark.parametrize(
    ("names", "thresholds", "named"),
    [
        (["Edema", "Edema"], None, "Edema"),
        (NAMES, [0.5], "thresholds"),
        (NAMES, [0.5, -1.0], "thresholds"),
        (["Edema"], None, "Edema"),
    ],
)
def test_refused_settings(tmp_path: Path, names: list, thresholds: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        run(PredictionWriter(ITEMS, names, str(tmp_path), thresholds), batches())


@pytest.mark.parametrize(("positive", "warned"), [(25, True), (15, False)])
def test_a_model_on_images_that_it_was_not_made_for(
    tmp_path: Path, positive: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    items = [{"image": f"{number}.png"} for number in range(30)]
    logits = torch.tensor([[2.0 if number < positive else -2.0, -2.0] for number in range(30)])
    data = [{"image": logits[part], "index": part} for part in torch.arange(30).split(8)]
    run(PredictionWriter(items, NAMES, str(tmp_path), thresholds=[0.5, 0.5]), data)
    assert ("decision_Edema" in caplog.text) == warned
    assert "decision_Pleural" not in caplog.text


def test_page_of_the_highest_probabilities(tmp_path: Path) -> None:
    """Relative to the thresholds; names of files are no markup."""
    names = ["<b>a.png", "b.png", "c.png"]
    for name in names:
        Image.new("L", (48, 40), 128).save(tmp_path / name)
    items = [{"image": str(tmp_path / name)} for name in names]
    data = [{"image": torch.tensor([[1.0, -9], [-1.0, 2], [0.5, 0.2]]), "index": torch.arange(3)}]
    run(PredictionWriter(items, NAMES, str(tmp_path / "out"), thresholds=[0.9, 0.1]), data)
    text = (tmp_path / "out/predictions.html").read_text(encoding="utf-8")
    places = [text.index(f'<div class="name">{name}') for name in ("b.png", "c.png", "&lt;b&gt;a")]
    assert places == sorted(places)
    pictures = [each["src"] or "" for each in Elements(text).named("img")]
    assert len(pictures) == 3
    assert all(picture.startswith("data:image/jpeg") for picture in pictures)
    assert not Elements(text).named("b")
