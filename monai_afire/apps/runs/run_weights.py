# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weights of a run, by the run's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monai_afire.apps.runs.door import run_text
from monai_afire.apps.runs.phantom_weights import are_of_phantoms
from monai_afire.networks.weights.model_file import read_description
from monai_afire.networks.weights.released_files import weights_file
from monai_afire_cli.run_records import LATEST, MODEL_OF_RUN, newest_run, runs_of
from monai_afire_cli.weights_of import no_such_run, no_weights, steps_to, without_weights

__all__ = ["run_weights"]


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
    if run == LATEST:
        newest = newest_run(own.parent, lambda folder: _has_weights(folder, task))
        if newest is None:
            command = run_text([f"{bundle}/configs/{step}.json" for step in steps_to(task)], {})
            raise FileNotFoundError(f"--weights_of {no_weights(own.parent, task, command)}")
        return str(newest / MODEL_OF_RUN)
    if own.is_dir():
        return _weights_in(own)
    if Path(run).exists():
        path = weights_file(run)
        return _weights_in(path) if path.is_dir() else str(path)
    raise FileNotFoundError(f"--weights_of {no_such_run(run, own.parent)}")


def _weights_in(folder: Path) -> str:
    """File of the weights in the folder of a run, where the run has written some."""
    if problem := without_weights(folder):
        raise FileNotFoundError(f"--weights_of {problem}")
    return str(folder / MODEL_OF_RUN)


def _knows_radiographs(path: str | None) -> bool:
    """Whether there is a file of weights that does not say that it was trained on phantoms."""
    return path is not None and Path(path).is_file() and not are_of_phantoms(path)


def _has_weights(folder: Path, task: str | None) -> bool:
    description = read_description(folder / MODEL_OF_RUN)
    return description is not None and task in (None, description.task)
