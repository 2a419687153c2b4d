# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
The start of the bundle that is running, read from the arguments of MONAI's functions on the stack.

MONAI gives an expression in a config neither the parser nor what was overridden, and a parser does not keep it. This
is the one place that reads the frames of MONAI. Without it the check would need a command of its own in place of
``python -m monai.bundle run``, or would know the config alone: misspelled paths would end in MONAI's own errors, and
shapes of a pre-trained encoder would have to be repeated. tests/apps/runs/test_bundle_call.py starts every door of
MONAI's current release.
"""

from __future__ import annotations

import inspect
import sys
from traceback import walk_stack
from typing import Any

from monai.bundle import ConfigParser, ConfigWorkflow, create_workflow
from monai.bundle.reference_resolver import ReferenceResolver
from monai.utils import ensure_tuple

from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.literals import command_words

__all__ = ["current_call"]

_WORKFLOW_ARGUMENTS = frozenset(inspect.signature(ConfigWorkflow.__init__).parameters)


def current_call() -> BundleCall:
    """
    The start of the bundle whose config evaluates the expression that calls this.

    Raises:
        RuntimeError: when no config is being evaluated.

    Example:
        >>> parser = ConfigParser({"here": "$monai_afire.apps.runs.current_call().config['seed']", "seed": 3})
        >>> parser.globals["monai_afire"] = __import__("monai_afire")
        >>> parser.get_parsed_content("here")
        3
    """
    running: dict[Any, dict[str, Any]] = {}
    for frame, _ in walk_stack(None):
        running.setdefault(frame.f_code, frame.f_locals)
    evaluating = running.get(ConfigParser.get_parsed_content.__code__)
    if evaluating is None:
        raise RuntimeError(
            "options are checked by an expression in a config, such as its 'initialize'"
        )
    created = running.get(create_workflow.__code__)
    if created is None:
        return BundleCall(evaluating["self"])
    overrides = {
        ReferenceResolver.normalize_id(id): value
        for id, value in created["_args"].items()
        if id not in _WORKFLOW_ARGUMENTS
    }
    paths = ensure_tuple(created["config_file"])
    files = ConfigParser(ConfigParser.load_config_files(paths))
    layers = {str(path): ConfigParser.load_config_file(path) for path in paths}
    words = command_words(sys.argv)
    return BundleCall(evaluating["self"], files, overrides, layers, words)
