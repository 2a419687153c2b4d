# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of a command line that cannot be right, found before the seconds in which PyTorch and MONAI are loaded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire_cli.bundles.configs import entry_at, first_unknown, merged_config
from monai_afire_cli.options.suggestions import MOST_SUGGESTIONS, did_you_mean, paths_of
from monai_afire_cli.options.table_hint import NO_LABELS, no_datalist
from monai_afire_cli.options.words import PATHS, SEPARATOR, option_words
from monai_afire_cli.options.wrong_values import (
    is_empty_folder,
    no_radiographs,
    unwritable,
    wrong_word,
)
from monai_afire_cli.runs.run_records import (
    has_run_folder,
    other_step,
    runs_of,
    taken_name,
    wrong_name,
)
from monai_afire_cli.runs.weights_of import wrong_run

__all__ = ["INPUTS", "OUTPUTS", "OWN_ENCODERS", "unknown_step", "wrong_options"]

INPUTS = (
    *("dataset_dir", "datalist", "calibrate"),
    *("ckpt_path", "encoder_weights", "pretrained"),
)
"""Options that name a file or folder to read."""
OUTPUTS = ("output_dir", "ckpt_dir", "cache_dir")
"""Options that name a folder to write to."""
OWN_ENCODERS = ("released", "released_224", "released_cnn", "imagenet")
"""Names of encoders whose weights the package knows."""
_NOTHING = ("", "none", "null")
_STEPS = ("run", "export")
_OF_MONAI = (
    *("run_id", "init_id", "final_id", "meta_file", "config_file"),
    *("logging_file", "tracking", "args_file"),
)
_OF_LABELS = ".labeled_items"  # reads the labels of a list
_NAMES = ("released", "imagenet")  # what a path may be instead, alone or before an underscore


def wrong_options(
    files: Sequence[Path], overrides: Sequence[str], bundle: Path | None = None
) -> list[str]:
    """
    Overrides that no config has or whose values it cannot have, paths that are missing, and files that are not there.

    Args:
        files: configs of the run. Without any, or with one that is not JSON, only paths are checked.
        overrides: words of the command line.
        bundle: folder of the bundle that runs; None for that of the first config.

    Returns:
        A line for each, with the remedy.

    Example:
        >>> from monai_afire_cli.bundles.bundle import bundles_folder
        >>> train = bundles_folder() / "afire/configs/train.json"
        >>> wrong_options([train], ["--train::lr_schedul::end", "0", "--dataset_dir=nowhere"])[0]
        "--train::lr_schedul::end: train has no 'lr_schedul'; did you mean 'lr_schedule'?"
    """
    words = option_words(overrides)
    problems = {
        name: _wrong_path(name, word) if name in PATHS else None for name, word in words.items()
    }
    if files and all(path.suffix == ".json" for path in files):
        config = merged_config(files)
        root = words.get("bundle_root") or bundle or files[0].resolve().parents[1]
        runs = runs_of(os.path.expanduser(root))
        for name in words:
            problem = _unknown_part(config, name) or _misspelt(config, name, overrides)
            problem = problem or wrong_word(name, words[name], entry_at(config, name))
            problems[name] = problems[name] or problem
        if problems.get("datalist") is None:
            problems["datalist"] = no_datalist(words.get("datalist"), words.get("dataset_dir"))
        if "name" in words:
            problems["name"] = _wrong_run_name(words, runs, config)
        if problems.get("dataset_dir") is None and not _has(config, words, "datalist"):
            problems["dataset_dir"] = _no_images(words.get("dataset_dir"), config)
        if words.get("weights_of"):
            problems["weights_of"] = wrong_run(
                str(words["weights_of"]), os.path.expanduser(root), config
            )
        if "run_id" in words:
            problems["run_id"] = unknown_step(words["run_id"], config)
    return [f"--{name}: {problem}" for name, problem in problems.items() if problem]


def unknown_step(word: str | None, config: Mapping[str, Any]) -> str | None:
    """
    What is wrong with MONAI's option run_id.

    Args:
        word: its value.
        config: whose entry it names.

    Returns:
        The problem, or None.

    Example:
        >>> unknown_step("exprt", {"run": [], "export": []})
        "there is no step 'exprt': the steps are run, export; did you mean 'export'?"
    """
    if word in config:
        return None
    steps = [name for name in _STEPS if name in config]
    meant = (
        did_you_mean(str(word), steps)
        or f"; a run gets its name by --name {shlex.quote(str(word))}"
    )
    return f"there is no step {word!r}: the steps are {', '.join(steps)}{meant}"


def _unknown_part(config: Mapping[str, Any], id: str) -> str | None:
    """What is wrong with the path of an option."""
    found = first_unknown(config, id)
    if found is None:
        return None
    path, holder, name = found
    return f"{path or 'the config'} has no {name!r}{did_you_mean(name, list(holder))}"


def _misspelt(config: Mapping[str, Any], name: str, overrides: Sequence[str]) -> str | None:
    """
    An option that is the end of a path, or near to one of the config.

    It may be a new entry that another one refers to.
    """
    is_known = name in config or name in _OF_MONAI or SEPARATOR in name
    is_referred_to = any(f"@{name}" in word for word in overrides)
    if is_known or is_referred_to:
        return None
    paths = [f"--{path}" for path in paths_of(name, config)[:MOST_SUGGESTIONS]]
    meant = f"; did you mean {' or '.join(paths)}?" if paths else did_you_mean(name, list(config))
    return f"there is no such option{meant}" if meant else None


def _has(config: Mapping[str, Any], words: Mapping[str, str | None], name: str) -> bool:
    """Whether a value is given, on the command line or in the config."""
    word = words.get(name, config.get(name))
    return word is not None and str(word).lower() not in _NOTHING


def _wrong_run_name(
    words: Mapping[str, str | None], runs: Path, config: Mapping[str, Any]
) -> str | None:
    """What is wrong with the name of a run, or with the run that has it already."""
    name = words["name"]
    if name is None:
        return "a name is missing (one that begins with a hyphen is written --name=-x)"
    if name.lower() in ("none", "null"):
        return None
    if problem := wrong_name(name):
        return problem
    folder = runs / name
    if not folder.exists() or not has_run_folder(words, config):
        return None
    resume = str(_resume(words, config)).lower()
    if resume == "false":
        return taken_name(folder)
    return other_step(folder, config["run_dir"].get("step")) if resume == "true" else None


def _resume(words: Mapping[str, str | None], config: Mapping[str, Any]) -> Any:
    if "resume" not in words:
        return config.get("resume")
    return True if words["resume"] is None else words["resume"]  # a switch has no word


def _no_images(folder: str | None, config: Mapping[str, Any]) -> str | None:
    """A folder of images without any, or without the labels that are needed, and a list in its place."""
    if folder is None:
        return None
    path = Path(folder).expanduser()
    if problem := no_datalist(folder):
        return problem
    if path.is_file() and path.suffix == ".json":
        return f"{folder} is no folder of images; give it by --datalist"
    if is_empty_folder(folder):
        return f"{no_radiographs(folder)}: it is empty"
    items = config.get("items")
    if isinstance(items, dict) and str(items.get("_target_")).endswith(_OF_LABELS):
        return NO_LABELS
    return None


def _wrong_path(name: str, word: str | None) -> str | None:
    """What is wrong with a path."""
    if word is None or word == "-":
        return "a path is missing (one that begins with a hyphen is written ./-name)"
    is_input = name in INPUTS and word.lower() not in _NOTHING
    if is_input and not _is_there(word):
        hint = "; the weights of a run are runs/BUNDLE/latest" if word == "latest" else ""
        released = "" if os.path.dirname(word) else did_you_mean(word, OWN_ENCODERS)
        if name == "encoder_weights":
            hint = hint or released
        elif name == "ckpt_path" and released:
            hint = "; leave --ckpt_path out for the weights that come with the bundle"
        return f"{word}: there is no such file or folder{hint}"
    is_output = name in OUTPUTS and word.lower() not in _NOTHING
    return unwritable(word) if is_output else None


def _is_there(path: str) -> bool:
    """Whether a path exists, or is the name of something released."""
    return path.partition("_")[0] in _NAMES or os.path.exists(os.path.expanduser(path))
