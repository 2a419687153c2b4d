# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of all studies, written as HTML and JSON after each of them."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.report.page import report_page
from monai_afire.analysis.study import NothingToCompareError, Study, StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.utils.files import atomic_path, check_writable
from monai_afire.utils.formatting import json_safe

__all__ = ["property_report"]

logger = logging.getLogger(__name__)


def property_report(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    studies: Sequence[Study],
    output_dir: str | os.PathLike,
    title: str = "What the features know",
    facts: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[StudyResult]:
    """
    Ask all questions of all encoders, and write ``report.html`` and ``report.json``.

    The page is one file, pictures included, that needs nothing else to be read. Both files are written anew after each
    study, so that what is done is kept whatever happens to the next one. A study that needs what is not known of the
    images, or finds nothing in them to compare, is left out and named; one that fails does not stop the others, but
    this function afterwards.

    Args:
        encoders: by the names to show, side by side in every table.
        images: what to look at.
        studies: the questions, in the order of the report.
        output_dir: where to write; made if missing, and checked before any work.
        title: of the page.
        facts: how the numbers came about, e.g. weights, seed, version; shown on top and saved.
        progress: whether to show a progress bar.

    Returns:
        The results.

    Raises:
        OSError: when ``output_dir`` cannot be written to.
        RuntimeError: after the report is written, when a study failed; the first failure is its cause.

    Example:
        >>> import tempfile, torch
        >>> class Width:
        ...     needs = ()
        ...     def __call__(self, encoders, images):
        ...         table = pd.DataFrame({"width": {name: e.hidden_size for name, e in encoders.items()}})
        ...         return StudyResult("Width", "How wide are the tokens?", table)
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> folder = tempfile.mkdtemp()
        >>> _ = property_report({"ours": encoder}, StudyImages(torch.rand(2, 1, 32, 32)), [Width()], folder)
        >>> json.loads(Path(folder, "report.json").read_text())["studies"][0]["table"]
        {'ours': {'width': 24}}
    """
    folder = check_writable(output_dir)
    facts = {**(facts or {}), "encoders": ", ".join(encoders), "images": len(images.image)}
    results: list[StudyResult] = []
    remarks: list[str] = []
    failures: list[Exception] = []
    with tqdm(studies, desc="studies", unit="study", disable=not progress) as bar:
        for study in bar:
            name = type(study).__name__
            bar.set_postfix_str(name)
            if missing := images.missing(study.needs):
                remarks.append(f"{name} was left out: the images have no {' and no '.join(missing)}.")
            else:
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
        raise RuntimeError(f"{len(failures)} of {len(studies)} studies failed: {remarks}") from failures[0]
    return results


def _write(
    folder: Path, title: str, facts: Mapping[str, Any], results: Sequence[StudyResult], remarks: Sequence[str]
) -> None:
    with atomic_path(folder / "report.html") as temporary:
        temporary.write_text(report_page(title, facts, results, remarks), encoding="utf-8")
    content = {
        "title": title,
        "facts": dict(facts),
        "remarks": list(remarks),
        "studies": [
            {
                "title": result.title,
                "table": result.table.to_dict(orient="index"),
                "details": {caption: _rows(table) for caption, table in result.details.items()},
            }
            for result in results
        ],
    }
    with atomic_path(folder / "report.json") as temporary:
        temporary.write_text(json.dumps(json_safe(content), indent=2, default=str), encoding="utf-8")


def _rows(table: pd.DataFrame) -> list[dict[Any, Any]]:
    named = table if isinstance(table.index, pd.RangeIndex) else table.reset_index()
    return named.to_dict(orient="records")
