# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run of a network over images, from its first batch to the record of its end."""

from __future__ import annotations

import os

from ignite.engine import Engine

from monai_afire.apps.runs.follow_up import say_how_to_go_on
from monai_afire.apps.runs.run_record import finish_run
from monai_afire.handlers.stop_request import StoppedBySignal

__all__ = ["run_inference"]


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
