# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What all reports do: the choice of pictures, the size of pixels, and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from ignite.engine import Engine

from monai_afire.apps.results import PicturedReport, metrics_report

NAN = float("nan")


@dataclass(eq=False)
class Scores(PicturedReport):
    """Shows numbers."""

    table_name, sheet_name, items, num_pictures = "table.csv", "sheet.png", [], 3
    output_dir: str

    def collect(self, engine: Engine) -> None:
        self.rows.append({})
        for score in engine.state.batch:  # type: ignore[union-attr]
            self.keep_example(score, f"{score:.6f}", lambda: np.zeros((4, 4, 3), np.uint8))

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        return {}

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        self.draw_sheet({}, "score")


def shown(monkeypatch: pytest.MonkeyPatch, folder: Path, scores: list[float]) -> list[str]:
    titles: list[str] = []
    keep = lambda pictures, names, *others, **more: titles.extend(names)  # noqa: E731
    monkeypatch.setattr(metrics_report, "image_grid", keep)
    engine = Engine(lambda engine, batch: None)
    report = Scores(str(folder))
    report.attach(engine)
    engine.run([scores[:7], scores[7:]])
    assert len(report.examples) <= 6
    return titles


@pytest.mark.parametrize("number", [2, 5, 6, 7, 100])
def test_the_worst_and_the_best(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    scores = np.random.default_rng(number).normal(size=number).tolist()
    ranked = [f"{s:.6f}\nrank {rank} of {number}" for rank, s in enumerate(sorted(scores), 1)]
    expected = ranked if number <= 6 else [*ranked[:3], *ranked[-3:]]
    assert shown(monkeypatch, tmp_path, [*scores, NAN]) == expected


def test_pixel_sizes_by_hand() -> None:
    report = Scores("")
    report.items = [{"pixel_size": size} for size in (0.2, [0.2, 0.4], None, NAN)] + [{}]
    batch = {"index": torch.tensor([1, 0, 4, 2, 3])}
    sizes = report.pixel_sizes(batch, (10, 20))
    np.testing.assert_allclose(sizes[:2].numpy(), [[0.2, 0.4], [0.2, 0.2]])
    assert sizes[2:].isnan().all()
    sizes = report.pixel_sizes({**batch, "spatial_shape": torch.tensor([[100, 40]] * 5)}, (10, 20))
    np.testing.assert_allclose(sizes[:2].numpy(), [[2.0, 0.8], [2.0, 0.4]])


def test_a_folder_with_another_evaluation_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "metrics.json").write_text("first")
    with pytest.raises(FileExistsError, match=r"metrics\.json"):
        shown(monkeypatch, tmp_path, [0.5])
    assert (tmp_path / "metrics.json").read_text() == "first"
