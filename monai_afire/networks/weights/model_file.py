# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of whole networks: written with a description, read back, and built from it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monai_afire.networks.definition import build_network, encoder_definition
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.weights.checkpoint_files import (
    check_digest,
    network_state,
    read_description,
    read_own,
    read_safetensors,
    write_pickle,
)
from monai_afire.networks.weights.description import (
    TASKS,
    Description,
    describe,
    from_state,
    one_for_all,
    tensor_digest,
    with_description,
)
from monai_afire.networks.weights.weight_loading import load_encoder_weights
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import is_safetensors, joined_path

__all__ = ["ModelFile", "load_network", "pretrained_afire", "save_network", "saved_network"]

_COPY_AGAIN = (
    "copy the file again, or let the run write it again from checkpoint.pt (--resume True)"
)
_OWN_NAMES = ("patch_embedding.", "layers.")  # of encoders
_STUDENT = re.compile(r"^(network\.)?(encoder|head)\.")


def save_network(
    network: nn.Module,
    path: str | os.PathLike | Sequence[str | os.PathLike],
    description: Mapping[str, Any] | None = None,
) -> Path:
    """
    Write a network's state dict for :func:`load_network`, complete or not at all.

    Args:
        network: unwrapped.
        path: the file, or its parts to be joined. Only the first process of several writes it.
        description: arguments of ``describe`` besides the network.

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
        about = describe(network, **(description or {}))
        write_pickle(with_description(network.state_dict(), about), file)
    return file


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
        RuntimeError: when it holds another network.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "model.pt")
        >>> torch.save(nn.Linear(2, 1).state_dict(), path)
        >>> load_network(nn.Linear(2, 1), path)
    """
    _load(network, ModelFile(path, hint=hint).state_dict, path)


def _load(network: nn.Module, state: Mapping[str, Any], path: str | os.PathLike) -> None:
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise RuntimeError(
            f"{path} holds another network: give the settings of the run that wrote it. {str(error)[:500]}"
        ) from error


class ModelFile:
    """
    A network's file of this package: what it says about the network, and the network itself.

    It reads the description when that is first needed, and the tensors, whose digest it verifies, in :meth:`build`.

    Args:
        path: the file: ``model.pt`` or ``checkpoint.pt`` of a run, or a safetensors file.
        task: what the network must be for, or None for anything.
        hint: what to do if there is no such file, or if its network is for another task, for the message.

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

    def __init__(self, path: str | os.PathLike, task: str | None = None, hint: str = "") -> None:
        self.path = path
        self.task = task
        self.hint = hint

    @cached_property
    def description(self) -> Description:
        """What the file says about its network."""
        path = self._existing_file()
        # where there is none, the reading of the tensors says whether the file is damaged
        found = read_description(path) or from_state(self.state_dict)
        if found is None:
            raise ValueError(
                f"{path} does not say how to build its network: build it yourself and use load_network"
            )
        if self.task is not None and found.task != self.task:
            raise ValueError(
                f"{path} is for another task, {found.task} instead of {self.task}: {self.hint or 'use another file'}"
            )
        return found

    @property
    def identity(self) -> Description:
        """The description, with a digest of the tensors also where it has none."""
        digest = self.description.digest or tensor_digest(self.state_dict)
        return replace(self.description, digest=digest)

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
    def class_names(self) -> list[str]:
        """Names of the outputs in their order."""
        if self.description.class_names is None:
            raise ValueError(f"{self.path} has no class names")
        return self.description.class_names

    @property
    def label_kind(self) -> str | None:
        """Kind of labels of a classifier."""
        return self.description.label_kind

    @property
    def trained_on(self) -> str | None:
        """Whether it was trained on "phantoms" or "radiographs"; None where the file does not say."""
        return self.description.trained_on

    @property
    def settings(self) -> dict[str, Any]:
        """Other values of the run that wrote the file."""
        return self.description.settings

    @cached_property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The network's tensors on the CPU; their digest is verified where the file has one."""
        path = self._existing_file()
        if is_safetensors(path):
            return read_safetensors(path, _COPY_AGAIN)[0]
        state = network_state(read_own(path, _COPY_AGAIN), path)
        check_digest(from_state(state), state, path, _COPY_AGAIN)
        return state

    def _existing_file(self) -> Path:
        path = Path(self.path)
        if not path.is_file():
            raise FileNotFoundError(
                f"there are no weights {path} (in {Path.cwd()}): {self.hint or 'check the path'}"
            )
        return path

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
                f"{self.path} holds a network of another package: build it yourself and use load_network"
            )
        network = build_network(definition, str(self.path), **replaced)
        is_encoder = self.description.task == "encoder"
        if is_encoder and not any(each.startswith(_OWN_NAMES) for each in self.state_dict):
            load_encoder_weights(network, self.path, strict=True)  # translates a library's names
        else:
            _load(network, _with_teacher(self.state_dict, network), self.path)
        return network.eval()

    def check(self, **given: Any) -> None:
        """
        Refuse values that contradict the file.

        Args:
            given: what a run is going to use, by the names of this object's properties.

        Raises:
            ValueError: when one differs from the file's.
        """
        for name, value in given.items():
            check_same(name, value, getattr(self, name), self.path)

    def build_encoder(self) -> Any:
        """
        Build the network's encoder alone, with random weights.

        Returns:
            The encoder.

        Raises:
            ValueError: when the description is impossible, or has no encoder.
        """
        definition = encoder_definition(self.description.network)
        if definition is None:
            raise ValueError(f"{self.path} describes no encoder")
        return build_network(definition, str(self.path))


def check_same(name: str, value: Any, trained: Any, path: str | os.PathLike) -> None:
    """Refuse a value of a run that differs from the one that a file was trained with."""
    if value != trained:
        raise ValueError(
            f"{name} {value} contradicts {path}, which was trained with {trained}: leave it out, or give {trained}"
        )


def _with_teacher(state: dict[str, torch.Tensor], network: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of an AFiRe network; a detector's file leaves the teacher out, which is the student then."""
    has_teacher = any(".teacher_" in f".{name}" for name in state)
    if has_teacher or not any(isinstance(module, AFiRe) for module in network.modules()):
        return state
    students = [name for name in state if _STUDENT.match(name)]
    return state | {_STUDENT.sub(r"\1teacher_\2.", name): state[name] for name in students}


def saved_network(file: ModelFile, **replaced: Any) -> nn.Module:
    """
    The network that a file describes, with its weights, for configs.

    Args:
        file: with a description.
        replaced: arguments of the network's class in the place of the file's.

    Returns:
        The network, in evaluation mode; see :meth:`ModelFile.build`.
    """
    return file.build(**replaced)


def pretrained_afire(path: str | os.PathLike | None, hint: str = "", **arguments: Any) -> AFiRe:
    """
    An AFiRe network to go on training: that of a file, or a new one around an encoder.

    Args:
        path: the file; empty, or of another network, for a new one.
        hint: what to do if there is no such file, for the message.
        arguments: of ``AFiRe``. With a file, only the temperature of the teacher counts; the others are the file's,
            and an ``encoder`` says the sizes of the images and patches.

    Returns:
        The network, with teacher and decoder.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it holds a network of other sizes than those of the encoder.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> pretrained_afire("", encoder=encoder, num_clusters=8).bank.prototypes.shape
        torch.Size([16, 8])
    """
    found = read_description(path) if path else None
    if not path or (found is not None and found.task != TASKS["AFiRe"]):
        return AFiRe(**arguments)
    kept = {name: arguments[name] for name in {"teacher_temperature"} & arguments.keys()}
    network = ModelFile(path, TASKS["AFiRe"], hint).build(contrast=True, restore=True, **kept)
    if encoder := arguments.get("encoder"):  # unlike an encoder, a whole network has one size
        for option, name in (("image_size", "img_size"), ("patch_size", "patch_size")):
            given, trained = (getattr(each, name) for each in (encoder, network.encoder))
            check_same(option, one_for_all(given), one_for_all(trained), path)
    return network
