# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights of a whole network of this package, which must fit exactly."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monai_afire.networks.weights.checkpoint_files import write_pickle
from monai_afire.networks.weights.model_file import TASKS, ModelFile, describe, read_description, with_description
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import joined_path, keep_previous

__all__ = ["check_fits", "load_network", "save_network"]


def load_network(network: nn.Module, path: str | os.PathLike, hint: str = "") -> None:
    """
    Load the file that a run of a bundle has written (``model.pt``) into a network of the same class and arguments.

    :meth:`monai_afire.networks.ModelFile.build` builds the network, too.

    Args:
        network: a network of the same settings.
        path: the file; ``weights_only=True`` always.
        hint: what to do if there is no such file, for the message.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when the file is damaged or carries code.
        RuntimeError: when it holds another network; the first differences are named.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "model.pt")
        >>> torch.save(nn.Linear(2, 1).state_dict(), path)
        >>> load_network(nn.Linear(2, 1), path)
    """
    file = ModelFile(path, hint=hint)
    state = file.state_dict
    found, expected = read_description(path), TASKS.get(type(network).__name__)
    if found is not None and found.task in TASKS.values() and expected not in (None, found.task):
        raise RuntimeError(f"{path} is for another task, {found.task} instead of {expected}: {hint or 'take another'}")
    check_fits(
        state, network.state_dict(), path, "give the settings (sizes, layers, clusters) of the run that wrote it"
    )
    network.load_state_dict(state)


def save_network(
    network: nn.Module,
    path: str | os.PathLike | Sequence[str | os.PathLike],
    description: Mapping[str, Any] | None = None,
) -> Path:
    """
    Write a network's state dict for :func:`load_network`, complete or not at all; an older file is kept beside it.

    Args:
        network: unwrapped.
        path: the file, or its parts to be joined. Only the first process of several writes it.
        description: arguments of :func:`monai_afire.networks.describe` besides the network.

    Returns:
        The file.

    Raises:
        OSError: when it cannot be written.

    Example:
        >>> import tempfile
        >>> path = save_network(nn.Linear(2, 1), [tempfile.mkdtemp(), "model.pt"])
        >>> load_network(nn.Linear(2, 1), path)
    """
    file = joined_path(path)
    if global_rank() == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        keep_previous(file)
        write_pickle(with_description(network.state_dict(), describe(network, **(description or {}))), file)
    return file


def check_fits(
    saved: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], path: str | os.PathLike, remedy: str
) -> None:
    """
    Compare names and shapes before anything is loaded.

    Args:
        saved: state dict of the file.
        expected: state dict of the network.
        path: the file, for the message.
        remedy: what to do, for the message.

    Raises:
        RuntimeError: when they differ; the first differences are named.

    Example:
        >>> check_fits({"a": torch.ones(2)}, {"a": torch.ones(3)}, "model.pt", "use the same settings")
        Traceback (most recent call last):
        RuntimeError: model.pt holds another architecture (1 difference: a is (2,) in the file, (3,) in the network):
        use the same settings
    """
    differences = [f"{name} is missing in the file" for name in expected if name not in saved]
    differences += [f"{name} is not in the network" for name in saved if name not in expected]
    differences += [
        f"{name} is {tuple(saved[name].shape)} in the file, {tuple(expected[name].shape)} in the network"
        for name in expected
        if name in saved and saved[name].shape != expected[name].shape
    ]
    if differences:
        count = f"{len(differences)} difference{'s' if len(differences) > 1 else ''}"
        raise RuntimeError(f"{path} holds another architecture ({count}: {'; '.join(differences[:3])}): {remedy}")
