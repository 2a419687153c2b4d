# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The end of a run: an inference, or what is done once, and its record."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from ignite.engine import Engine

from monai_afire.apps.runs.process_end import say_how_to_go_on
from monai_afire.handlers.stop_request import StoppedBySignal
from monai_afire.utils.distributed import by_main_rank
from monai_afire_cli.runs.run_records import begin_again, is_finished, note_finished

__all__ = ["finish_run", "run_inference", "run_once"]

logger = logging.getLogger(__name__)


def run_inference(evaluator: Engine, output_dir: str | os.PathLike) -> None:
    """
    Run an evaluator, and note that its run is complete; stopped by a signal, say how to go on.

    Args:
        evaluator: of MONAI, which knows its data.
        output_dir: of the results.

    Raises:
        StoppedBySignal: after a signal, if a handler of the evaluator has taken it.

    Example:
        >>> import torch
        >>> from monai.engines import SupervisedEvaluator
        >>> batches = [{"image": torch.zeros(1, 1)}]
        >>> run_inference(SupervisedEvaluator("cpu", batches, torch.nn.Identity()), "no_such_folder")
    """
    try:
        evaluator.run()
    except StoppedBySignal:
        say_how_to_go_on(output_dir)
        raise
    finish_run(output_dir)


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


def finish_run(folder: str | os.PathLike) -> None:
    """
    Note that a run is complete: the last step of every run that ends well. All ranks must call it.

    A folder without a record, which is no run's, stays as it is.

    Args:
        folder: of the run.

    Example:
        >>> finish_run("no_such_folder")
    """
    by_main_rank(note_finished, folder)
