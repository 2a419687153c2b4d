# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Damaged and hostile lists give items or the error of lists, and no name leads out of the output folder."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import Mutation, bounded, mutated, mutations

from monai_afire.apps.results.output_paths import output_path
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.datalist.labels import normal_items
from monai_afire.data.datalist.loading import bundle_items

GOOD: dict[str, Any] = {
    "finding_names": ["Effusion", "Mass"],
    **{
        section: [
            {
                "image": f"{section}{number}.png",
                "label": [0, number % 2],
                "abnormal": number % 2,
                "patient_id": number,
            }
            for number in range(start, start + 3)
        ]
        for start, section in enumerate(("training", "validation", "test"))
    },
}

hostile_names = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "../../etc/passwd",
            "/etc/passwd",
            "..",
            ".",
            "~/x.png",
            "a\x00b.png",
            "C:\\x.png",
            "a" * 300,
        ]
    ),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile_names),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(hostile_names, inner, max_size=3)
    ),
    max_leaves=6,
)
entries = st.one_of(
    values,
    st.fixed_dictionaries(
        {"image": hostile_names},
        optional=dict.fromkeys(
            ("label", "abnormal", "patient_id", "mask", "organs", "boxes"), values
        ),
    ),
)


def check(path: Path) -> None:
    """Read the list as pre-training and as fine-tuning does."""
    for read in (bundle_items, labeled_items):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                items = read("training", None, str(path))
                normal_items(items)
            except DatalistError:
                continue
        assert items
        assert all(isinstance(item, dict) and os.path.isfile(item["image"]) for item in items)


def make_images(folder: Path) -> None:
    for section in ("training", "validation", "test"):
        for item in GOOD[section]:
            (folder / item["image"]).touch()


@pytest.mark.filterwarnings("ignore:.*in two sections")
def test_the_undamaged_list_is_read(tmp_path: Path) -> None:
    make_images(tmp_path)
    (tmp_path / "list.json").write_text(json.dumps(GOOD))
    check(tmp_path / "list.json")
    assert len(bundle_items("training", None, str(tmp_path / "list.json"))) == 3


@bounded
@given(steps=mutations)
def test_damaged_lists(steps: list[Mutation], tmp_path: Path) -> None:
    make_images(tmp_path)
    (tmp_path / "list.json").write_bytes(mutated(json.dumps(GOOD).encode(), steps))
    check(tmp_path / "list.json")


@bounded
@given(section=st.one_of(values, st.lists(entries, max_size=4)), header=values)
def test_lists_of_anything(section: Any, header: Any, tmp_path: Path) -> None:
    make_images(tmp_path)
    content = {**GOOD, "training": section, "finding_names": header}
    (tmp_path / "list.json").write_text(json.dumps(content), encoding="utf-8")
    check(tmp_path / "list.json")


@bounded
@given(name=hostile_names, root=hostile_names)
def test_no_name_leads_out_of_the_output_folder(name: str, root: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = output_path(out, os.path.join("/data", name), os.path.join("/data", root), ".png")
    assert path.resolve().is_relative_to(out.resolve())
    assert path.resolve() != out.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
