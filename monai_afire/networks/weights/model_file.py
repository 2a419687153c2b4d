# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of whole networks: written with a description, read back, and built from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monai_afire.networks.definition import build_network, encoder_definition
from monai_afire.networks.weights.checkpoint_files import (
    check_digest,
    network_state,
    read_description,
    read_own,
    read_safetensors,
    write_pickle,
)
from monai_afire.networks.weights.description import (
    Description,
    describe,
    from_state,
    with_description,
)
from monai_afire.networks.weights.weight_loading import load_encoder_weights
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import is_safetensors, joined_path

__all__ = ["ModelFile", "save_network"]

_OWN_NAMES = ("patch_embedding.", "layers.")  # of encoders


def save_network(
    network: nn.Module,
    path: str | os.PathLike | Sequence[str | os.PathLike],
    description: Mapping[str, Any] | None = None,
) -> Path:
    """
    Write a network's state dict with its description for :class:`ModelFile`, complete or not at all.

    Args:
        network: unwrapped.
        path: the file, or its parts to be joined. Only the first process of several writes it.
        description: arguments of ``describe`` besides the network.

    Returns:
        The file.

    Raises:
        OSError: when it cannot be written.
    """
    file = joined_path(path)
    if global_rank() == 0:
        about = describe(network, **(description or {}))
        write_pickle(with_description(network.state_dict(), about), file)
    return file


@dataclass
class ModelFile:
    """
    A network's file of this package: what it says about the network, and the network itself.

    It reads the description when that is first needed, and the tensors, whose digest it verifies, in :meth:`build`.

    Args:
        path: the file: ``model.pt`` or ``checkpoint.pt`` of a run, or a safetensors file.
        task: what the network must be for, or None for anything.
        hint: what to do if its network is for another task, for the message.

    Raises:
        FileNotFoundError: at first use, when there is no such file.
        ValueError: at first use, when the file is damaged, carries code, has no description, or is for another task.

    Example:
        >>> import tempfile
        >>> from monai_afire.networks import TransferClassifier, ViTEncoder, save_network
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> path = Path(tempfile.mkdtemp()) / "model.pt"
        >>> description = {"preprocessing": {"image_size": 32}, "class_names": ["Nodule"]}
        >>> _ = save_network(TransferClassifier(encoder, num_classes=1), path, description)
        >>> file = ModelFile(path)
        >>> file.class_names, file.image_size, type(file.build()).__name__
        (['Nodule'], 32, 'TransferClassifier')
    """

    path: str | os.PathLike
    task: str | None = None
    hint: str = "use another file"

    @cached_property
    def description(self) -> Description:
        """What the file says about its network."""
        # where there is none, the reading of the tensors says whether the file is missing or damaged
        description = read_description(self.path) or from_state(self.state_dict)
        if description is None:
            raise ValueError(
                f"{self.path} does not say how to build its network: build it, and load ModelFile(path).state_dict"
            )
        if self.task not in (None, description.task):
            raise ValueError(
                f"{self.path} is for another task, {description.task} instead of {self.task}: {self.hint}"
            )
        return description

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How images become the network's input."""
        if self.description.preprocessing is None:
            raise ValueError(f"{self.path} does not say how its images are pre-processed")
        return self.description.preprocessing

    @property
    def image_size(self) -> Any:
        """Pixels along each axis, or one number."""
        return self.preprocessing["image_size"]

    @property
    def channels(self) -> int:
        """Channels of the images."""
        return self.preprocessing.get("channels", 1)

    @property
    def standardize(self) -> bool:
        """Whether the contrast is standardized."""
        return self.preprocessing.get("standardize", False)

    @property
    def class_names(self) -> list[str] | None:
        """Names of the outputs in their order."""
        return self.description.class_names

    @property
    def label_kind(self) -> str | None:
        """Kind of labels of a classifier."""
        return self.description.label_kind

    @property
    def settings(self) -> dict[str, Any]:
        """Other values of the run that wrote the file."""
        return self.description.settings

    @cached_property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The network's tensors on the CPU; their digest is verified where the file has one."""
        if is_safetensors(self.path):
            return read_safetensors(self.path)[0]
        state = network_state(read_own(self.path), self.path)
        check_digest(from_state(state), state, self.path)
        return state

    def build(self, **replaced: Any) -> Any:
        """
        Build the network and load its weights.

        Args:
            replaced: arguments of the network's class in the place of the file's, such as ``teacher_decay``.

        Returns:
            The network, in evaluation mode.

        Raises:
            ValueError: when the description is impossible.
            RuntimeError: when it does not fit the tensors.
        """
        definition = self.description.network
        if definition is None:
            raise ValueError(
                f"{self.path} holds a network of another package: build it, and load ModelFile(path).state_dict"
            )
        network = build_network(definition, str(self.path), **replaced)
        is_encoder = self.description.task == "encoder"
        if is_encoder and not any(each.startswith(_OWN_NAMES) for each in self.state_dict):
            load_encoder_weights(network, self.path, strict=True)  # translates a library's names
            return network.eval()
        try:
            network.load_state_dict(self.state_dict)
        except RuntimeError as error:
            raise RuntimeError(
                f"{self.path} does not fit the network that it describes. {str(error)[:500]}"
            ) from error
        return network.eval()

    def build_encoder(self) -> Any:
        """The network's encoder alone, with random weights; a ValueError where the file describes none."""
        definition = encoder_definition(self.description.network)
        if definition is None:
            raise ValueError(f"{self.path} describes no encoder")
        return build_network(definition, str(self.path))

    def check(self, **given: Any) -> None:
        """Refuse values of a run, by the names of this object's properties, that differ from the file's."""
        for name, value in given.items():
            check_same(name, value, getattr(self, name), self.path)


def check_same(name: str, value: Any, trained: Any, path: str | os.PathLike) -> None:
    """Refuse a value of a run that differs from the one that a file was trained with."""
    if value != trained:
        raise ValueError(
            f"{name} {value} contradicts {path}, which was trained with {trained}: leave it out, or give {trained}"
        )
