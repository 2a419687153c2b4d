# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Command lines to type next, with the overrides of the present one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from monai.bundle.utils import MERGE_KEY

from monai_afire.apps.runs.call import config_files
from monai_afire.apps.runs.config_entries import is_of_weights, top_level
from monai_afire.apps.runs.door import launched, run_text
from monai_afire.apps.runs.overlays import completed
from monai_afire_cli.bundles.configs import read_json
from monai_afire_cli.options.words import passed_word

_OF_ONE_RUN = {
    *("resume", "name", "weights_of", "output_dir", "ckpt_dir", "run_dir"),
    *("config_file", "meta_file", "logging_file", "tracking"),
}
_STARTING_WEIGHTS = {"encoder_weights", "encoder_branch", "pretrained"}
_IMAGES = {"dataset_dir", "datalist", "phantom"}


def follow_up_command(
    configs: Sequence[str],
    options: Mapping[str, str],
    given: Mapping[str, str],
    known_otherwise: Collection[str] = (),
    same_images: bool = False,
) -> str | None:
    """
    A command that goes on from the run that was started with the options given.

    With the same first config it repeats the overlays and what the run was given. Another config is told the images at
    most: the weights bring the rest.
    """
    if not all(os.path.isfile(path) for path in configs):
        return None
    present = config_files(given.get("config_file"))
    goes_on = bool(present) and os.path.abspath(present[0]) == os.path.abspath(configs[0])
    overlays: list[str] = []
    repeated: dict[str, str] = {}
    if goes_on:
        overlays = [path for path in present[1:] if path not in configs]
        repeated = _settings(given, configs, {*options, *known_otherwise})
    elif same_images:
        repeated = {name: word for name, word in given.items() if _names_images(name)}
    files = completed([configs[0], *overlays, *configs[1:]])
    return run_text(files, {**repeated, **_passed(options)})


def _settings(
    given: Mapping[str, str], configs: Sequence[str], left_out: Collection[str]
) -> dict[str, str]:
    """What a run was given that holds for the next one, too."""
    added = _content(configs[1:])
    entries = _content(configs[:1]) | added
    # what is built from the file of the weights cannot be set
    known = {name for name, value in entries.items() if not is_of_weights(value)}
    other = _OF_ONE_RUN | set(added) | set(left_out)
    if "ckpt_path" in left_out:  # the whole network comes from there
        other |= _STARTING_WEIGHTS
    return {
        name: word
        for name, word in given.items()
        if _top(name) in known - other and name not in other
    }


def _names_images(name: str) -> bool:
    return _top(name) in _IMAGES or name == "items::phantom::folder"


def resume_command(given: Mapping[str, str], name: str | None) -> str:
    """
    The command that goes on with the run that was started with the options given, by its name if it has one.

    Of a run of several processes it starts as many.
    """
    options = {"resume": "True"} if name is None else {"name": name, "resume": "True"}
    left_out = {"config_file", *options}
    repeated = {id: word for id, word in given.items() if id not in left_out}
    files = config_files(given.get("config_file"))
    return launched(run_text(files, {**repeated, **_passed(options)}))


def _passed(options: Mapping[str, str]) -> dict[str, str]:
    return {name: passed_word(name, value) for name, value in options.items()}


def _top(name: str) -> str:
    return top_level(name.lstrip(MERGE_KEY))


def _content(paths: Sequence[str]) -> dict[str, Any]:
    """Top-level entries of configs that are laid over each other; what cannot be read has none."""
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            content = read_json(Path(path))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            merged |= {_top(name): value for name, value in content.items()}
    return merged
