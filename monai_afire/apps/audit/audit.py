# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Audit of a folder or a datalist: from files to a page, a table, a summary and a cleaned datalist."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from monai_afire.apps.audit.audit_checks import CHECKS, EXCLUDED, THRESHOLDS, find, published_rates
from monai_afire.apps.audit.duplicates import near_duplicates
from monai_afire.apps.audit.measurements import measure_images
from monai_afire.apps.pages import render_page, thumbnail_url
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.data.datalist.loading import load_radiograph_datalist, read_sections
from monai_afire.data.datalist.patients import file_patients
from monai_afire.data.datalist.scanning import mark_results
from monai_afire.utils.distributed import by_main_rank
from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    path_from,
    refuse_existing,
    write_text,
)
from monai_afire.utils.text import harmless, known_text

FROM_PIXELS = "(from pixels)"
_SECTIONS = {"train": "training", "val": "validation", "valid": "validation", "testing": "test"}
_SPLITS = ("training", "validation", "test")
_RESULTS = ("audit.html", "audit.csv", "audit.json", "datalist.json")

Findings = Mapping[str, Mapping[int, str]]  # name of a check -> row -> detail


def audit_images(
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | os.PathLike | None = None,
    output_dir: str | os.PathLike = "audit",
    exclude: Collection[str] = EXCLUDED,
    num_workers: int = 0,
    shown: int = 24,
    fail_on: Collection[str] = (),
) -> dict[str, Any]:
    """
    Check whether images are fit for training. No image is changed or deleted.

    Writes ``audit.html`` (a page that needs no network), ``audit.csv`` (one row per image), ``audit.json`` (the
    numbers) and ``datalist.json`` (without the excluded images; names relative to ``dataset_dir``). Views that no
    header names are told by the picture, and said to be "from pixels". A folder with those of an earlier call is
    refused.

    Args:
        dataset_dir: folder of radiographs, or that the names of the datalist start from. Subfolders "train", "val" and
            "test" are sections.
        datalist: JSON file with sections of images; None searches the folder.
        output_dir: where the results go.
        exclude: checks whose findings leave an image out of the cleaned datalist.
        num_workers: processes that read files; 0 reads in this one.
        shown: largest number of pictures per check on the page.
        fail_on: checks whose images are named in "failed" of the numbers.

    Returns:
        The numbers of ``audit.json``: "images" and how many are "kept"; "findings" and, of images that are labeled
        "abnormal", "abnormal_findings" (name of a check -> number of images; most of these are false alarms where a
        check goes by the picture); "identifying_fields", "scanners" and "views" (name -> number of images); "failed"
        (name of a check of ``fail_on`` -> name of an image -> detail); "rates", the published ones of a check.

    Raises:
        DatalistError: when the folder or the list cannot be used.
        ValueError: when a check has another name.
        FileExistsError: when the folder has the results of an earlier call.
        OSError: when the results cannot be written.

    Example:
        >>> import tempfile
        >>> from monai_afire.data.phantom import export_phantom
        >>> folder = tempfile.mkdtemp()
        >>> datalist = export_phantom(folder, num_patients={"test": 2}, image_size=64, progress=False)
        >>> audit_images(datalist=datalist, output_dir=f"{folder}/audit")["findings"]["unreadable"]
        0
    """
    names = [check.name for check in CHECKS]
    if unknown := {*exclude, *fail_on}.difference(names):
        raise ValueError(f"no checks {sorted(unknown)}: choose from {', '.join(names)}")
    audited = _find_images(dataset_dir, datalist)
    folder = check_writable(output_dir)
    remedy = "choose another folder by --output_dir, or delete the results"
    by_main_rank(partial(refuse_existing, *(folder / name for name in _RESULTS), remedy=remedy))
    mark_results(folder, [item["image"] for item in audited.items])
    frame, pictures = measure_images(audited.items, num_workers)
    return by_main_rank(_report, audited, frame, pictures, folder, exclude, shown, fail_on)


class _Audited(NamedTuple):
    """Items with "section" and absolute "image", the folder that names start from, and the entries of the datalist."""

    items: list[dict[str, Any]]
    base: Path
    datalist: dict[str, Any]


def _report(
    audited: _Audited,
    frame: pd.DataFrame,
    pictures: NDArray[np.float16],
    folder: Path,
    exclude: Collection[str],
    shown: int,
    fail_on: Collection[str],
) -> dict[str, Any]:
    """Turn the measurements into findings, and write them."""
    frame = frame.join(_origins(audited.items, audited.base))
    frame["view"] = _views(frame)
    found = find(frame, _near_duplicates(frame, pictures))
    excluded = {index for name in exclude for index in found[name]}
    frame["kept"] = (~frame.index.isin(excluded)).astype(int)
    summary = _summary(frame, found, fail_on)
    _write_table(frame, found, folder / "audit.csv")
    write_text(folder / "audit.json", json.dumps(summary, indent=1))
    cleaned = {**audited.datalist, **_cleaned(audited.items, frame)}
    write_text(folder / "datalist.json", json.dumps(cleaned, indent=1))
    picture = lru_cache(maxsize=256)(thumbnail_url)  # an image may have several findings
    page = render_page(
        "monai_afire.apps.audit",
        "audit.html",
        checks=CHECKS,
        summary=summary,
        found=found,
        names=frame["image"],
        picture=lambda row: picture(audited.items[row]["image"]),
        exclude=exclude,
        shown=shown,
    )
    write_text(folder / "audit.html", page)
    return summary


def _near_duplicates(
    frame: pd.DataFrame, pictures: NDArray[np.float16]
) -> list[tuple[int, int, float]]:
    """Pairs of rows with the same picture, and its correlation."""
    usable = np.flatnonzero((frame["unreadable"] == "") & (frame["spread"] >= THRESHOLDS["spread"]))
    pairs = near_duplicates(pictures[usable], THRESHOLDS["correlation"])
    return [(int(usable[one]), int(usable[other]), value) for one, other, value in pairs]


def _summary(frame: pd.DataFrame, found: Findings, fail_on: Collection[str]) -> dict[str, Any]:
    """The numbers of the findings."""
    abnormal = frame["abnormal"] == 1
    names = frame["image"]
    return {
        "images": len(frame),
        "kept": int(frame["kept"].sum()),
        "findings": {name: len(rows) for name, rows in found.items()},
        "abnormal": int(abnormal.sum()),
        "abnormal_findings": {name: int(abnormal[[*rows]].sum()) for name, rows in found.items()},
        "identifying_fields": dict(
            Counter(_filled(frame["identifying"].str.split(", ").explode()))
        ),
        "scanners": _filled(frame["scanner"]).value_counts().to_dict(),
        "views": _filled(frame["view"]).value_counts().to_dict(),
        "failed": {
            each: {names[row]: text for row, text in found[each].items()} for each in fail_on
        },
        "rates": published_rates(),
    }


def _filled(names: pd.Series) -> pd.Series:
    """Those that are not ""."""
    return names[names != ""]


def _find_images(
    dataset_dir: str | os.PathLike | None, datalist: str | os.PathLike | None
) -> _Audited:
    """The images of a datalist, or of a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # leaks and unknown patients: findings of the audit
        if not datalist:
            return _images_of_folder(dataset_dir)
        return _images_of_datalist(dataset_dir, Path(datalist).expanduser())


def _images_of_folder(dataset_dir: str | os.PathLike | None) -> _Audited:
    items = load_radiograph_datalist(dataset_dir, None, "all")
    base = _absolute(dataset_dir or "")
    for item in items:
        part = Path(os.path.relpath(item["image"], base)).parts[0].lower()
        section = _SECTIONS.get(part, part)
        item["section"] = section if section in _SPLITS else "training"
    return _Audited(items, base, {})


def _images_of_datalist(dataset_dir: str | os.PathLike | None, source: Path) -> _Audited:
    content = read_sections(source)
    items: list[dict[str, Any]] = []
    for name, listed in content.items():
        if _is_section(name, listed):
            loaded = load_radiograph_datalist(dataset_dir, source, name, check_files=False)
            items.extend({**item, "section": name} for item in loaded)
    return _Audited(items, _absolute(dataset_dir or source.parent), content)


def _absolute(folder: str | os.PathLike) -> Path:
    return Path(os.path.abspath(os.path.expanduser(os.fspath(folder))))


def _is_section(name: str, listed: Any) -> bool:
    """Whether an entry of a datalist lists images: others name classes or landmarks."""
    if not isinstance(listed, list) or not listed:
        return False
    return name in _SPLITS or (isinstance(listed[0], dict) and "image" in listed[0])


def _origins(items: Sequence[Mapping[str, Any]], base: Path) -> pd.DataFrame:
    """Name, section, patient ("" if unknown) and label of each item."""
    paths = [item["image"] for item in items]
    names = [path_from(path, base) for path in paths]
    given = [known_text(item.get("patient_id")) for item in items]
    frame = pd.DataFrame({"image": names, "section": [item["section"] for item in items]})
    frame["patient"] = file_patients(paths, names, given=given)
    frame["patient"] = frame["patient"].where(frame["patient"] != frame["image"], "")
    return frame.assign(abnormal=[_labeled_abnormal(item) for item in items])


def _labeled_abnormal(item: Mapping[str, Any]) -> int:
    """1 for an image that is labeled with findings, 0 for others; labels are not checked here."""
    try:
        return int(abnormal_label(item) == 1)
    except DatalistError:
        return 0


def _views(frame: pd.DataFrame) -> pd.Series:
    """View by the header, else by the picture of a chest, "" for none."""
    chest = (
        (frame["unreadable"] == "")
        & (frame["spread"] >= THRESHOLDS["spread"])
        & (frame["not_chest"] <= THRESHOLDS["not_chest"])
        & (frame["other_view"] == "")
    )
    seen = np.where(frame["ap"] > 0.5, f"AP {FROM_PIXELS}", f"PA {FROM_PIXELS}")
    return frame["view"].where(frame["view"] != "", np.where(chest, seen, ""))


def _cleaned(items: Sequence[Mapping[str, Any]], frame: pd.DataFrame) -> dict[str, Any]:
    """Datalist of the images that are kept, with all keys of their items."""
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in frame["section"].unique()}
    for item, row in zip(items, frame.itertuples(), strict=True):
        if row.kept:
            entry = {**_seen_view(item, row.view), **item, "image": row.image}
            sections[entry.pop("section")].append(entry)
    return sections


def _seen_view(item: Mapping[str, Any], view: str) -> dict[str, str]:
    """The view of an item that has none, and where it comes from."""
    if known_text(item.get("view")) or not view:
        return {}
    name, _, source = view.partition(" ")
    return {"view": name, "view_source": source.strip("()") or "header"}


def _write_table(frame: pd.DataFrame, found: Findings, path: Path) -> None:
    """One row per image; no cell runs as a formula in a spreadsheet, none has a value of a header."""
    own = [{name: rows[i] for name, rows in found.items() if i in rows} for i in frame.index]
    table = frame[["image", "section", "width", "height", "view", "kept"]].assign(
        image=frame["image"].map(harmless),
        section=frame["section"].map(harmless),
        findings=[" ".join(texts) for texts in own],
        details=["; ".join(f"{name}: {text}" for name, text in texts.items()) for texts in own],
    )
    sides = table[["width", "height"]].astype("Int64")
    table[["width", "height"]] = sides.where(frame["unreadable"] == "")
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False, encoding="utf-8", errors="replace")
