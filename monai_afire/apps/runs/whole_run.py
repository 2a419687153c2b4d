# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run that computes its results as a whole, such as an evaluation: it is done once, and cannot go on from a part."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from monai_afire.apps.runs.run_record import begin_again, finish_run, is_finished
from monai_afire.utils.distributed import by_main_rank

__all__ = ["run_once"]

logger = logging.getLogger(__name__)


def run_once(output_dir: str | os.PathLike, *steps: Callable[[], Any]) -> None:
    """
    Do what a run consists of, and note that it is complete; one that is complete already is left as it is.

    A training or the scores of a folder go on after what is there. An evaluation begins from the beginning.

    Args:
        output_dir: of the results.
        *steps: called one after the other.

    Example:
        >>> run_once("no_such_folder", lambda: print("evaluated"))
        evaluated
    """
    if by_main_rank(is_finished, output_dir):
        logger.info(f"{output_dir} is complete already: nothing in it was changed")
        return
    by_main_rank(begin_again, output_dir)
    for step in steps:
        step()
    finish_run(output_dir)
