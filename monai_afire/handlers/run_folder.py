# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The folder that a training run saves to, and how its files are written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from monai_afire.data.datalist.image_list import image_difference
from monai_afire.networks.weights.checkpoint_files import read_pickle, write_pickle
from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    refuse_existing,
    remove_leftovers,
)
from monai_afire.utils.folder_lock import folder_lock, launcher_patience

_REMEDY = "run the same command with resume set to true (--resume True)"
BACKUP = "take it from a backup, or start anew in another folder, without resume (model.pt beside it may be whole)"


class RunFolder:
    """``checkpoint.pt``, ``model.pt`` and, where the checkpoint is from the midst of an epoch,
    ``checkpoint_epoch.pt`` of the last complete one. Every file is complete or absent.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.checkpoint, self.epoch, self.model = (
            Path(folder) / name for name in ("checkpoint.pt", "checkpoint_epoch.pt", "model.pt")
        )
        self.is_epoch_complete = False  # that of the checkpoint on disk, if it is this run's

    def claim(self, resume: bool) -> ExitStack:
        """Keep other processes from writing into the folder."""
        lock = ExitStack()
        lock.enter_context(
            folder_lock(check_writable(self.checkpoint.parent), launcher_patience(resume))
        )
        return lock

    def check_room(self, checkpoint_bytes: int, model_bytes: int, is_resumed: bool) -> None:
        """Make sure that the files of a run can be written, each beside the one that it is going to replace."""
        for path in (self.checkpoint, self.epoch, self.model):
            remove_leftovers(path)
        files = (self.checkpoint, self.model) if is_resumed else ()
        replaced = sum(path.stat().st_size for path in files if path.is_file())
        check_writable(
            self.checkpoint.parent, needed_bytes=2 * checkpoint_bytes + model_bytes - replaced
        )

    def refuse_other_run(self) -> None:
        """Keep the files of another run from being replaced by those of a new one."""
        refuse_existing(self.checkpoint, self.epoch, self.model)

    def other_images(
        self, images: Mapping[str, Any] | None, state: Mapping[str, Any] | None = None
    ) -> str | None:
        """
        Why a run on these images must not go on with the checkpoint; None where it may, or where there is none.

        Args:
            images: of this run, see :func:`monai_afire.data.datalist.image_list.image_fingerprint`.
            state: content of the checkpoint; None to read it.
        """
        if state is None and not self.checkpoint.is_file():
            return None
        content = read_pickle(self.checkpoint, BACKUP, mmap=True) if state is None else state
        difference = image_difference(content.get("images"), images)
        if difference is None:
            return None
        return (
            f"{self.checkpoint} is of a run on other images ({difference}), and this run would overwrite it: "
            "resume with the images of that run (--dataset_dir or --datalist), or start a new run without --resume "
            f"(with --pretrained or --encoder_weights {self.model} it begins with these weights)"
        )

    def write_checkpoint(self, state: dict[str, Any], is_epoch_complete: bool) -> None:
        """Write ``checkpoint.pt``; that of a complete epoch stays beside one from within an epoch."""
        if self.is_epoch_complete and not is_epoch_complete:
            _keep_beside(self.checkpoint, self.epoch)
        write_pickle(state, self.checkpoint, _REMEDY)
        self.is_epoch_complete = is_epoch_complete
        if is_epoch_complete:
            self.epoch.unlink(missing_ok=True)

    def write_model(self, state: dict[str, torch.Tensor]) -> None:
        """Write ``model.pt``."""
        write_pickle(state, self.model, _REMEDY)


def _keep_beside(path: Path, other: Path) -> None:
    """Give a file that is going to be replaced a second name, without a moment in which it has none."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:  # a file system without hard links
        with atomic_path(other) as temporary:
            shutil.copyfile(path, temporary)
