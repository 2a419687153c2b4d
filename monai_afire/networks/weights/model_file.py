# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of whole networks: written with a description, read back, and built from it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monai_afire.networks.definition import build_network, encoder_definition
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.weights.checkpoint_files import (
    file_description,
    network_state,
    read_description,
    read_own,
    write_pickle,
)
from monai_afire.networks.weights.description import (
    TASKS,
    Description,
    Preprocessing,
    contradiction,
    describe,
    one_for_all,
    tensor_digest,
    with_description,
)
from monai_afire.networks.weights.safetensors_files import read_safetensors
from monai_afire.networks.weights.weight_loading import load_encoder_weights
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import is_safetensors, joined_path

__all__ = [
    "ModelFile",
    "check_fits",
    "load_network",
    "pretrained_afire",
    "save_network",
    "saved_network",
]

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
        write_pickle(
            with_description(network.state_dict(), describe(network, **(description or {}))), file
        )
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
        RuntimeError: when it holds another network; the first differences are named.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "model.pt")
        >>> torch.save(nn.Linear(2, 1).state_dict(), path)
        >>> load_network(nn.Linear(2, 1), path)
    """
    state = ModelFile(path, hint=hint).state_dict
    found, expected = read_description(path), TASKS.get(type(network).__name__)
    if found is not None and found.task in TASKS.values() and expected not in (None, found.task):
        raise RuntimeError(
            f"{path} is for another task, {found.task} instead of {expected}: {hint or 'take another'}"
        )
    check_fits(
        state,
        network.state_dict(),
        path,
        "give the settings (sizes, layers) of the run that wrote it",
    )
    network.load_state_dict(state)


def check_fits(
    saved: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    path: str | os.PathLike,
    remedy: str,
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
        RuntimeError: model.pt holds another architecture (differences: 1, such as a is (2,) in the file, (3,) in
        the network): use the same settings
    """
    differences = []
    for name in {**expected, **saved}:
        in_file, in_network = _shape(saved, name), _shape(expected, name)
        if in_file != in_network:
            differences.append(f"{name} is {in_file} in the file, {in_network} in the network")
    if differences:
        some = f"differences: {len(differences)}, such as {'; '.join(differences[:3])}"
        raise RuntimeError(f"{path} holds another architecture ({some}): {remedy}")


def _shape(tensors: Mapping[str, torch.Tensor], name: str) -> tuple[int, ...] | str:
    return tuple(tensors[name].shape) if name in tensors else "missing"


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
        # without one, the reading of the tensors says what is wrong with a damaged file
        found = read_description(path) or file_description(path, {}, self.state_dict)
        if found is None:
            raise ValueError(
                f"{path} does not say how to build its network: build it yourself and use load_network"
            )
        if self.task is not None and found.task != self.task:
            raise ValueError(
                f"{path} is {_a(found.task)}, not {_a(self.task)}: {self.hint or 'use another file'}"
            )
        return found

    @property
    def identity(self) -> Description:
        """The description, with a digest of the tensors also where it has none."""
        return replace(
            self.description, digest=self.description.digest or tensor_digest(self.state_dict)
        )

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become the network's input."""
        if self.description.preprocessing is None:
            raise ValueError(f"{self.path} does not say how its images are pre-processed")
        return self.description.preprocessing

    image_size = property(
        attrgetter("preprocessing.image_size"), doc="Pixels along each axis, or one number."
    )
    channels = property(attrgetter("preprocessing.channels"), doc="Channels of the images.")
    standardize = property(
        attrgetter("preprocessing.standardize"), doc="Whether the contrast is standardized."
    )
    label_kind = property(
        attrgetter("description.label_kind"), doc="Kind of labels of a classifier."
    )
    trained_on = property(
        attrgetter("description.trained_on"),
        doc='"phantoms" or "radiographs"; None where the file does not say.',
    )
    settings = property(
        attrgetter("description.settings"), doc="Other values of the run that wrote the file."
    )

    @property
    def class_names(self) -> list[str]:
        """Names of the outputs in their order."""
        if self.description.class_names is None:
            raise ValueError(f"{self.path} has no class names")
        return self.description.class_names

    @cached_property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The network's tensors on the CPU; their digest is verified where the file has one."""
        path = self._existing_file()
        if is_safetensors(path):
            return read_safetensors(path, _COPY_AGAIN)[0]
        state = network_state(read_own(path, _COPY_AGAIN), path)
        found = file_description(path, {}, state)
        if found is not None and found.digest not in (None, tensor_digest(state)):
            raise ValueError(
                f"{path} is damaged: the digest of its tensors does not match; {_COPY_AGAIN}"
            )
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
            ValueError: when the description is impossible, or does not fit the tensors.
        """
        definition, name = self.description.network, str(self.path)
        if definition is None:
            raise ValueError(
                f"{name} holds a network of another package: build it yourself and use load_network"
            )
        state, classes = self.state_dict, _classes(definition)
        if self.description.task == "encoder" and not any(
            each.startswith(_OWN_NAMES) for each in state
        ):
            encoder = build_network(definition, name, **replaced)
            # translates another library's names
            load_encoder_weights(encoder, self.path, strict=True)
            return encoder.eval()
        if "AFiRe" in classes and not any(".teacher_" in f".{each}" for each in state):
            # a detector's file leaves the teacher out, which is the student then
            students = [each for each in state if _STUDENT.match(each)]
            state = state | {_STUDENT.sub(r"\1teacher_\2.", each): state[each] for each in students}
        remedy = "its description is of another network: copy the file again"
        try:
            if not classes & {"HuggingFaceEncoder", "TimmEncoder", "MONAIEncoder"}:
                check_fits(state, _shapes(definition, name, replaced), name, remedy)
            network = build_network(definition, name, **replaced)
            check_fits(state, network.state_dict(), name, remedy)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        network.load_state_dict(state)
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
            if value != (own := getattr(self, name)):
                raise ValueError(contradiction(name, value, self.path, own))

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


def saved_network(file: ModelFile, **replaced: Any) -> nn.Module:
    """
    The network that a file describes, with its weights, for configs.

    Args:
        file: with a description.
        replaced: arguments of the network's class in the place of the file's.

    Returns:
        The network, in evaluation mode; see :meth:`ModelFile.build`.

    Example:
        >>> import tempfile
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, hidden_size=8, num_layers=1, num_heads=1)
        >>> path = save_network(encoder, [tempfile.mkdtemp(), "model.pt"], {"task": "encoder"})
        >>> saved_network(ModelFile(path, "encoder")).grid_size
        (2, 2)
    """
    return file.build(**replaced)


def _shapes(
    definition: Mapping[str, Any], name: str, replaced: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """State dict without memory: a description that does not fit its tensors must not fill the machine first."""
    with warnings.catch_warnings(), torch.device("meta"):
        # the lung finder's own weights cannot be loaded without memory
        warnings.simplefilter("ignore")
        return build_network(definition, name, **replaced).state_dict()


def _classes(definition: Any) -> set[str]:
    if not isinstance(definition, Mapping):
        return set()
    arguments = definition.get("arguments")
    inner = arguments.values() if isinstance(arguments, Mapping) else ()
    return {str(definition.get("class"))}.union(*map(_classes, inner))


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
    temperature = {
        name: value for name, value in arguments.items() if name == "teacher_temperature"
    }
    network = ModelFile(path, TASKS["AFiRe"], hint).build(
        contrast=True, restore=True, **temperature
    )
    if "encoder" in arguments:
        _check_sizes(arguments["encoder"], network.encoder, path)
    return network


def _check_sizes(given: Any, trained: Any, path: str | os.PathLike) -> None:
    """Refuse images that a whole network does not take: only encoders are fitted to other sizes."""
    for option, name in (("image_size", "img_size"), ("patch_size", "patch_size")):
        chosen, own = one_for_all(getattr(given, name)), one_for_all(getattr(trained, name))
        if chosen != own:
            raise ValueError(contradiction(option, chosen, path, own))


def _a(task: str) -> str:
    return f"an {task}" if task[0] in "aeiou" else f"a {task}"
