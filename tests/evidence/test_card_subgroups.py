# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The benchmark of subgroups finds planted gaps and no others, and the card of every released file has its table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from monai_afire.metrics.binary_classification import roc_auc
from tests.evidence.card_subgroups import Answered, Decided, card, gaps

ROOT = Path(__file__).resolve().parents[2]
RELEASED = sorted((*ROOT.glob("bundles/*/models/model.pt"), *ROOT.glob("bundles/*/released/*.*t*")))


def made(gap: float) -> tuple[pd.DataFrame, Decided]:
    """Two findings of 600 images; in men the scores say less by the gap."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"patient_id": [f"p{n // 2}" for n in range(600)], "sex": ["F", "F", "M", "M"] * 150}
    )
    table["age"] = [str(20 + n % 60) if n else "" for n in range(600)]
    labels = (random.uniform(size=(600, 2)) < 0.4).astype(float)
    strength = np.where(table["sex"] == "M", 1.5 - gap, 1.5)[:, None]
    scores = strength * labels + random.normal(size=(600, 2))
    return table, Decided(labels, scores, np.array([0.7, np.nan]))


def test_a_planted_gap_is_named() -> None:
    table, decided = made(1.4)
    found = gaps(table, decided.columns, decided.difference)
    (auc,) = [line for line in found if line.startswith("AUC")]
    assert re.fullmatch(
        r"AUC is 0\.\d\d higher for sex F than for sex M \(0\.\d{3} to 0\.\d{3}\)\.", auc
    )
    women = (table["sex"] == "F").to_numpy()
    aucs = [
        [roc_auc(decided.labels[own, k], decided.scores[own, k]) for k in (0, 1)]
        for own in (women, ~women)
    ]
    assert float(auc.split()[2]) == pytest.approx(np.mean(aucs[0]) - np.mean(aucs[1]), abs=0.006)


def test_without_a_gap_none_is_named() -> None:
    table, decided = made(0.0)
    assert gaps(table[["patient_id", "sex"]], decided.columns, decided.difference) == [
        "No difference between groups is beyond its interval."
    ]


def test_rows_have_all_images_and_each_group() -> None:
    table, decided = made(0.0)
    rows = decided.rows(table)
    assert list(rows) == ["all", "sex F", "sex M", "age 20 to 39", "age 40 to 59", "age 60 to 79"]
    assert (rows["all"]["images"], rows["sex F"]["images"]) == (600, 300)
    assert rows["all"]["sensitivity"] == ""  # one of the findings has no threshold
    expected = np.mean([roc_auc(decided.labels[:, k], decided.scores[:, k]) for k in (0, 1)])
    assert float(str(rows["all"]["auc"]).split()[0]) == pytest.approx(expected, abs=0.006)


def test_right_answers_by_group() -> None:
    table, _ = made(0.0)
    answered = Answered(pd.DataFrame({"Pose": (table["sex"] == "F").astype(float)}))
    rows = answered.rows(table)
    assert rows["all"]["Pose"].startswith("0.50 (")  # type: ignore[attr-defined]
    assert rows["sex F"]["Pose"] == "1.00 (1.00-1.00)"
    few = table.assign(sex=["O"] * 9 + ["F"] * 591)
    assert answered.rows(few)["sex O"]["Pose"] == ""
    assert "| sex O | 9 | too few |" in card(answered.rows(few)).splitlines()
    (gap,) = gaps(table[["patient_id", "sex"]], answered.columns, answered.difference)
    assert gap == "Pose is 1.00 higher for sex F than for sex M (1.000 to 1.000)."


def card_of(file: Path) -> str:
    """The card beside a released file, if it describes this file, or that of its bundle."""
    cards = (file.parent / "README.md", file.parents[1] / "docs" / "README.md")
    texts = [card.read_text(encoding="utf-8") for card in cards if card.is_file()]
    return next(text for text in texts if file.name in text)


@pytest.mark.parametrize("file", RELEASED, ids=lambda file: str(file.relative_to(ROOT / "bundles")))
def test_the_card_of_a_released_file_has_its_parts(file: Path) -> None:
    text = card_of(file)
    start = text.index("# Subgroups")
    subgroups = text[start : text.index("\n#", start)]
    drawn = (
        re.search("`models/model.pt` .*?drawn phantoms", text, re.DOTALL)
        and file.name == "model.pt"
    )
    assert "are no patients" in subgroups if drawn else "sex F |" in subgroups
    assert file.name in text[: text.index("# Limit")]
    for part in ("data_license.txt", "# Limit", "Not for clinical use", "seed"):
        assert part in text
    licenses = (file.parents[1] / "docs" / "data_license.txt").read_text(encoding="utf-8")
    assert file.name in licenses
    assert len(RELEASED) == 18
