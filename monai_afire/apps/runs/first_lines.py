# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a run says before it begins: what it computes on, and how small its settings are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from monai_afire.apps.runs.call import BundleCall
from monai_afire.utils.device import described_precision

_PAPER = "paper.json"


def print_first_lines(call: BundleCall) -> None:
    """
    Print the first lines of a run, once for all its processes.

    Args:
        call: the start of the run, whose options are checked.
    """
    lines = list(first_lines(call))
    if lines and int(os.environ.get("RANK", 0)) == 0:
        print("\n".join(lines), flush=True)


def first_lines(call: BundleCall) -> Iterator[str]:
    """
    The device, the precision and the weights of a run, and a hint at the paper's settings for a training on own images.

    Args:
        call: the start of the run.

    Yields:
        Lines.

    Example:
        >>> from monai.bundle import ConfigParser
        >>> list(first_lines(BundleCall(ConfigParser({"device": "cpu", "bf16": False}))))
        ['computing on cpu in float32']
    """
    if {"device", "bf16"} <= call.config.keys():
        yield described_precision(call.value("device"), bool(call.value("bf16")))
    if "ckpt_path" in call.config and "ckpt_path" in call.read_names:
        yield f"weights: {call.value('ckpt_path')}"
    has_own_images = call.config.get("dataset_dir") or call.config.get("datalist")
    if has_own_images and _could_be_as_in_paper(call):
        yield "these are small settings for a first try; those of the paper come with the overlay paper"


def _could_be_as_in_paper(call: BundleCall) -> bool:
    """Whether a training has an overlay with the settings of its paper, and was started without any such."""
    paths = [Path(path) for path in call.layers]
    trains = [path for path in paths if path.name == "train.json"]
    has_overlay = any(path.with_name(_PAPER).is_file() for path in trains)
    return has_overlay and not any(path.name.startswith("paper") for path in paths)
