# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weights that a run uses: by the name of the run that made them, and for radiographs only if they know some."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.apps.runs.door import option_text, run_text
from monai_afire.data.datalist.drawn_images import is_drawn
from monai_afire.networks.weights.description import KNOWS_PHANTOMS, PHANTOMS
from monai_afire.networks.weights.model_file import ModelFile, read_description
from monai_afire.networks.weights.released_files import weights_file
from monai_afire_cli.options.words import passed_word
from monai_afire_cli.runs.run_records import LATEST, MODEL_OF_RUN, newest_run, runs_of
from monai_afire_cli.runs.weights_of import no_such_run, no_weights, steps_to, without_weights

__all__ = ["are_of_phantoms", "checked_items", "run_weights"]

# what comes behind the steps to a network, and its settings, where a released encoder is only fitted to radiographs
_FITTING = {"anomaly detector": ("fit_encoder",)}
_SETTINGS = {"anomaly detector": {"encoder_weights": "released", "field_of_view": "lungs"}}
_LABELED = ("classifier", "segmenter", "landmark detector")


def run_weights(
    run: str | None,
    bundle: str,
    task: str | None = None,
    otherwise: str | None = None,
    released: str | None = None,
    images: Sequence[Any] | None = None,
) -> str | None:
    """
    File of the weights of a run.

    Args:
        run: "latest", the name of a run of the bundle, or a path: of a run's folder or of a file. None for no run.
        bundle: folder or name of the bundle.
        task: of the network; "latest" is the latest run that has such a network. None for any.
        otherwise: file where no run is named.
        released: file in the place of ``otherwise``, for radiographs, where that was trained on phantoms or is missing.
        images: what names the user's images, None for each that is not given: without any, they are phantoms. None for
            radiographs.

    Returns:
        The file.

    Raises:
        FileNotFoundError: when there is no such run; the message names those that there are.

    Example:
        >>> run_weights(None, "afire", otherwise="released")
        'released'
    """
    if run is None:
        are_phantoms = images is not None and not any(images)
        if released is None or are_phantoms or _knows_radiographs(otherwise):
            return otherwise
        return released
    own = runs_of(bundle) / run
    command = run_text([f"{bundle}/configs/{step}.json" for step in steps_to(task)], {})
    if run == LATEST:
        newest = newest_run(own.parent, lambda folder: _has_weights(folder, task))
        if newest is None:
            raise FileNotFoundError(f"--weights_of {no_weights(own.parent, task, command)}")
        return str(newest / MODEL_OF_RUN)
    if own.is_dir():
        return _weights_in(own, command)
    if Path(run).exists():
        path = weights_file(run)
        return _weights_in(path, command) if path.is_dir() else str(path)
    raise FileNotFoundError(f"--weights_of {no_such_run(run, own.parent)}")


def _weights_in(folder: Path, command: str) -> str:
    """File of the weights in the folder of a run, where the run has written some."""
    if problem := without_weights(folder, command):
        raise FileNotFoundError(f"--weights_of {problem}")
    return str(folder / MODEL_OF_RUN)


def _knows_radiographs(path: str | None) -> bool:
    """Whether there is a file of weights that does not say that it was trained on phantoms."""
    return path is not None and Path(path).is_file() and not are_of_phantoms(path)


def _has_weights(folder: Path, task: str | None) -> bool:
    description = read_description(folder / MODEL_OF_RUN)
    return description is not None and task in (None, description.task)


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
    steps = (*steps_to(task), *_FITTING.get(task, ()))
    files = [str(bundle / "configs" / f"{step}.json") for step in steps]
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
