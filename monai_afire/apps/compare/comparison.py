# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Comparison of encoders on a list of images: from names to a page, a table and numbers."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.compare.cohort import EVALUATE, LEARN, Cohort, read_cohort
from monai_afire.apps.compare.compare_page import embedding_maps, write_page
from monai_afire.apps.compare.encoders import ComparedEncoder, compared_encoder, encode_images
from monai_afire.apps.compare.questions import (
    CONTROLS,
    PIXELS,
    classification,
    controls,
    detection,
    nodule_items,
    unasked_settings,
)
from monai_afire.apps.compare.results import results_table, verdict
from monai_afire.metrics.principal_components import pixel_components
from monai_afire.networks.nets.raw_pixels import RawPixels
from monai_afire.utils.distributed import by_main_rank
from monai_afire.utils.files import check_writable, write_text
from monai_afire.utils.formatting import json_safe

_PIXELS = (64, 64)
_EXPOSURE = "exposure"  # pixels as they are, for darkness and sharpness


def compare_encoders(
    datalist: str | os.PathLike,
    encoders: Sequence[str],
    output_dir: str | os.PathLike = "compare",
    dataset_dir: str | None = None,
    section: str | None = None,
    field_of_view: str = "lungs",
) -> str:
    """
    Compare encoders with each other and with simple baselines on labeled images.

    Writes ``compare.html`` (a page that needs no network), ``compare.json`` and ``compare.csv`` (the numbers).

    Args:
        datalist: JSON file with sections of labeled images, or a CSV table, see :func:`read_cohort`.
        encoders: words of :func:`compared_encoder`.
        output_dir: where the results go, a new or empty folder.
        dataset_dir: folder that names in the list start from; None for that of the list.
        section: that is evaluated; None for "test", or "validation" without one.
        field_of_view: "lungs" for the square around them, in frontal chest radiographs, or "image"; for pixels, too.

    Returns:
        The result in a sentence.

    Raises:
        DatalistError: when the list or an image cannot be used.
        ValueError: for an encoder that cannot be built, or that has the name of another one.
        FileExistsError: when the folder is not empty.
        OSError: when the results cannot be written.

    Example:
        >>> import tempfile
        >>> from monai_afire.data.phantom import export_phantom
        >>> folder = tempfile.mkdtemp()
        >>> datalist = export_phantom(folder, {"training": 40, "test": 20}, image_size=64, progress=False)
        >>> compare_encoders(datalist, ["released"], f"{folder}/compare")
        'These 20 images are of too few patients ...'
    """
    compared = [compared_encoder(word, field_of_view) for word in encoders]
    names = Counter([PIXELS, _EXPOSURE, *CONTROLS, *(each.name for each in compared)])
    if taken := [name for name, count in names.items() if count > 1]:
        raise ValueError(
            f"encoder {taken[0]!r}: the name is taken; give each its own, as in mine=model.pt"
        )
    folder = by_main_rank(_empty_folder, output_dir)
    cohort = read_cohort(Path(datalist), folder, dataset_dir, section)
    pixels = RawPixels(1, _PIXELS, _PIXELS)
    exposure = ComparedEncoder(_EXPOSURE, pixels, standardize=False, field_of_view="image")
    seen = [
        ComparedEncoder(PIXELS, pixels, standardize=True, field_of_view=field_of_view),
        *compared,
    ]
    stored = folder / "tokens"  # while the comparison lasts
    stored.mkdir(exist_ok=True)
    try:
        tokens = encode_images(cohort.items, [exposure, *seen], stored, "images")
        painted = encode_images(nodule_items(cohort), seen, stored, "painted nodules")
        return by_main_rank(_report, folder, cohort, seen, tokens, painted)
    finally:
        shutil.rmtree(stored, ignore_errors=True)


def _empty_folder(output_dir: str | os.PathLike) -> Path:
    """The folder of the results, which must hold nothing."""
    folder = check_writable(output_dir)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: choose another folder by --output_dir")
    return folder


def _report(
    folder: Path,
    cohort: Cohort,
    seen: Sequence[ComparedEncoder],
    tokens: Mapping[str, NDArray],
    painted: Mapping[str, NDArray],
) -> str:
    """Ask all questions and write the answers; returns the sentence."""
    features = {each.name: tokens[each.name].mean(1, dtype=np.float32) for each in seen}
    features[PIXELS] = pixel_components(features[PIXELS], cohort.rows(LEARN))
    pictures = tokens[_EXPOSURE].astype(np.float32).reshape(-1, *_PIXELS)
    has_normals = len(cohort.painted_rows()) > 0
    answers = list(controls(cohort, pictures)) if has_normals else []
    for each in tqdm(seen, desc="questions", unit="encoder"):
        answers += classification(cohort, each.name, features[each.name])
        if has_normals:
            own = tokens[each.name], painted[each.name]
            answers += detection(cohort, each.name, each.encoder.grid_size, *own)
    table = results_table(cohort, tqdm(answers, desc="intervals", unit="answer"))
    facts = _facts(cohort, table, seen[0].field_of_view)
    numbers = json_safe({**facts, "results": table.to_dict("records")})
    write_text(folder / "compare.json", json.dumps(numbers, indent=1))
    write_text(folder / "compare.csv", table.to_csv(index=False))
    write_page(folder / "compare.html", table, _maps(cohort, features), **facts)
    return facts["sentence"]


def _facts(cohort: Cohort, table: pd.DataFrame, field_of_view: str) -> dict[str, Any]:
    """What was compared, and the sentence; an AUC takes images that have a finding, and others that do not."""
    rows = cohort.rows(EVALUATE)
    labels, names = cohort.labels[rows], np.array(cohort.names, dtype=object)
    answered = (labels == 1).any(0) & (labels == 0).any(0)
    return {
        "sentence": verdict(table, len(rows)),
        "images": len(rows),
        "patients": cohort.table["patient"].iloc[rows].nunique(),
        "findings": names[answered].tolist(),
        "unanswered": names[~answered].tolist(),
        "learned_from": len(cohort.items) - len(rows),
        "field_of_view": field_of_view,
        "unasked": unasked_settings(cohort),
    }


def _maps(cohort: Cohort, features: Mapping[str, NDArray]) -> list[dict[str, Any]]:
    """Maps of the evaluated images, colored by what they do not have in common."""
    evaluated = cohort.table.iloc[cohort.rows(EVALUATE)]
    several = [by for by in ("label", "scanner", "view") if evaluated[by].nunique() > 1]
    groups = {by: evaluated[by].tolist() for by in several}
    maps = [embedding_maps(name, own[evaluated.index], groups) for name, own in features.items()]
    return [one for own in maps for one in own]
