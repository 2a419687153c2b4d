# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of all studies: what is kept, what is left out, and that it needs no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from apps.studies.stub_encoders import tiny_vit
from matplotlib.figure import Figure

from monai_afire.apps.studies import (
    StudyImages,
    StudyResult,
    encoders_of,
    property_report,
)
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

Encoders = Mapping[str, RadiographEncoder]
IMAGES = StudyImages(torch.rand(3, 1, 16, 16), group=["a", "a", "b"])


def mean_study(encoders: Encoders, images: StudyImages) -> StudyResult:
    """A study with every kind of content."""
    with torch.no_grad():
        means = {name: float(encoder(images.image).mean()) for name, encoder in encoders.items()}
    table = pd.DataFrame({"mean": means, "undefined": float("nan"), "large": 12345.6})
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    rows = pd.DataFrame({"group": images.group})
    return StudyResult(
        "Mean <of> & tokens", "One.\n\nTwo.", table, {'a "line"': figure}, {"groups": rows}
    )


def failing_study(encoders: Encoders, images: StudyImages, error: str) -> StudyResult:
    raise ValueError(error)


def read(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def test_report_is_one_file_with_everything(tmp_path: Path) -> None:
    encoders = {"ours": tiny_vit(16), "untrained": tiny_vit(16)}
    property_report(encoders, IMAGES, [mean_study], tmp_path, facts={"seed": 3})
    text = (tmp_path / "report.html").read_text()
    assert text.count("<img") == text.count("data:image/png;base64,") == 1
    assert "Mean &lt;of&gt; &amp; tokens" in text
    study = read(tmp_path)["studies"][0]
    assert list(study["table"]) == ["ours", "untrained"]
    assert study["table"]["ours"]["undefined"] is None
    assert study["details"]["groups"] == [{"group": "a"}, {"group": "a"}, {"group": "b"}]
    assert read(tmp_path)["facts"]["seed"] == 3


def test_a_failing_study_costs_only_itself(tmp_path: Path) -> None:
    fails = partial(failing_study, error="no such thing")
    with pytest.raises(RuntimeError, match="no such thing"):
        property_report({"ours": tiny_vit(16)}, IMAGES, [mean_study, fails, mean_study], tmp_path)
    content = read(tmp_path)
    assert len(content["studies"]) == 2
    assert "no such thing" in content["remarks"][0]


def test_encoders_differ_in_weights_alone(tmp_path: Path) -> None:
    trained = tiny_vit(16)
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    base = tiny_vit(16)
    before = {name: value.clone() for name, value in base.state_dict().items()}
    encoders = encoders_of(base, {"trained": str(tmp_path / "model.pt"), "untrained": None})
    assert torch.equal(encoders["trained"](IMAGES.image), trained.eval()(IMAGES.image))
    assert torch.equal(encoders["untrained"](IMAGES.image), base.eval()(IMAGES.image))
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
