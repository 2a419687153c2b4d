# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of all studies: what is kept, what is left out, and that it needs no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from monai_afire.apps.studies import (
    NothingToCompareError,
    StudyImages,
    StudyResult,
    encoders_of,
    property_report,
    report_page,
)
from monai_afire.networks import ViTEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

IMAGES = StudyImages(torch.rand(3, 1, 16, 16), group=["a", "a", "b"])


def tiny_encoder() -> ViTEncoder:
    return ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)


class Mean:
    """A study with every kind of content."""

    needs: tuple[str, ...] = ("group",)

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        with torch.no_grad():
            means = {
                name: float(encoder(images.image).mean()) for name, encoder in encoders.items()
            }
        table = pd.DataFrame({"mean": means, "undefined": float("nan")})
        figure = Figure(figsize=(2, 1))
        figure.subplots().plot([0, 1])
        rows = pd.DataFrame({"group": images.group})
        return StudyResult(
            "Mean <of> & tokens", "One.\n\nTwo.", table, {'a "line"': figure}, {"groups": rows}
        )


class NeedsMasks(Mean):
    needs = ("masks",)


class FindsNothing(Mean):
    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        raise NothingToCompareError("all are the same")


class Fails(Mean):
    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        raise ValueError("no such thing")


class Page(HTMLParser):
    """Collects tags and sources; complains of tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.counts: dict[str, int] = {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.sources += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def test_report_is_one_file_with_everything(tmp_path: Path) -> None:
    encoders = {"ours": tiny_encoder(), "untrained": tiny_encoder()}
    property_report(encoders, IMAGES, [Mean()], tmp_path, facts={"seed": 3}, progress=False)
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in page.sources)
    assert "url(" not in text
    assert "Mean &lt;of&gt; &amp; tokens" in text
    assert page.counts["img"] == 1
    assert page.counts["details"] == 1
    study = read(tmp_path)["studies"][0]
    assert list(study["table"]) == ["ours", "untrained"]
    assert study["table"]["ours"]["undefined"] is None
    assert study["details"]["groups"] == [{"group": "a"}, {"group": "a"}, {"group": "b"}]
    assert read(tmp_path)["facts"]["seed"] == 3


def test_a_study_without_its_images_is_named(tmp_path: Path) -> None:
    results = property_report(
        {"ours": tiny_encoder()}, IMAGES, [NeedsMasks(), Mean()], tmp_path, progress=False
    )
    assert len(results) == 1
    assert read(tmp_path)["remarks"] == ["NeedsMasks was left out: the images have no masks."]
    assert "no masks" in (tmp_path / "report.html").read_text()


def test_a_study_with_nothing_to_compare_is_named(tmp_path: Path) -> None:
    results = property_report(
        {"ours": tiny_encoder()}, IMAGES, [FindsNothing(), Mean()], tmp_path, progress=False
    )
    assert [result.title for result in results] == ["Mean <of> & tokens"]
    assert read(tmp_path)["remarks"] == ["FindsNothing was left out: all are the same."]


def test_a_failing_study_costs_only_itself(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"1 of 3 studies failed.*no such thing"):
        property_report(
            {"ours": tiny_encoder()}, IMAGES, [Mean(), Fails(), Mean()], tmp_path, progress=False
        )
    content = read(tmp_path)
    assert len(content["studies"]) == 2
    assert "no such thing" in content["remarks"][0]


def test_what_is_done_is_kept(tmp_path: Path) -> None:
    class Interrupted(Mean):
        def __call__(
            self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
        ) -> StudyResult:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        property_report(
            {"ours": tiny_encoder()}, IMAGES, [Mean(), Interrupted()], tmp_path, progress=False
        )
    assert len(read(tmp_path)["studies"]) == 1


def test_a_folder_that_cannot_be_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        property_report(
            {"ours": tiny_encoder()}, IMAGES, [Fails()], tmp_path / "file", progress=False
        )


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (12345.6, "12346"), (float("nan"), "not defined")]
)
def test_numbers_to_read(value: float, text: str) -> None:
    page = report_page(
        "t", {}, [StudyResult("s", "q", pd.DataFrame({"x": [value]}, index=["ours"]))]
    )
    assert f"<td>{text}</td>" in page


def test_encoders_differ_in_weights_alone(tmp_path: Path) -> None:
    trained = tiny_encoder()
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    base = tiny_encoder()
    before = {name: value.clone() for name, value in base.state_dict().items()}
    encoders = encoders_of(base, {"trained": str(tmp_path / "model.pt"), "untrained": None})
    assert torch.equal(encoders["trained"](IMAGES.image), trained.eval()(IMAGES.image))
    assert torch.equal(encoders["untrained"](IMAGES.image), base.eval()(IMAGES.image))
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
    with pytest.raises(ValueError, match="no encoder is named"):
        encoders_of(base, {})
