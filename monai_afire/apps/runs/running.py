# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run, from the check of its folders to the record of its end: a training, an inference, or what is done once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ignite.engine import Engine, Events

from monai_afire.apps.runs.closing_message import TrainingMessage
from monai_afire.apps.runs.process_end import say_how_to_go_on
from monai_afire.apps.runs.run_folder import leave_no_empty_folder
from monai_afire.data.datalist.image_list import image_fingerprint
from monai_afire.engines import TrackedTrainer
from monai_afire.handlers.run_folder import RunFolder
from monai_afire.handlers.stop_request import StoppedBySignal
from monai_afire.utils.distributed import by_main_rank, global_rank
from monai_afire.utils.files import check_writable, refuse_existing
from monai_afire_cli.runs.run_records import begin_again, is_finished, note_finished

__all__ = ["check_folders", "finish_run", "run_inference", "run_once", "run_training"]

logger = logging.getLogger(__name__)


def check_folders(
    output_dir: str, ckpt_dir: str, resume: bool = False, items: Sequence[Any] = ()
) -> None:
    """
    Make sure that a training can write to its folders, and that no other one has, before hours of work depend on it.

    New folders that stay empty, because the run fails before it begins, are removed when the process ends.

    Args:
        output_dir: of pictures and curves.
        ckpt_dir: of the weights.
        resume: whether the run goes on with what is there.
        items: that the run trains on.

    Raises:
        FileExistsError: when a folder has the results of another run.
        OSError: when a folder cannot be written to.
        RuntimeError: when the checkpoint to resume is of other images.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> check_folders(folder, f"{folder}/models")
    """
    if resume and (problem := by_main_rank(_other_images, ckpt_dir, items)):
        raise RuntimeError(problem)
    by_main_rank(_check_folders, Path(output_dir), Path(ckpt_dir), resume)


def _other_images(ckpt_dir: str, items: Sequence[Any]) -> str | None:
    return RunFolder(ckpt_dir).other_images(image_fingerprint(items))


def _check_folders(output_dir: Path, ckpt_dir: Path, resume: bool) -> None:
    for folder in (output_dir, ckpt_dir):
        leave_no_empty_folder(folder)
    check_writable(output_dir, option="--output_dir")
    check_writable(ckpt_dir, option="--ckpt_dir")
    if resume:
        return
    curves = output_dir.glob("events.out.tfevents*")
    refuse_existing(ckpt_dir / "checkpoint.pt", ckpt_dir / "model.pt", *curves)


def run_training(trainer: TrackedTrainer, bundle_root: str) -> None:
    """
    Train, and print where the results are and what to do next.

    Args:
        trainer: with a :class:`monai_afire.handlers.TrainingRun`.
        bundle_root: folder of the bundle.

    Raises:
        ValueError: for a trainer without one.
    """
    run = trainer.training_run
    if run is None:
        raise ValueError("the trainer has no TrainingRun: give it one (run), or call its run()")
    chosen_by = run.validator if run.keep_best else None
    message = TrainingMessage(
        run.network, run.ckpt_dir, bundle_root, run.output_dir, run.preview, chosen_by
    )
    message.attach(trainer)
    if run.resume and global_rank() == 0:
        _make_newest_at_first_epoch(trainer, run.output_dir)
    try:
        trainer.run()
    except StoppedBySignal:
        say_how_to_go_on(run.output_dir)
        raise
    finish_run(run.output_dir)


def _make_newest_at_first_epoch(trainer: Engine, output_dir: str) -> None:
    """Make a resumed run the newest one as soon as it trains; a complete one, which does not, stays as it is."""

    def begin(_: Engine) -> None:
        begin_again(output_dir)
        handle.remove()

    handle = trainer.add_event_handler(Events.EPOCH_STARTED, begin)


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
