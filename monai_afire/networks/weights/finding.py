# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where weights are: released and demo files of the bundles, runs, and files."""

from __future__ import annotations

import os
from pathlib import Path

from monai_afire.networks.weights.checkpoint_files import read_description
from monai_afire.networks.weights.description import TASKS
from monai_afire.utils.run_folder import MODEL, RUNS, newest_run, runs_of
from monai_afire.utils.text import first_few

__all__ = ["RELEASED", "find_weights", "released_file"]

RELEASED, DEMO, LATEST = "released", "demo", "latest"
ENCODER = "encoder"  # the task of what a training starts from

_OF_TASKS = {
    ENCODER: {
        RELEASED: "encoder.safetensors",
        "released_96": "detector.safetensors",  # of which the encoder is loaded
        "released_224": "vit_tiny_patch16_224.safetensors",
        "released_cnn": "efficientnet_lite0_contrast.safetensors",
    },
    TASKS["AnomalyDetector"]: {RELEASED: "detector.safetensors"},
    TASKS["TransferClassifier"]: {RELEASED: "nih_findings.pt"},
    TASKS["UPerNet"]: {RELEASED: "lungs_and_heart.pt"},
}


def find_weights(
    weights: str | os.PathLike | None,
    task: str = ENCODER,
    bundle_root: str | os.PathLike | None = None,
) -> str | None:
    """
    The file of weights that a word names.

    Args:
        weights: one of these, or None for random weights:

            * "released", and for encoders "released_96", "released_224" and "released_cnn": trained on radiographs, for
              this task;
            * "demo": small, of the bundle, to try it;
            * "latest": of the newest run that has weights for this task;
            * the name of a run, ``NAME`` of the same bundle or ``BUNDLE/NAME``;
            * a folder of a run, or a file.
        task: of the network, such as "classifier"; "encoder" for any network that a training can start from.
        bundle_root: folder of the bundle; None where no bundle asks.

    Returns:
        The file; None for None.

    Raises:
        FileNotFoundError: when nothing has this name; the message lists what there is.
    """
    if weights is None or not str(weights):
        return None
    word = str(weights)
    bundle = None if bundle_root is None else Path(bundle_root).resolve()
    released = _OF_TASKS.get(task, {})
    if word in released:
        return str(released_file(released[word], bundle))
    if word == DEMO and bundle is not None:
        return str(bundle / MODEL)
    if word == LATEST:
        return str(_newest(bundle if task != ENCODER else None, task) / MODEL)
    own = [] if bundle is None else [runs_of(bundle) / word]
    for path in (Path(word).expanduser(), *own, Path(RUNS, word), *Path(RUNS).glob(f"*/{word}")):
        if path.is_file():
            return str(path)
        if (path / MODEL).is_file():
            return str(path / MODEL)
    words = [*released, *([DEMO] if bundle else []), LATEST]
    runs = sorted(
        path.parents[1].relative_to(RUNS).as_posix() for path in Path(RUNS).glob(f"*/*/{MODEL}")
    )
    raise FileNotFoundError(
        f"no weights {word!r}: give {', '.join(words)}, a run ({first_few(runs) or 'there is none'}), its folder, or "
        "a file"
    )


def released_file(name: str, bundle: Path | None = None) -> Path:
    """A file of the folders of released weights: of a bundle, of the package, or of the clone that it is in."""
    package = Path(__file__).resolve().parents[2]
    own = [] if bundle is None else [bundle / "released" / name]
    for root in (package, package.parent):
        own += root.glob(f"bundles/*/released/{name}")
    for path in own:
        if path.is_file():
            return path
    raise FileNotFoundError(f"there is no released/{name}: install the package with its bundles")


def _newest(bundle: Path | None, task: str) -> Path:
    """The newest run with weights for a task, of a bundle or of all."""

    def is_wanted(run: Path) -> bool:
        description = read_description(run / MODEL)
        found = "" if description is None else description.task
        return task == found or (task == ENCODER and found.startswith("pre-trained"))

    folders = Path(RUNS).glob("*/") if bundle is None else [runs_of(bundle)]
    newest = [run for each in folders if (run := newest_run(each, is_wanted)) is not None]
    if not newest:
        raise FileNotFoundError(
            f"no run in {Path(RUNS).absolute()} has weights of a network for this task: {task}"
        )
    return max(newest, key=lambda folder: folder.stat().st_mtime)
