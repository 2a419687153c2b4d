# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Embeddings as a table without titles, as MONAI writes it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine
from monai.handlers import ClassificationSaver

from monai_afire.apps.results import EmbeddingWriter

ITEMS = [{"image": f"/data/{name}.png", "index": index} for index, name in enumerate("abcdefg")]
FEATURES = torch.randn(len(ITEMS), 3, 4, 4, generator=torch.Generator().manual_seed(0))


def encode(folder: Path, rejected: str = "") -> None:
    """A whole run by batches of two, also by the handler of MONAI whose format it is."""
    writer = EmbeddingWriter(ITEMS, str(folder))
    engine = Engine(lambda engine, batch: {"pred": FEATURES[batch["index"]]})
    writer.attach(engine)
    saver = ClassificationSaver(
        str(folder / "monai"),
        batch_transform=lambda batch: [
            {"filename_or_obj": ITEMS[index]["image"]} for index in batch["index"]
        ],
        output_transform=lambda output: list(output["pred"].flatten(2).mean(2)),
    )
    saver.attach(engine)
    items = writer.remaining(2)
    indices = [
        torch.tensor([item["index"] for item in items[start : start + 2]])
        for start in range(0, len(items), 2)
    ]
    batches: list[Any] = [
        {"index": own, "rejected": ["broken" if ITEMS[i]["image"] == rejected else "" for i in own]}
        for own in indices
    ]
    engine.run(batches)


def test_the_table_is_that_of_monai(tmp_path: Path) -> None:
    encode(tmp_path)
    found = (tmp_path / "embeddings.csv").read_text()
    assert found == (tmp_path / "monai" / "predictions.csv").read_text()
    with (tmp_path / "embeddings.csv").open(newline="") as file:
        values = [[float(cell) for cell in row[1:]] for row in csv.reader(file)]
    assert torch.equal(torch.tensor(values), FEATURES.flatten(2).mean(2)), "no digit is lost"
