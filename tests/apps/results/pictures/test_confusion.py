# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The picture of a confusion matrix."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from monai_afire.apps.results.pictures.confusion import confusion_figure


def test_rows_are_true_classes(tmp_path: Path) -> None:
    figure = confusion_figure(
        [[5, 1], [0, 0]], ["no $finding$", "severe"], tmp_path / "confusion.png"
    )
    axis = figure.axes[0]
    assert [text.get_text() for text in axis.texts] == ["5", "1", "0", "0"]
    assert [(text.get_position()[1], text.get_position()[0]) for text in axis.texts[:2]] == [
        (0, 0),
        (0, 1),
    ]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["no $finding$", "severe"]
    assert axis.get_ylabel() == "true class"
    assert axis.images[0].get_array().tolist() == [[5 / 6, 1 / 6], [0.0, 0.0]]  # type: ignore[union-attr]
    assert min(Image.open(tmp_path / "confusion.png").size) > 300


def test_names_must_fit() -> None:
    with pytest.raises(ValueError, match="3 classes is square"):
        confusion_figure([[1, 0], [0, 1]], ["a", "b", "c"], None)
