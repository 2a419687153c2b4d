# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Comparison of encoders on a list of images: from names to a page, a table and numbers."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.compare.cohort import JUDGE, LEARN, Cohort, read_cohort
from monai_afire.compare.controls import pixel_components
from monai_afire.compare.encoders import ComparedEncoder, Pixels, compared_encoder
from monai_afire.compare.page import embedding_maps, write_page
from monai_afire.compare.questions import Found, classification, controls, detection, nodule_items
from monai_afire.compare.results import BASELINES, PIXELS, results_table, verdict
from monai_afire.compare.tokens import encode_images
from monai_afire.utils.files import atomic_path, check_writable, mark_results
from monai_afire.utils.formatting import json_safe


def compare_encoders(
    datalist: str | os.PathLike,
    encoders: Sequence[str],
    output_dir: str | os.PathLike = "compare",
    dataset_dir: str | None = None,
    section: str | None = None,
    field_of_view: str = "lungs",
    num_bootstraps: int = 1000,
    num_workers: int = 0,
) -> str:
    """
    Compare encoders with each other and with simple baselines on labelled images.

    Writes ``compare.html`` (a page that needs no network), ``compare.json`` and ``compare.csv`` (the numbers), and
    ``tokens/``, from which the next call with the same images and encoders goes on.

    Args:
        datalist: JSON file with sections of labelled images, or a CSV table, see :func:`read_cohort`.
        encoders: words of :func:`compared_encoder`.
        output_dir: where the results go.
        dataset_dir: folder that names in the list start from; None for that of the list.
        section: that is judged; None for "test", or "validation" without one.
        field_of_view: "lungs" for the square around them, in frontal chest radiographs, or "image"; for pixels, too.
        num_bootstraps: samples of the patients.
        num_workers: processes that read images.

    Returns:
        The result in a sentence.

    Raises:
        DatalistError: when the list or an image cannot be used.
        ValueError: for an encoder that cannot be built, or that has the name of another one.
        OSError: when the results cannot be written.

    Example:
        >>> import tempfile
        >>> from monai_afire.data import export_phantom
        >>> folder = tempfile.mkdtemp()
        >>> datalist = export_phantom(folder, {"training": 40, "test": 20}, image_size=64, progress=False)
        >>> compare_encoders(datalist, ["released"], f"{folder}/compare", num_bootstraps=20)
        'On these 20 images ...'
    """
    compared = [compared_encoder(word, field_of_view) for word in encoders]
    names = Counter([*BASELINES, *(each.name for each in compared)])
    if taken := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"encoder {taken[0]!r}: the name is taken; give each its own, as in mine=model.pt")
    folder = check_writable(output_dir)
    cohort = read_cohort(datalist, folder, dataset_dir, section)
    mark_results(folder, [item["image"] for item in cohort.items])
    seen = [ComparedEncoder(PIXELS, Pixels(), True, field_of_view), *compared]
    exposure = ComparedEncoder("exposure", Pixels(), False, "image")
    tokens = encode_images(cohort.items, [exposure, *seen], check_writable(folder / "tokens"), num_workers)
    painted = encode_images(nodule_items(cohort), seen, folder / "tokens", num_workers, "painted nodules")
    features = {each.name: tokens[each.name].mean(1, dtype=np.float32) for each in compared}
    pixels, judged = tokens[PIXELS][..., 0].astype(np.float32), cohort.rows(JUDGE)
    features[PIXELS] = pixel_components(pixels, cohort.rows(LEARN))
    grids = {PIXELS: None, **{each.name: each.encoder.grid_size for each in compared}}
    table = results_table(cohort, _answers(cohort, features, tokens, painted, grids), num_bootstraps)
    facts = {
        "sentence": verdict(table, len(judged)),
        **{"images": len(judged), "patients": int(cohort.table["patient"][judged].nunique())},
        **{"learned_from": len(cohort.items) - len(judged), "findings": cohort.names, "field_of_view": field_of_view},
    }
    groups = {"label": cohort.label_groups(), **{name: cohort.table[name].tolist() for name in ("scanner", "view")}}
    groups = {by: [own[row] for row in judged] for by, own in groups.items()}
    maps = [each for name in features for each in embedding_maps(name, features[name][judged], groups)]
    write_page(folder / "compare.html", table, maps, **facts)
    with atomic_path(folder / "compare.csv") as temporary:
        table.to_csv(temporary, index=False)
    with atomic_path(folder / "compare.json") as temporary:
        temporary.write_text(json.dumps(json_safe({**facts, "results": table.to_dict("records")}), indent=1))
    return str(facts["sentence"])


@torch.inference_mode()
def _answers(
    cohort: Cohort,
    features: Mapping[str, NDArray],
    tokens: Mapping[str, NDArray],
    painted: Mapping[str, NDArray],
    grids: Mapping[str, Any],
) -> Iterator[tuple[str, Found]]:
    """What each baseline and encoder answers to each question."""
    yield from controls(cohort, tokens["exposure"].astype(np.float32).reshape(len(cohort.items), *Pixels().img_size))
    for name in tqdm(features, desc="questions", unit="encoder"):
        for found in classification(cohort, features[name]):
            yield name, found
        if len(painted[name]):
            for found in detection(cohort, tokens[name], painted[name], grids[name]):
                yield name, found
