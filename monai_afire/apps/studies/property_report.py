# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The property report: studies of encoders on images, written as one HTML page and a JSON file."""

from __future__ import annotations

import copy
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from monai_afire.apps.pages import render_page
from monai_afire.apps.results.pictures.style import figure_url
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.study import NothingToCompareError, StudyResult
from monai_afire.data.datalist.scanning import mark_results
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.networks.weights.checkpoint_files import read_description
from monai_afire.networks.weights.description import TASKS
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.networks.weights.weight_loading import load_encoder_weights
from monai_afire.utils.files import check_writable, write_text
from monai_afire.utils.formatting import json_safe

Study = Callable[[Mapping[str, RadiographEncoder], StudyImages], StudyResult]

logger = logging.getLogger(__name__)


def encoders_of(
    encoder: RadiographEncoder,
    weights: Mapping[str, str | None],
    branch: str = "teacher",
    device: torch.device | str = "cpu",
) -> dict[str, RadiographEncoder]:
    """
    Copies of an encoder with different weights, to be compared, in evaluation mode.

    Args:
        encoder: the architecture; untouched.
        weights: by the name to show, a file for :func:`monai_afire.networks.load_encoder_weights` (of AFiRe, PEAC, ACE,
            timm, DINO, MAE, Hugging Face), or None for the encoder as it is: untrained.
        branch: "teacher" or "student", for files that hold both.
        device: where the encoders work.

    Raises:
        ValueError: for a file that does not fit the architecture.
    """
    named = {}
    for name, path in weights.items():
        named[name] = copy.deepcopy(encoder)
        if path is not None:
            load_encoder_weights(named[name], path, branch=branch)
        named[name].to(device).eval()
    return named


def classifiers_of(
    weights: Mapping[str, str], device: torch.device | str = "cpu"
) -> dict[str, TransferClassifier]:
    """
    Classifiers that were fine-tuned by the bundle ``radiograph_classification``, to be compared, in evaluation mode.

    Args:
        weights: the file of each by the name to show.
        device: where the classifiers work.

    Raises:
        ValueError: when a file is missing or holds no classifier.
    """
    hint = "fine-tune with bundles/radiograph_classification first"
    task = TASKS["TransferClassifier"]
    return {name: ModelFile(path, task, hint).build().to(device) for name, path in weights.items()}


def first_described(weights: Mapping[str, str | None]) -> str:
    """
    The file that says how the encoders of a report are built, and how their images are pre-processed.

    Args:
        weights: as in :func:`encoders_of`.

    Returns:
        The first file of this package; without one, the first file.

    Raises:
        ValueError: when there is no file, or the files standardize the contrast differently.

    Example:
        >>> first_described({"untrained": None, "DINO": "dino.pth"})
        'dino.pth'
    """
    files = [path for path in weights.values() if path]
    if not files:
        example = '{"AFiRe": "model.pt", "untrained": None}'
        raise ValueError(f"no file is named: give weights, e.g. {example}")
    found = {path: description for path in files if (description := read_description(path))}
    known = {path: each.preprocessing for path, each in found.items() if each.preprocessing}
    standardize = {path: each["standardize"] for path, each in known.items()}
    if len(set(standardize.values())) > 1:
        differ = f"these weights want the contrast of images standardized and not: {standardize}"
        raise ValueError(f"{differ}; give them reports of their own")
    return next(iter(found), files[0])


def property_report(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    studies: Sequence[Study],
    output_dir: str | os.PathLike,
    title: str = "What the features know",
    facts: Mapping[str, Any] | None = None,
) -> list[StudyResult]:
    """
    Ask all questions of all encoders, and write ``report.html`` and ``report.json``.

    The page is one file, pictures included, that needs nothing else to be read. Both files are written anew after each
    study, so that what is done is kept whatever happens to the next one. A study that needs what is not known of the
    images, or finds nothing in them to compare, is left out and named; one that fails does not stop the others, but
    this function afterwards.

    Args:
        encoders: by the names to show, side by side in every table.
        images: of the studies.
        studies: functions of encoders and images, in the order of the report; settings by ``functools.partial``.
        output_dir: where to write; made if missing, and checked before any work.
        title: of the page.
        facts: how the numbers came about, e.g. weights, seed, version; shown at the end and saved.

    Raises:
        OSError: when ``output_dir`` cannot be written to.
        RuntimeError: after the report is written, when a study failed; the first failure is its cause.

    Example:
        >>> import tempfile, torch
        >>> def width_study(encoders, images):
        ...     table = pd.DataFrame({"width": {name: e.hidden_size for name, e in encoders.items()}})
        ...     return StudyResult("Width", "How wide are the tokens?", table)
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> folder = tempfile.mkdtemp()
        >>> _ = property_report({"ours": encoder}, StudyImages(torch.rand(2, 1, 32, 32)), [width_study], folder)
        >>> json.loads(Path(folder, "report.json").read_text())["studies"][0]["table"]
        {'ours': {'width': 24}}
    """
    folder = check_writable(output_dir)
    mark_results(folder, [])
    facts = {**(facts or {}), "encoders": ", ".join(encoders), "images": len(images.image)}
    results: list[StudyResult] = []
    remarks: list[str] = []
    failures: list[Exception] = []
    bar = tqdm(studies, desc="studies", unit="study")
    for study in bar:
        name = (study.func if isinstance(study, partial) else study).__name__
        bar.set_postfix_str(name)
        started = time.perf_counter()
        try:
            results.append(study(encoders, images))
            facts[f"seconds of {name}"] = round(time.perf_counter() - started, 1)
        except NothingToCompareError as reason:
            remarks.append(f"{name} was left out: {reason}.")
        except Exception as error:  # the other studies are worth having
            failures.append(error)
            remarks.append(f"{name} failed: {error}")
            logger.exception(f"{name} failed, going on with the next study")
        _write(folder, title, facts, results, remarks)
    logger.info(f"report: {folder / 'report.html'} (numbers: report.json beside it)")
    if failures:
        number = f"{len(failures)} of {len(studies)} studies failed"
        raise RuntimeError(f"{number}: {remarks}") from failures[0]
    return results


def _write(
    folder: Path,
    title: str,
    facts: Mapping[str, Any],
    results: Sequence[StudyResult],
    remarks: Sequence[str],
) -> None:
    """The page and its numbers."""
    shown = {"title": title, "facts": facts, "studies": results, "remarks": remarks}
    filters = {"table": _html, "picture": figure_url}
    page = render_page("monai_afire.apps.studies", "report.html", **shown, **filters)
    write_text(folder / "report.html", page)
    studies = [
        {
            "title": result.title,
            "table": result.table.to_dict(orient="index"),
            "details": {caption: _rows(table) for caption, table in result.details.items()},
        }
        for result in results
    ]
    content = json_safe({**shown, "studies": studies})
    write_text(folder / "report.json", json.dumps(content, indent=2, default=str))


def _rows(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """Rows with the names of the index, if it has some."""
    named = table if isinstance(table.index, pd.RangeIndex) else table.reset_index()
    return named.to_dict(orient="records")


def _html(table: pd.DataFrame) -> str:
    """A table in HTML, in which long names may break after an underscore."""
    named = not isinstance(table.index, pd.RangeIndex)
    broken = table.rename(columns=lambda name: str(name).replace("_", "_\N{ZERO WIDTH SPACE}"))
    return broken.to_html(index=named, border=0, float_format=_number, na_rep="not defined")


def _number(value: Any) -> str:
    """Three digits that count, whole numbers as they are."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
