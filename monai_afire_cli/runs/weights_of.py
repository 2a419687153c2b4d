# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The option weights_of: a run that is not there or has no weights, and what was meant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from monai_afire_cli.bundles.bundle import bundle_word, find_bundle
from monai_afire_cli.bundles.configs import entry_at, read_json
from monai_afire_cli.options.suggestions import did_you_mean
from monai_afire_cli.runs.run_records import (
    LATEST,
    has_weights,
    newest_first,
    newest_run,
    read_record,
    run_folders,
    runs_of,
)

__all__ = [
    "no_such_run",
    "no_weights",
    "steps_to",
    "without_weights",
    "wrong_detector",
    "wrong_run",
]

_RELEASED = "released"
_DETECTOR = "anomaly detector"
# steps of the configs that make weights for a task, where it is not train.json alone
_STEPS = {_DETECTOR: ("train", "finetune_anomaly")}
_PRETRAINING = "train"  # what the record of a run calls it
_SHOWN = 5
_NONE = "none"


def wrong_run(word: str, bundle: str | os.PathLike, config: Mapping[str, Any]) -> str | None:
    """
    What is wrong with a run whose weights are asked for.

    Args:
        word: name or folder of the run, or a file.
        bundle: folder or name of the bundle.
        config: of the run that asks.

    Returns:
        The problem, with the remedy or the newest runs; None for none, or where only the weights themselves can say it.

    Example:
        >>> wrong_run("no_such_run", "no_such_bundle", {})
        'no_such_run: no such run in ...runs/no_such_bundle (there: none), and no such path'
    """
    parent = runs_of(bundle)
    if word.lower() in ("", "none", "null"):
        return None
    if word == LATEST:
        return _no_latest(bundle, config)
    folder = parent / word if (parent / word).is_dir() else Path(word).expanduser()
    if folder.is_dir():
        return without_weights(folder, _training_command(bundle, config))
    if folder.exists():
        return None
    names = [folder.name for folder in run_folders(parent)]
    if get_close_matches(word, [*names, _RELEASED], n=1) == [_RELEASED]:
        return f"{word}: no such run; {_how_to_get_released(config)}"
    return no_such_run(word, parent)


def wrong_detector(word: str) -> str | None:
    """
    What is wrong with a run whose detector is asked for.

    Args:
        word: see :func:`wrong_run`.

    Example:
        >>> wrong_detector("no_such_run")
        '--weights_of no_such_run: no such run in ...runs/afire (there: ...), and no such path'
    """
    bundle = find_bundle("afire")
    [file] = bundle.config_files(["inference"])
    config = read_json(file)
    problem = wrong_run(word, bundle.folder, config)
    return problem and f"--weights_of {problem}"


def without_weights(folder: Path, command: str) -> str | None:
    """
    That a folder has no weights, and which runs have some, or else what makes some.

    Args:
        folder: of a run, or of anything else.
        command: that trains a network.

    Returns:
        The problem; None for a run with weights.

    Example:
        >>> without_weights(Path("no_such_folder"), "monai-afire run mae train")
        'no_such_folder: this folder has no weights; runs with weights in ...: none; to make some: monai-afire ...'
    """
    if has_weights(folder) or (folder.name == LATEST and newest_run(folder.parent, has_weights)):
        return None
    step = read_record(folder).get("step", "")
    is_of_runs = not read_record(folder) and bool(run_folders(folder))
    parent = folder if is_of_runs else folder.parent
    there = _names(filter(has_weights, run_folders(parent)))
    remedy = f"; to make some: {command}" if there == _NONE else ""
    if is_of_runs and there == _NONE:
        return f"{folder} is a folder of runs; none of them has weights{remedy}"
    if is_of_runs:
        return f"{folder} is a folder of runs; take {folder / LATEST}, or one of its runs: {there}"
    kind = f"run (of the step {step!r})" if step else "folder"
    return f"{folder}: this {kind} has no weights; runs with weights in {parent}: {there}{remedy}"


def no_weights(parent: Path, task: str | None, command: str) -> str:
    """
    That none of the runs has weights of a kind, and what makes some.

    Args:
        parent: folder of the bundle's runs.
        task: of the network; None for any.
        command: that trains one.

    Example:
        >>> no_weights(Path("/runs/mae"), None, "monai-afire run mae train")
        'latest: no run in /runs/mae has weights; to make some: monai-afire run mae train'
    """
    others = _names(filter(has_weights, run_folders(parent)))
    kind = f"weights of the kind {task!r}" if task else "weights"
    there = "" if others == _NONE else f" (others have: {others})"
    return f"{LATEST}: no run in {parent.absolute()} has {kind}{there}; to make some: {command}"


def steps_to(task: str | None) -> tuple[str, ...]:
    """
    The configs that train a network for a task.

    Example:
        >>> steps_to("anomaly detector"), steps_to("classifier")
        (('train', 'finetune_anomaly'), ('train',))
    """
    return _STEPS.get(str(task), ("train",))


def no_such_run(word: str, parent: Path) -> str:
    """
    That a run is not there, and which ones are.

    Args:
        word: what was taken for its name.
        parent: folder of the bundle's runs.

    Returns:
        A line with the newest runs, and what was meant.

    Example:
        >>> no_such_run("mine", Path("/runs/afire"))
        'mine: no such run in /runs/afire (there: none), and no such path'
    """
    folders = run_folders(parent)
    there = f"there: {_names(folders)}"
    meant = did_you_mean(word, [folder.name for folder in newest_first(folders)])
    return f"{word}: no such run in {parent.absolute()} ({there}), and no such path{meant}"


def _training_command(bundle: str | os.PathLike, config: Mapping[str, Any]) -> str:
    """What trains the network that a config asks for."""
    return f"monai-afire run {bundle_word(Path(bundle))} {' '.join(steps_to(_task(config)))}"


def _no_latest(bundle: str | os.PathLike, config: Mapping[str, Any]) -> str | None:
    """That no run can have the weights, as far as the records of the runs say it."""
    parent, task = runs_of(bundle), _task(config)
    with_weights = list(filter(has_weights, run_folders(parent)))
    if any(task != _DETECTOR or _made_by(each) != _PRETRAINING for each in with_weights):
        return None
    return no_weights(parent, task, _training_command(bundle, config))


def _made_by(folder: Path) -> str | None:
    return read_record(folder).get("step")


def _task(config: Mapping[str, Any]) -> str | None:
    """What the weights of a run must be for, where the config says it."""
    entries = [entry for entry in config.values() if isinstance(entry, Mapping)]
    tasks = [entry.get("task") for entry in entries if _takes_weights(entry)]
    if not tasks or not tasks[0]:
        return None
    task = str(tasks[0])
    if not task.startswith("@"):
        return task
    value = entry_at(config, task[1:])
    return value if isinstance(value, str) else None


def _takes_weights(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("_target_")).endswith(".run_weights")


def _names(folders: Iterable[Path]) -> str:
    """The names of the newest runs, and how many more there are."""
    names = [folder.name for folder in newest_first(folders)]
    others = len(names) - _SHOWN
    more = f" and {others} more" if others > 0 else ""
    return (", ".join(names[:_SHOWN]) or _NONE) + more


def _how_to_get_released(config: Mapping[str, Any]) -> str:
    """Where the released weights are, if a config has some."""
    if f"/{_RELEASED}/" in json.dumps(config.get("ckpt_path")):
        return "leave --weights_of out for the released weights"
    if "encoder_weights" in config and "ckpt_path" not in config:
        return f"the released encoder is --encoder_weights {_RELEASED}"
    return "this step has no released weights of its own: name a run, or a file by --ckpt_path"
