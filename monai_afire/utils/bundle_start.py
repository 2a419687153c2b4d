# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The first steps of a bundle's run: where it is, what its switches say, settings of the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import FrameType

import torch
from monai.bundle import ConfigParser

from monai_afire.utils.command_line import as_bool, show_cause_last
from monai_afire.utils.cpu import tune_cpu

__all__ = ["bundle_root", "default_num_workers", "read_switches", "running_parser", "start_bundle"]


def bundle_root(name: str) -> str:
    """
    Find the folder of one of this repository's bundles, for its configs.

    Args:
        name: of the bundle.

    Returns:
        "bundles/<name>" in the repository's root, else ".", which is right inside the bundle.

    Example:
        >>> bundle_root("no_such_bundle")
        '.'
    """
    folder = f"bundles/{name}"
    return folder if os.path.isdir(f"{folder}/configs") else "."


def default_num_workers(device: torch.device | str) -> int:
    """
    Number of loader processes that keep a device busy.

    Args:
        device: that the run trains on.

    Returns:
        The number of cores, at most 8, for a GPU; 0 for a CPU, which has enough to do.

    Example:
        >>> default_num_workers("cpu")
        0
    """
    return min(8, os.cpu_count() or 1) if torch.device(device).type == "cuda" else 0


def start_bundle(switches: Sequence[str] = ()) -> None:
    """
    Prepare the process for a bundle's run; the first entry of every ``initialize``.

    Errors name their cause last (:func:`show_cause_last`), a CPU is made fast (:func:`tune_cpu`), and the switches of
    the config become True or False (:func:`read_switches`). Changes settings of the whole process.

    Args:
        switches: names of the options that are true or false.

    Raises:
        ValueError: when one of them is neither.
    """
    show_cause_last()
    tune_cpu()
    if switches:
        read_switches(switches, running_parser())


def read_switches(names: Sequence[str], parser: ConfigParser) -> None:
    """
    Make switches of a parsed config True or False, whatever way they are written, before anything refers to them.

    ``python -m monai.bundle run --resume false`` hands over the text "false", which Python takes for true. Here it is
    read once, so that configs may say ``"@resume"`` and ``"$not @resume"``.

    Args:
        names: of the options; those that the config does not have are passed over.
        parser: of the config, after ``parse``.

    Raises:
        ValueError: when the value of one is neither true nor false; the message names it.

    Example:
        >>> parser = ConfigParser({"resume": "false", "is_new": "$not @resume"})
        >>> parser.parse()
        >>> read_switches(["resume"], parser)
        >>> parser.get_parsed_content("is_new")
        True
    """
    for name in names:
        item = parser.ref_resolver.get_item(name)
        if item is None or isinstance(value := item.get_config(), bool):
            continue
        if isinstance(value, str) and value.startswith(("$", "@")):
            continue  # decided by the config itself
        try:
            switch = as_bool(value)
        except ValueError as error:
            raise ValueError(f"the option {name}: {error}") from error
        parser.get()[name] = switch  # setting it by the parser would make it forget what it has evaluated
        item.update_config(switch)
        parser.ref_resolver.remove_resolved_content(name)


def running_parser() -> ConfigParser:
    """
    Find the parser that evaluates the expression which called this.

    MONAI hands expressions the values that they refer to, not the config that they stand in, hence the look at the
    callers.

    Returns:
        The parser.

    Raises:
        RuntimeError: when no expression of a config has called.

    Example:
        >>> import monai_afire
        >>> parser = ConfigParser({"itself": "$monai_afire.utils.bundle_start.running_parser()"})
        >>> parser.globals["monai_afire"] = monai_afire
        >>> parser.get_parsed_content("itself") is parser
        True
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, ConfigParser):
            return caller
        frame = frame.f_back
    raise RuntimeError("this function works in an expression of a MONAI config only")
