# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Audit of a folder or a datalist: from files to a page, a table, a summary and a cleaned datalist."""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.data import DataLoader, Dataset
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.audit.audit_checks import CHECKS, EXCLUDED, THRESHOLDS, find, published_rates
from monai_afire.apps.audit.audit_page import write_page
from monai_afire.apps.audit.duplicates import near_duplicates
from monai_afire.apps.audit.measurements import MeasureRadiograph, lung_facts
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.data.datalist.loading import load_radiograph_datalist, read_sections
from monai_afire.data.datalist.patients import file_patients
from monai_afire.data.datalist.scanning import mark_results
from monai_afire.networks.nets.lung_finder import LungFinder
from monai_afire.networks.nets.pose_classifier import QUALITIES, PoseClassifier
from monai_afire.networks.nets.view_classifier import ViewClassifier
from monai_afire.utils.distributed import (
    all_gather_object,
    by_main_rank,
    global_rank,
    share_of,
    world_size,
)
from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    path_from,
    refuse_existing,
    write_text,
)
from monai_afire.utils.text import counted, first_few, harmless, known_text

_SECTIONS = {"train": "training", "val": "validation", "valid": "validation", "testing": "test"}
_SPLITS = ("training", "validation", "test")
FROM_PIXELS = "(from pixels)"
_BATCH = 64
_Measured = tuple[list[dict[str, Any]], torch.Tensor]  # rows and small pictures of a batch


@dataclass(frozen=True)
class AuditSummary:
    """
    Numbers of an audit.

    Args:
        images: how many were seen.
        kept: how many the cleaned datalist has.
        findings: name of a check -> number of images.
        abnormal: how many images are labeled with findings.
        abnormal_findings: name of a check -> how many of these it reports, most of them false alarms where a check
            goes by the picture.
        identifying_fields: name of a DICOM field -> number of files in which it is filled.
        scanners: by the headers -> number of images.
        views: "PA" and "AP" by the headers, or "PA (from pixels)" -> number of images.
        failed: name of a check of ``fail_on`` -> name of an image -> detail.
        rates: name of a check by the picture -> its published sensitivity and false alarms.
    """

    images: int
    kept: int
    findings: dict[str, int]
    abnormal: int
    abnormal_findings: dict[str, int]
    identifying_fields: dict[str, int]
    scanners: dict[str, int]
    views: dict[str, int] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)

    def refusal(self, shown: int = 5) -> str:
        """
        Which images fail a check of ``fail_on`` and why, "" for none.

        Args:
            shown: most images that are named of a check.
        """
        lines = []
        for name, images in self.failed.items():
            if images:
                texts = (f"{image} ({detail})" for image, detail in images.items())
                lines.append(f"{name}: {counted(len(images), 'image')}: {first_few(texts, shown)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        found = [
            f"{check.title}: {self.findings[check.name]:,}"
            for check in CHECKS
            if self.findings[check.name]
        ]
        return "\n".join([f"{self.kept:,} of {counted(self.images, 'image')} kept", *found])


def audit_images(
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | os.PathLike | None = None,
    output_dir: str | os.PathLike = "audit",
    exclude: Collection[str] = EXCLUDED,
    num_workers: int = 0,
    shown: int = 24,
    fail_on: Collection[str] = (),
) -> AuditSummary:
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
        The numbers.

    Raises:
        DatalistError: when the folder or the list cannot be used.
        ValueError: when a check has another name.
        FileExistsError: when the folder has the results of an earlier call.
        OSError: when the results cannot be written.

    Example:
        >>> import tempfile
        >>> from monai_afire.apps.phantom import export_phantom
        >>> folder = tempfile.mkdtemp()
        >>> datalist = export_phantom(folder, num_patients={"test": 2}, image_size=64, progress=False)
        >>> audit_images(datalist=datalist, output_dir=f"{folder}/audit").findings["unreadable"]
        0
    """
    if unknown := {*exclude, *fail_on} - {check.name for check in CHECKS}:
        raise ValueError(
            f"no checks {sorted(unknown)}: choose from {', '.join(check.name for check in CHECKS)}"
        )
    audited = _find_images(dataset_dir, datalist)
    folder = check_writable(output_dir)
    by_main_rank(_refuse_results, folder)
    mark_results(folder, [item["image"] for item in audited.items])
    frame, pictures = measure_images(audited.items, num_workers)
    return by_main_rank(_report, audited, frame, pictures, folder, exclude, shown, fail_on)


@dataclass(frozen=True)
class _Audited:
    """
    The images of an audit.

    Args:
        items: with "section" and absolute "image".
        base: folder that names start from.
        datalist: all entries of the datalist, such as names of classes; empty without one.
    """

    items: list[dict[str, Any]]
    base: Path
    datalist: dict[str, Any]


def _refuse_results(folder: Path) -> None:
    names = ("audit.html", "audit.csv", "audit.json", "datalist.json")
    remedy = "choose another folder by --output_dir, or delete the results"
    refuse_existing(*(folder / name for name in names), remedy=remedy)


def _report(
    audited: _Audited,
    frame: pd.DataFrame,
    pictures: NDArray[np.float16],
    folder: Path,
    exclude: Collection[str],
    shown: int,
    fail_on: Collection[str],
) -> AuditSummary:
    """Turn the measurements into findings, and write them."""
    items = audited.items
    frame = frame.join(_origins(items, audited.base))
    frame["view"] = _views(frame)
    found = find(frame, _near_duplicates(frame, pictures))
    kept = ~frame.index.isin([index for name in exclude for index in found[name]])
    summary = _summary(frame, found, int(kept.sum()), fail_on)
    _write_table(frame, found, kept, folder / "audit.csv")
    write_text(folder / "audit.json", json.dumps(asdict(summary), indent=1))
    cleaned = {**audited.datalist, **_cleaned(items, frame, kept)}
    write_text(folder / "datalist.json", json.dumps(cleaned, indent=1))
    paths = [item["image"] for item in items]
    write_page(summary, found, paths, list(frame["image"]), folder / "audit.html", exclude, shown)
    return summary


def _near_duplicates(
    frame: pd.DataFrame, pictures: NDArray[np.float16]
) -> list[tuple[int, int, float]]:
    """Pairs of rows with the same picture, and its correlation."""
    usable = np.flatnonzero((frame["unreadable"] == "") & (frame["spread"] >= THRESHOLDS["spread"]))
    pairs = near_duplicates(pictures[usable], THRESHOLDS["correlation"])
    return [(int(usable[one]), int(usable[other]), value) for one, other, value in pairs]


def _summary(
    frame: pd.DataFrame,
    found: Mapping[str, Mapping[int, str]],
    num_kept: int,
    fail_on: Collection[str],
) -> AuditSummary:
    """The numbers of the findings."""
    abnormal = frame["abnormal"] == 1
    fields = Counter(field for text in frame["identifying"] for field in text.split(", ") if text)
    return AuditSummary(
        images=len(frame),
        kept=num_kept,
        findings={name: len(rows) for name, rows in found.items()},
        abnormal=int(abnormal.sum()),
        abnormal_findings={name: int(abnormal[[*rows]].sum()) for name, rows in found.items()},
        identifying_fields=dict(fields),
        scanners=_occurrences(frame["scanner"]),
        views=_occurrences(frame["view"]),
        failed={
            name: {frame["image"][index]: text for index, text in found[name].items()}
            for name in fail_on
        },
        rates=published_rates(),
    )


def _occurrences(names: pd.Series) -> dict[str, int]:
    """How often each name occurs, the most frequent first; "" is none."""
    return {name: int(count) for name, count in names.value_counts().items() if name}


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
    patients = file_patients(
        paths, names, given=[known_text(item.get("patient_id")) for item in items]
    )
    known = [
        "" if patient == name else patient for patient, name in zip(patients, names, strict=True)
    ]
    sections = [item["section"] for item in items]
    abnormal = [_labeled_abnormal(item) for item in items]
    return pd.DataFrame(
        {"image": names, "section": sections, "patient": known, "abnormal": abnormal}
    )


def _views(frame: pd.DataFrame) -> list[str]:
    """View by the header, else by the picture of a chest, "" for none."""
    chest = (
        (frame["unreadable"] == "")
        & (frame["spread"] >= THRESHOLDS["spread"])
        & (frame["not_chest"] <= THRESHOLDS["not_chest"])
        & (frame["other_view"] == "")
    )
    seen = np.where(frame["ap"] > 0.5, "AP", "PA")
    rows = zip(frame["view"], seen, chest, strict=True)
    return [view or (f"{own} {FROM_PIXELS}" if is_chest else "") for view, own, is_chest in rows]


def _labeled_abnormal(item: Mapping[str, Any]) -> int:
    """1 for an image that is labeled with findings, 0 for others; labels are not checked here."""
    try:
        return int(abnormal_label(item) == 1)
    except DatalistError:
        return 0


def measure_images(
    items: Sequence[Mapping[str, Any]], num_workers: int
) -> tuple[pd.DataFrame, NDArray[np.float16]]:
    """
    Measure images. Each rank measures its share of the batches, and all must call it.

    Args:
        items: with "image", the path of a file.
        num_workers: processes that read files.

    Returns:
        One row per image, see :class:`MeasureRadiograph`, with the probabilities of the networks; and pictures
        ``(N, 32, 32)`` in [0, 1].
    """
    batches = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
    shares = all_gather_object(list(_measured(share_of(batches), num_workers)))
    measured = [shares[n % world_size()][n // world_size()] for n in range(len(batches))]
    rows, pictures = zip(*measured, strict=True)
    return pd.DataFrame(chain.from_iterable(rows)), torch.cat(pictures).numpy()


@torch.inference_mode()
def _measured(
    batches: Sequence[Sequence[Mapping[str, Any]]], num_workers: int
) -> Iterator[_Measured]:
    """Measurements of batches, one of which is in memory at a time."""
    networks = PoseClassifier.released(), LungFinder.released(), ViewClassifier.released()
    data = Dataset([item for batch in batches for item in batch], MeasureRadiograph())
    loader = DataLoader(data, batch_size=_BATCH, num_workers=num_workers, collate_fn=list)
    for batch in tqdm(loader, "audit", unit="batch", dynamic_ncols=True, disable=global_rank() > 0):
        small = torch.stack([row.pop("small") for row in batch])
        found = _probabilities(small, *networks)
        pictures = torch.nn.functional.avg_pool2d(small, 2)[:, 0].half()
        yield [{**row, **own} for row, own in zip(batch, found, strict=True)], pictures


def _probabilities(
    small: torch.Tensor, classifier: PoseClassifier, finder: LungFinder, views: ViewClassifier
) -> list[dict[str, float]]:
    """What the networks say of pictures ``(B, 1, 64, 64)``."""
    poses, qualities = classifier(small)
    poses = poses.softmax(1)
    columns = {
        "rotated": 1 - poses[:, 0] - poses[:, 4],
        "mirrored": poses[:, 4:].sum(1),
        "quarter_turns": poses.argmax(1) % 4,
        "ap": views(small)["ap"],
        **dict(zip(QUALITIES, qualities.sigmoid().T, strict=True)),
    }
    facts = {name: values.numpy() for name, values in columns.items()}
    return pd.DataFrame({**facts, **lung_facts(finder(small)[:, 0] > 0.5)}).to_dict("records")


def _cleaned(
    items: Sequence[Mapping[str, Any]], frame: pd.DataFrame, kept: Collection[bool]
) -> dict[str, Any]:
    """Datalist of the images that are kept, with all keys of their items."""
    sections: dict[str, list[dict[str, Any]]] = {
        str(name): [] for name in frame["section"].unique()
    }
    rows = zip(items, frame["image"], frame["view"], kept, strict=True)
    for item, name, view, is_kept in rows:
        if is_kept:
            found = {**_seen_view(item, view), **item, "image": name}
            sections[item["section"]].append(found)
    return {
        name: [{k: v for k, v in item.items() if k != "section"} for item in s]
        for name, s in sections.items()
    }


def _seen_view(item: Mapping[str, Any], view: str) -> dict[str, str]:
    """The view of an item that has none, and where it comes from."""
    if known_text(item.get("view")) or not view:
        return {}
    name, _, source = view.partition(" ")
    return {"view": name, "view_source": source.strip("()") or "header"}


def _write_table(
    frame: pd.DataFrame, found: Mapping[str, Mapping[int, str]], kept: Sequence[bool], path: Path
) -> None:
    """One row per image; no cell runs as a formula in a spreadsheet, none has a value of a header."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="replace") as file,
    ):
        table = csv.writer(file)
        table.writerow(
            ["image", "section", "width", "height", "view", "kept", "findings", "details"]
        )
        for index, row in enumerate(frame.to_dict("records")):
            own = {name: rows[index] for name, rows in found.items() if index in rows}
            details = "; ".join(f"{name}: {text}" for name, text in own.items())
            size = ("", "") if row["unreadable"] else (row["width"], row["height"])
            cells = [
                harmless(row["image"]),
                harmless(row["section"]),
                *size,
                row["view"],
                int(kept[index]),
            ]
            table.writerow([*cells, " ".join(own), details])
