# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights that have never seen a radiograph do not answer for patients."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.apps.runs.door import option_text, run_text
from monai_afire.data.datalist.drawn_images import is_drawn
from monai_afire.networks.weights.description import KNOWS_PHANTOMS, PHANTOMS
from monai_afire.networks.weights.model_file import ModelFile, read_description
from monai_afire_cli.words import passed_word

__all__ = ["are_of_phantoms", "checked_items"]

# steps that make a network of radiographs, where it is not train.json alone
_STEPS = {
    "anomaly detector": ("train", "finetune_anomaly", "fit_encoder"),
}
_SETTINGS = {"anomaly detector": {"encoder_weights": "released", "field_of_view": "lungs"}}
_LABELED = ("classifier", "segmenter", "landmark detector")


def are_of_phantoms(path: str | os.PathLike) -> bool:
    """
    Whether a file of weights says that it was trained on drawn phantoms alone.

    Args:
        path: of the file.

    Returns:
        False, too, where the file does not say it or is missing.

    Example:
        >>> are_of_phantoms("no/model.pt")
        False
    """
    description = read_description(path)
    return description is not None and description.trained_on == PHANTOMS


def checked_items(
    model_file: ModelFile,
    items: Sequence[Mapping[str, Any]],
    phantom_weights: bool = False,
    bundle_root: str | os.PathLike | None = None,
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | os.PathLike | None = None,
) -> Sequence[Mapping[str, Any]]:
    """
    Refuse radiographs for a network that was trained on drawn phantoms alone, before anything is written.

    Args:
        model_file: of the network; one that does not say what it was trained on is not refused.
        items: what the network is going to be used on, each with "image", the path of a file.
        phantom_weights: True allows it.
        bundle_root: folder of the bundle, for a command that trains its network on radiographs; None for none.
        dataset_dir: folder of the radiographs, for that command.
        datalist: list of them, for that command.

    Returns:
        The items.

    Raises:
        ValueError: when an image is no phantom; the message names file, image and remedy.

    Example:
        >>> checked_items(ModelFile("no/model.pt"), [{"image": "a.dcm"}], phantom_weights=True)
        [{'image': 'a.dcm'}]
    """
    if phantom_weights or model_file.trained_on != PHANTOMS:
        return items
    other = next((item["image"] for item in items if not is_drawn(item["image"])), None)
    if other is not None:
        reason = f"{model_file.path} {KNOWS_PHANTOMS}, and {other} is none"
        remedy = model_file.hint or "take other weights"
        if bundle_root is not None:
            bundle, task = Path(bundle_root), str(model_file.task)
            command = _training_command(bundle, task, dataset_dir, datalist)
            remedy = f"train it on your own images ({command}){_released(bundle, task)}"
        raise ValueError(f"{reason}: {remedy}; --phantom_weights True allows it")
    return items


def _training_command(
    bundle: Path,
    task: str,
    dataset_dir: str | os.PathLike | None,
    datalist: str | os.PathLike | None,
) -> str:
    """What to type for a network of one's own images."""
    files = [str(bundle / "configs" / f"{step}.json") for step in _STEPS.get(task, ("train",))]
    options = {"bundle_root": str(bundle), **_SETTINGS.get(task, {})}
    if dataset_dir:
        options["dataset_dir"] = os.fspath(dataset_dir)
    if datalist:
        options["datalist"] = os.fspath(datalist)
    elif task in _LABELED:
        options["datalist"] = "LABELS.json"
    return run_text(files, {name: passed_word(name, word) for name, word in options.items()})


def _released(bundle: Path, task: str) -> str:
    """The rest of a sentence: the bundle's released model for the same task, or that it has none."""
    for path in sorted((bundle / "released").glob("*")):
        description = read_description(path)
        if description is not None and description.task == task:
            return f", or take the released one ({option_text('ckpt_path', str(path))})"
    own = read_description(bundle / "models" / "model.pt")
    if own is not None and own.task == task and own.trained_on != PHANTOMS:
        return ", or leave --weights_of and --ckpt_path out for those of radiographs that come with the bundle"
    return "; no weights of radiographs come with this bundle"
