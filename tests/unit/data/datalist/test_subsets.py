# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fractions, shots and folds: by patient, reproducible, nested, no class lost."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.data.datalist.subsets import cross_validation_items, few_shots, label_subset

Item = dict[str, Any]


@st.composite
def cohorts(draw: st.DrawFn, min_patients: int = 1) -> list[Item]:
    """Items of patients with one to three images, in any order, with labels of one kind, or without."""
    num_patients = draw(st.integers(min_patients, 30))
    kind = draw(st.sampled_from(["findings", "class", "none"]))
    num_classes = draw(st.integers(1, 5))
    value = st.sampled_from([0, 0, 0, 1, -1, None])
    items: list[Item] = []
    for patient in range(num_patients):
        for _ in range(draw(st.integers(1, 3))):
            item: Item = {"patient_id": draw(st.sampled_from([patient, f"{patient}"]))}
            if kind == "findings":
                item["label"] = draw(st.lists(value, min_size=num_classes, max_size=num_classes))
            elif kind == "class":
                item["label"] = draw(st.integers(0, num_classes - 1))
            items.append(item)
    items = draw(st.permutations(items))
    return [{"image": f"{number}.png", **item} for number, item in enumerate(items)]


def names(items: list[Item]) -> list[str]:
    return [item["image"] for item in items]


def patients(items: list[Item]) -> set[str]:
    return {str(item["patient_id"]) for item in items}


def positives(items: list[Item]) -> set[Any]:
    """Classes with a positive, and "normal" for an item without a finding."""
    found: set[Any] = set()
    for item in items:
        label = item.get("label")
        if isinstance(label, list):
            found |= {k for k, value in enumerate(label) if value == 1} or {"normal"}
        elif label is not None:
            found.add(label)
    return found


# ---- fractions


@given(cohorts(), st.floats(0.001, 1), st.integers(0, 3))
@settings(max_examples=50)
def test_fraction_takes_whole_patients_of_the_right_number(
    cohort: list[Item], fraction: float, seed: int
) -> None:
    chosen = label_subset(cohort, fraction, seed)
    number = len(patients(cohort))
    assert abs(len(patients(chosen)) - max(1.0, fraction * number)) <= 0.5 + 1e-9
    assert len(patients(chosen)) >= 1
    assert chosen == [item for item in cohort if str(item["patient_id"]) in patients(chosen)]
    assert chosen == label_subset(cohort, fraction, seed)


@given(cohorts(), st.lists(st.floats(0.001, 1), min_size=2, max_size=2), st.integers(0, 3))
@settings(max_examples=50)
def test_fractions_are_nested(cohort: list[Item], fractions: list[float], seed: int) -> None:
    small, large = (label_subset(cohort, fraction, seed) for fraction in sorted(fractions))
    assert set(names(small)) <= set(names(large))


@given(cohorts(), st.floats(0.001, 1), st.integers(0, 3))
@settings(max_examples=50)
def test_no_class_is_lost_where_there_are_as_many_patients_as_classes(
    cohort: list[Item], fraction: float, seed: int
) -> None:
    chosen = label_subset(cohort, fraction, seed)
    classes = positives(cohort)
    if len(patients(chosen)) >= len(classes):
        assert positives(chosen) == classes
    else:  # each of the first patients adds a class
        assert len(positives(chosen)) >= len(patients(chosen))


# ---- shots


@given(cohorts(), st.data(), st.integers(0, 3))
@settings(max_examples=50)
def test_shots_are_of_different_patients_and_nested(
    cohort: list[Item], data: st.DataObject, seed: int
) -> None:
    number = data.draw(st.integers(1, len(patients(cohort))))
    chosen = few_shots(cohort, number, seed)
    assert len(chosen) == number == len(patients(chosen))
    assert chosen == [item for item in cohort if item in chosen]
    assert chosen == few_shots(cohort, number, seed)
    if number > 1:
        fewer = few_shots(cohort, number - 1, seed)
        assert set(names(fewer)) < set(names(chosen))


# ---- folds


@given(cohorts(min_patients=3), st.data(), st.integers(0, 3))
@settings(max_examples=50)
def test_no_patient_is_in_two_sections_and_each_is_tested_once(
    cohort: list[Item], data: st.DataObject, seed: int
) -> None:
    number = data.draw(st.integers(3, min(8, len(patients(cohort)))))
    sections = ("training", "validation", "test")
    runs = [
        [cross_validation_items(cohort, number, fold, section, seed) for section in sections]
        for fold in range(number)
    ]
    for run in runs:
        assert all(run)
        assert sorted(name for part in run for name in names(part)) == sorted(names(cohort))
        for one, other in itertools.combinations(run, 2):
            assert not patients(one) & patients(other)
    tests = [test for _, _, test in runs]
    assert sorted(name for test in tests for name in names(test)) == sorted(names(cohort))
    assert [validation for _, validation, _ in runs] == [*tests[1:], tests[0]]


@pytest.mark.parametrize("seed", range(4))
def test_positives_are_spread_evenly_and_folds_are_of_one_size(seed: int) -> None:
    frequencies = [0.02, 0.05, 0.1, 0.2, 0.4, 0.5]
    table = (np.random.default_rng(seed).random((300, 6)) < frequencies).astype(int)
    cohort = [
        {"image": f"{n}", "patient_id": n, "label": row.tolist()} for n, row in enumerate(table)
    ]
    folds = [cross_validation_items(cohort, 5, fold, "test", seed) for fold in range(5)]
    counts = np.array([np.sum([item["label"] for item in fold], axis=0) for fold in folds])
    # by chance the last class would differ by 20 between folds
    assert (np.ptp(counts, axis=0) <= 2).all()
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_uncertain_and_missing_are_no_positives() -> None:
    cohort = [{"image": f"{n}", "patient_id": n, "label": [-1, None]} for n in range(50)]
    cohort[17]["label"] = [1, 0]
    assert all("17" in names(label_subset(cohort, 0.04, seed)) for seed in range(10))


@pytest.mark.parametrize(
    "choose",
    [
        lambda cohort, seed: label_subset(cohort, 0.1, seed),
        lambda cohort, seed: few_shots(cohort, 10, seed),
        lambda cohort, seed: cross_validation_items(cohort, 10, 0, "test", seed),
    ],
    ids=["fraction", "shots", "folds"],
)
def test_seeds_choose_differently_whatever_the_order(
    choose: Callable[[list[Item], int], list[Item]],
) -> None:
    cohort = [{"image": f"{n}", "patient_id": n} for n in range(100)]
    assert set(names(choose(cohort[::-1], 0))) == set(names(choose(cohort, 0)))
    counts = Counter(name for seed in range(100) for name in names(choose(cohort, seed)))
    assert len(counts) == 100  # nobody is never chosen
    assert max(counts.values()) < 30  # 10 are expected, with a standard deviation of 3
