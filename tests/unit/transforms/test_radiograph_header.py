# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Facts of a header: known words alone say that a file is no frontal chest; age and view."""

from __future__ import annotations

import pytest
from pydicom.dataset import Dataset

from monai_afire.transforms.radiograph_header import (
    age_in_years,
    frontal_view,
    other_than_frontal_chest,
)

CHESTS = ["CHEST", "Thorax", "TÓRAX", "Lungs", "CHEST_TO_PELVIS", "胸部", "RX STEHEND"]
# terms of PS3.16, annex L, for other parts, and some in other languages
OTHERS = ["ABDOMEN", "HAND", "C-SPINE", "EXTREMITY", "HIP", "RIB", "CRÁNEO", "HÜFTE", "Fuß", "LWS"]
FRONTAL = ["AP", "PA", "P-A", "P.A.", "A/P", "p a", "Postero-Anterior", "FRONTAL"]
UNKNOWN = ["FACE", "DE FACE", "STEHEND", "正面", "1"]
OTHER_VIEWS = ["LL", "LATERAL", "LAT", "L-L", "LAO", "LLD", "OBLIQUE", "Profil", "MLO", "seitlich"]


def said(**elements: object) -> str:
    header = Dataset()
    for keyword, value in elements.items():
        setattr(header, keyword, value)
    return other_than_frontal_chest(header)


@pytest.mark.filterwarnings("ignore:.*Invalid value|.*CS")
def test_known_other_parts_and_views_alone_are_others() -> None:
    for word in (*CHESTS, *OTHERS):
        assert bool(said(BodyPartExamined=word)) == (word in OTHERS), word
    for word in (*FRONTAL, *UNKNOWN, *OTHER_VIEWS):
        assert bool(said(ViewPosition=word)) == (word in OTHER_VIEWS), word


@pytest.mark.parametrize(
    ("rows", "expected"), [(["L", "F"], False), (["P", "F"], True), (["LP", "FA"], False)]
)
def test_directions(rows: list[str], expected: bool) -> None:
    assert bool(said(PatientOrientation=rows)) == expected


@pytest.mark.parametrize(
    ("elements", "years"),
    [
        ({"PatientAge": "007Y"}, 7.0),
        ({"PatientAge": "018M"}, 1.5),
        ({"PatientAge": "003W"}, 21 / 365.25),
        ({"PatientAge": "000Y"}, None),
        ({"PatientAge": "adult"}, None),
        ({"PatientBirthDate": "20100101", "StudyDate": "20200101"}, 10.0),
        ({"PatientBirthDate": "20200101", "StudyDate": "20100101"}, None),
        ({"PatientBirthDate": "", "StudyDate": "20100101"}, None),
        ({}, None),
    ],
)
def test_age_of_a_header(elements: dict[str, str], years: float | None) -> None:
    header = Dataset()
    for keyword, value in elements.items():
        header.add_new(keyword, "LO", value)  # whatever the writer left
    found = age_in_years(header)
    assert found is None if years is None else found == pytest.approx(years, rel=1e-3)


def test_view_of_a_header() -> None:
    views = {"PA": "PA", "A.P.": "AP", "ap portable": "AP", "LL": "", "": "", "POSTERO_ANT": "PA"}
    for text, view in views.items():
        header = Dataset()
        header.add_new("ViewPosition", "LO", text)
        assert frontal_view(header) == view, text
