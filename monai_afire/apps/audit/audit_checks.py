# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The checks of the audit: from measurements to findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

# chosen on validation images: see tests/benchmarks/released/audit_checks.py
THRESHOLDS = {
    "spread": 0.02,
    "white": 0.05,
    "black_inside": 0.02,
    "correlation": 0.99,
    "not_chest": 0.05,
    "two_views": 0.5,
    "rotated": 0.5,
    "mirrored": 0.57,
    "inverted": 0.5,
    "lungs_at_edge": 0.55,
    "second_lung": 0.3,
    "letters": 5,
    "border": 0.25,
    "exposure": 4.5,
    "resolution": 2.0,
}
_LEAST_GROUP = 20  # images of a scanner that outliers are sought among
# a few films of another range are no fault where most have nearly the same one
_LEAST_DEVIATION = 0.07
_PRIORITY = ("test", "validation")  # sections that keep an image which others have, too


class Check(NamedTuple):
    """
    One check.

    Attributes:
        name: as in tables.
        title: as on the page.
        advice: what to do about a finding.
    """

    name: str
    title: str
    advice: str


CHECKS = (
    Check("unreadable", "Unreadable", "Copy or export the file again."),
    Check("blank", "Blank", "The picture has nearly one gray level."),
    Check("saturated", "Saturated", "Much is at the largest or smallest value. Check the window."),
    Check("exact_duplicate", "Exact duplicates", "Files with the same bytes. One of them is kept."),
    Check("near_duplicate", "Near duplicates", "Compressed, resized or exposed again."),
    Check("not_chest", "Not a chest radiograph", "Opaque lungs can look like this, too: check."),
    Check("other_view", "Other view or body part", "By the DICOM header, such as a lateral view."),
    Check("two_views", "Two views in one picture", "By the picture. Cut it into two files."),
    Check("partial_lungs", "Lungs cut off", "They reach an edge, or only one was found."),
    Check("rotated", "Rotated", "By the picture. Turn the file upright."),
    Check("mirrored", "Mirrored", "Or an opaque or collapsed lung has shifted the heart: check."),
    Check("inverted", "Inverted", "By the picture: dense parts are dark. Invert the file."),
    Check("text", "Burnt-in text", "A line of letters. Look for names."),
    Check("borders", "Large borders", "Crop the uniform border."),
    Check("exposure", "Exposure outliers", "Brightness or contrast unlike others of the scanner."),
    Check(
        "resolution", "Resolution outliers", "Below half or above twice the scanner's usual side."
    ),
    Check("patient_in_splits", "Patient in several splits", "Keep a patient in one section."),
    Check("no_patient", "Patient unknown", 'Give "patient_id" in a datalist.'),
    Check("identifying_header", "Identifying header fields", "De-identify before you share files."),
)

# What is judged by the picture may be disease: it is shown for a decision, and left out only if that is asked for.
EXCLUDED = (
    "unreadable",
    "blank",
    "exact_duplicate",
    "near_duplicate",
    "other_view",
    "patient_in_splits",
)
"""Checks whose images the cleaned datalist leaves out by default."""

# Sensitivity is the share of spoiled images that a check finds, the lowest of the ways in which they were spoiled, and
# false alarms the share of untouched images that it reports, on NIH-7k's test patients (see THRESHOLDS).
_RATES = {
    "saturated": (0.972, 0.002),
    "near_duplicate": (0.999, 0.0),
    "not_chest": (1.0, 0.001),
    "two_views": (1.0, 0.0),
    "partial_lungs": (0.928, 0.011),
    "rotated": (0.998, 0.001),
    "mirrored": (0.983, 0.013),
    "inverted": (1.0, 0.0),
    "text": (0.862, 0.0),
    "borders": (1.0, 0.004),
    "exposure": (1.0, 0.003),
    "resolution": (1.0, 0.0),
}


def published_rates() -> dict[str, dict[str, float]]:
    """Sensitivity and false alarms of the checks by the picture, which were measured."""
    names = ("sensitivity", "false_alarms")
    return {check: dict(zip(names, rates, strict=True)) for check, rates in _RATES.items()}


def find(frame: pd.DataFrame, pairs: Iterable[tuple[int, int, float]]) -> dict[str, dict[int, str]]:
    """
    Apply all checks.

    Args:
        frame: one row per image with the measurements of :func:`measure_images`, "section", "patient" ("" if unknown)
            and "image"; perhaps "abnormal", 1 for images that are labeled with findings.
        pairs: near duplicates, see :func:`near_duplicates`.

    Returns:
        Name of the check -> row -> detail.
    """
    readable = frame["unreadable"] == ""
    picture = readable & (frame["spread"] >= THRESHOLDS["spread"])
    found: dict[str, dict[int, str]] = {check.name: {} for check in CHECKS}
    chosen = {
        "unreadable": (~readable, "{unreadable}"),
        "blank": (readable & ~picture, "one gray level, or nearly so"),
        "other_view": (readable & (frame["other_view"] != ""), "{other_view}"),
        "no_patient": (frame["patient"] == "", "no identifier"),
        "identifying_header": (frame["identifying"] != "", "{identifying}"),
    }
    found |= {name: _shown(frame, rows, text) for name, (rows, text) in chosen.items()}
    found["patient_in_splits"] = _split_patients(frame)
    found |= _by_picture(frame[picture])
    found |= _outliers(frame[picture])
    found |= _duplicates(frame[picture], pairs)
    return found


def _by_picture(frame: pd.DataFrame) -> dict[str, dict[int, str]]:
    """Pictures that lost gray levels, hold something other than a body, or no upright, whole and single chest."""
    above = {name: frame[name] > limit for name, limit in THRESHOLDS.items() if name in frame}
    strange = above["not_chest"]
    double = ~strange & above["two_views"]
    chest = ~strange & ~double
    # half a chest looks turned or like no chest, so those findings do not hide this one
    single = frame["second_lung"] < THRESHOLDS["second_lung"]
    partial = ~double & (single | above["lungs_at_edge"])
    lost = "{white:.0%} white, {black_inside:.0%} of the middle black"
    cut = "{lungs_at_edge:.0%} of the lungs' length at an edge, smaller lung {second_lung:.0%} of the larger"
    turn = "turned by {quarter_turns} x 90 degrees counterclockwise, probability {rotated:.2f}"
    text = frame["letters"] >= THRESHOLDS["letters"]
    chosen = {
        "saturated": (above["white"] | above["black_inside"], lost),
        "text": (text, "{letters} letters in a line"),
        "borders": (above["border"], "{border:.0%} of the area"),
        "not_chest": (strange, "probability {not_chest:.2f}"),
        "two_views": (double, "probability {two_views:.2f}"),
        "partial_lungs": (partial, cut),
        "rotated": (chest & above["rotated"], turn),
        "mirrored": (chest & above["mirrored"], "probability {mirrored:.2f}"),
        "inverted": (chest & above["inverted"], "probability {inverted:.2f}"),
    }
    return {name: _shown(frame, rows, text) for name, (rows, text) in chosen.items()}


def _shown(frame: pd.DataFrame, chosen: pd.Series, text: str) -> dict[int, str]:
    """Details of chosen rows."""
    return {index: text.format(**row) for index, row in frame[chosen].to_dict("index").items()}


def _outliers(frame: pd.DataFrame) -> dict[str, dict[int, str]]:
    """Images unlike the others of their scanner, of all images where the header names none, or names few."""
    size = frame.groupby("scanner")["scanner"].transform("size")
    group = frame["scanner"].where(size >= _LEAST_GROUP, "")
    if len(frame) < _LEAST_GROUP:
        return {}
    far = pd.Series(0.0, frame.index)
    for name in ("brightness", "contrast", "spread"):
        away = (frame[name] - frame.groupby(group)[name].transform("median")).abs()
        deviation = away.groupby(group).transform("median").clip(lower=_LEAST_DEVIATION) * 1.4826
        far = far.combine(away / deviation, max)
    side = (frame["height"] * frame["width"]) ** 0.5
    ratio = side / side.groupby(group).transform("median")
    ratio = ratio.combine(1 / ratio, max)
    exposed = far[far > THRESHOLDS["exposure"]]
    sized = ratio > THRESHOLDS["resolution"]
    return {
        "exposure": {
            row: f"{value:.1f} deviations from the median" for row, value in exposed.items()
        },
        "resolution": _shown(frame, sized, "{width} x {height} pixels"),
    }


def _rank(section: str) -> int:
    """Sections that images are kept in come first."""
    return _PRIORITY.index(section) if section in _PRIORITY else len(_PRIORITY)


def _duplicates(
    frame: pd.DataFrame, pairs: Iterable[tuple[int, int, float]]
) -> dict[str, dict[int, str]]:
    """Images that another one, which is kept, has the bytes or the picture of; crossings of splits and patients."""
    sick = frame["abnormal"] == 1 if "abnormal" in frame else pd.Series(False, frame.index)
    # of two in one section, what may show disease is kept
    order = sorted(frame.index, key=lambda i: (_rank(frame["section"][i]), not sick[i], i))
    ranked = frame.loc[order]
    firsts = ranked.index.to_series().groupby(ranked["digest"]).transform("first")
    exact = {i: _relation(frame, i, kept) for i, kept in firsts.items() if i != kept}
    near: dict[int, str] = {}
    place = {index: number for number, index in enumerate(order)}
    ordered = sorted(pairs, key=lambda pair: max(place[pair[0]], place[pair[1]]))
    for one, other, correlation in ordered:
        kept, left = sorted((one, other), key=place.__getitem__)
        if not {kept, left} & exact.keys() and left not in near and kept not in near:
            near[left] = f"{_relation(frame, left, kept)}, correlation {correlation:.4f}"
    return {"exact_duplicate": exact, "near_duplicate": near}


def _relation(frame: pd.DataFrame, index: int, kept: int) -> str:
    """What is to be known of a duplicate of an image."""
    own, other = frame.loc[index], frame.loc[kept]
    text = f"as {other['image']}"
    if own["section"] != other["section"]:
        text += f", in another split ({other['section']})"
    if own["patient"] and other["patient"] and own["patient"] != other["patient"]:
        text += ", of another patient"
    return text


def _split_patients(frame: pd.DataFrame) -> dict[int, str]:
    """Images of patients whom a section of higher rank has, too."""
    known = frame[frame["patient"] != ""]
    sections = known.groupby("patient")["section"].unique()
    keeping = known["patient"].map(sections.map(lambda names: min(names, key=_rank)))
    crossing = known["section"] != keeping
    return {index: f"also in {section}" for index, section in keeping[crossing].items()}
