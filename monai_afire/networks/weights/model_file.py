# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of networks that say what they hold: network, pre-processing, class names, and a digest of the tensors."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from monai_afire.networks.definition import build_network, definition_of
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.weights.checkpoint_files import read_own
from monai_afire.networks.weights.released import RELEASED, released_encoder
from monai_afire.utils.files import is_safetensors

__all__ = [
    "Description",
    "ModelFile",
    "Preprocessing",
    "describe",
    "pretrained_afire",
    "read_description",
    "tensor_digest",
    "with_description",
]

logger = logging.getLogger(__name__)

FORMAT = 1
HEADER = "description"  # entry of a safetensors header and of an exported graph's metadata, as JSON
ENTRY = "monai_afire"  # entry of the metadata of a state dict
TASKS = {
    "AnomalyDetector": "anomaly detector",
    "TransferClassifier": "classifier",
    "UPerNet": "segmenter",
    **{name: f"pre-trained {name} network" for name in ("AFiRe", "PEAC", "ACE", "DINO", "MAE")},
}
_COPY_AGAIN = (
    "copy it again from where it is whole; if a training run on this machine wrote it, delete it and run that once "
    "more with resume set to true (--resume true), which writes it from checkpoint.pt"
)


@dataclass(frozen=True)
class Preprocessing:
    """
    How images become the input of a network.

    Args:
        image_size: pixels along each axis, or one number for all axes.
        channels: 1 for gray, 3 for color.
        spatial_dims: 2 for pictures, 3 for volumes.
        spacing: millimeters per pixel that images are resampled to, one number or one per axis; None for no resampling.
        intensity_window: lowest and highest value of the window; None for the one in the file.
        standardize: whether the contrast is standardized.

    Raises:
        ValueError: when a value is out of range.

    Example:
        >>> Preprocessing(image_size=0)
        Traceback (most recent call last):
        ValueError: image_size is 0, needs whole numbers from 1 to 16384
    """

    image_size: int | list[int]
    channels: int = 1
    spatial_dims: int = 2
    spacing: float | list[float] | None = None
    intensity_window: list[float] | None = None
    standardize: bool = False

    def __post_init__(self) -> None:
        _require(_all(self.image_size, int, 1, 16_384), "image_size", self.image_size, "whole numbers from 1 to 16384")
        _require(_all(self.channels, int, 1, 3), "channels", self.channels, "1, 2 or 3")
        _require(self.spatial_dims in (2, 3), "spatial_dims", self.spatial_dims, "2 or 3")
        _require(self.spacing is None or _all(self.spacing, float, 1e-6, 1e6), "spacing", self.spacing, "null or > 0")
        window = self.intensity_window
        fits = window is None or (isinstance(window, list) and len(window) == 2 and _all(window, float, -1e9, 1e9))
        _require(fits and (window is None or window[0] < window[1]), "intensity_window", window, "null or [low, high]")
        _require(isinstance(self.standardize, bool), "standardize", self.standardize, "true or false")


@dataclass(frozen=True)
class Description:
    """
    What a file says about the network in it.

    Args:
        task: what the network is for, such as "classifier" or "pre-trained AFiRe network".
        network: its definition, see :func:`monai_afire.networks.definition_of`; None for a class of another package.
        preprocessing: of the images.
        class_names: names of the outputs in their order; None where there are none.
        label_kind: "multilabel" or "multiclass" of a classifier.
        settings: other values that later steps need, such as the size of a grid.
        digest: of the tensors, see :func:`tensor_digest`.
        version: of this package.
        format: of the description.

    Raises:
        ValueError: when an entry is of the wrong type.
    """

    task: str
    network: dict[str, Any] | None = None
    preprocessing: Preprocessing | None = None
    class_names: list[str] | None = None
    label_kind: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    digest: str | None = None
    version: str = ""
    format: int = FORMAT

    def __post_init__(self) -> None:
        _require(isinstance(self.task, str) and bool(self.task), "task", self.task, "a text")
        _require(self.network is None or isinstance(self.network, dict), "network", self.network, "a definition")
        names = self.class_names
        are_names = names is None or (isinstance(names, list) and all(isinstance(each, str) for each in names))
        _require(are_names, "class_names", names, "a list of texts")
        kinds = (None, "multilabel", "multiclass")
        _require(self.label_kind in kinds, "label_kind", self.label_kind, "multilabel or multiclass")
        _require(isinstance(self.settings, dict), "settings", self.settings, "a dictionary")
        _require(self.digest is None or isinstance(self.digest, str), "digest", self.digest, "a text")
        _require(self.format == FORMAT, "format", self.format, f"{FORMAT}: a newer version of this package wrote it")

    def as_data(self) -> dict[str, Any]:
        """The description as JSON data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Any) -> Description:
        """
        Read a description, which may be of anybody's making.

        Raises:
            ValueError: when an entry is unknown, missing or wrong.

        Example:
            >>> Description.from_data({"task": "classifier", "network": 3})
            Traceback (most recent call last):
            ValueError: network is 3, needs a definition
        """
        known = {each.name for each in fields(cls)}
        if not isinstance(data, Mapping) or "task" not in data or not set(data) <= known:
            raise ValueError(f"the description has other entries than {', '.join(sorted(known))}")
        preprocessing = data.get("preprocessing")
        if preprocessing is not None:
            try:
                preprocessing = Preprocessing(**preprocessing)
            except TypeError as error:
                raise ValueError(f"preprocessing is wrong ({error})") from error
        return cls(**{**data, "preprocessing": preprocessing})


def describe(
    network: Any,
    task: str | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    class_names: Any = None,
    label_kind: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Description:
    """
    Describe a network for the file that it is written to.

    Args:
        network: unwrapped.
        task: what it is for; None for the usual task of its class.
        preprocessing: arguments of :class:`Preprocessing`, those that its encoder knows left out; None where they are
            not known.
        class_names: names of the outputs.
        label_kind: of a classifier.
        settings: other values that later steps need. With a pre-processing, the encoder adds its "patch_size".

    Returns:
        The description, without a digest.

    Example:
        >>> from monai_afire.networks import TransferClassifier, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> describe(TransferClassifier(encoder, num_classes=1), class_names=["Nodule"]).task
        'classifier'
    """
    from monai_afire import __version__  # the package imports this module

    definition = definition_of(network)
    if definition is None:
        name = f"{type(network).__module__}.{type(network).__qualname__}"
        logger.warning(f"{name} is of another package: its file holds no definition, so later steps need network_def")
    if preprocessing is not None:
        preprocessing, settings = _with_input_of(network, preprocessing, settings or {})
    is_known = preprocessing is not None and "image_size" in preprocessing  # another library's network does not say
    return Description(
        task=task or TASKS.get(type(network).__name__, "encoder" if hasattr(network, "grid_size") else "network"),
        network=definition,
        preprocessing=Preprocessing(**_plain(preprocessing)) if is_known else None,
        class_names=None if class_names is None else [str(name) for name in class_names],
        label_kind=label_kind,
        settings=_plain(settings or {}),
        version=__version__,
    )


def _with_input_of(
    network: Any, preprocessing: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pre-processing and settings, completed by what the network's encoder says about its input."""
    modules = network.modules() if isinstance(network, torch.nn.Module) else ()
    encoder: Any = next(
        (module for module in modules if hasattr(module, "in_channels") and hasattr(module, "img_size")), None
    )
    if encoder is None:
        return dict(preprocessing), dict(settings)
    image_size, patch_size = _one_for_all(encoder.img_size), _one_for_all(encoder.patch_size)
    known = {"image_size": image_size, "channels": encoder.in_channels, "spatial_dims": len(encoder.img_size)}
    return {**known, **preprocessing}, {"patch_size": patch_size, **settings}


def _one_for_all(sizes: Any) -> Any:
    """One number where all axes have the same."""
    sizes = list(sizes)
    return sizes[0] if len(set(sizes)) == 1 else sizes


def tensor_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """
    SHA-256 of names, data types, shapes and bytes of tensors.

    Example:
        >>> a, b = torch.zeros(2), torch.ones(1)
        >>> tensor_digest({"a": a, "b": b}) == tensor_digest({"b": b, "a": a}) != tensor_digest({"a": a, "b": b + 1})
        True
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"


def with_description(
    state_dict: Mapping[str, torch.Tensor], description: Description
) -> OrderedDict[str, torch.Tensor]:
    """
    A state dict that carries a description of its network, with the digest of its tensors.

    The description is in the metadata that PyTorch keeps beside the tensors of a state dict: ``torch.save`` writes it,
    ``torch.load(..., weights_only=True)`` reads it, and ``load_state_dict`` ignores it.

    Args:
        state_dict: of a network; untouched.
        description: see :func:`describe`.

    Returns:
        The same tensors by the same names.
    """
    described = OrderedDict(state_dict)
    metadata = dict(getattr(state_dict, "_metadata", {}))
    data = replace(description, digest=tensor_digest(state_dict)).as_data()
    metadata[""] = {**metadata.get("", {}), ENTRY: data}
    described._metadata = metadata  # type: ignore[attr-defined]
    return described


def read_description(path: str | os.PathLike) -> Description | None:
    """
    What a file says about its network. No tensor is read, nothing is verified but the description itself.

    Args:
        path: a file of ``torch.save``, in which the state dict may be nested, or a safetensors file, or "released".

    Returns:
        The description; None for a file that is missing, damaged, or has none.

    Raises:
        ValueError: when the description is wrong; the message names the file.

    Example:
        >>> read_description("no/model.pt") is None
        True
    """
    path = file_of(path)
    if not path.is_file():
        return None
    try:
        header, state = _safetensors_header(path) if is_safetensors(path) else ({}, _mapped_state(path))
    except Exception:  # damage fails in a dozen ways, and says so again when the weights are loaded
        return None
    return _description(path, header, state)


def file_of(path: str | os.PathLike) -> Path:
    """The file of a path, or of the word for the released encoder."""
    return released_encoder() if path == RELEASED else Path(path)


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
        found = read_description(path)
        if found is None:
            found = _description(path, {}, self.state_dict)  # says what is wrong with a damaged file
        if found is None:
            raise ValueError(
                f"{path} does not say how to build its network, since no bundle wrote it: build the network yourself "
                "and use monai_afire.networks.load_network, or load_encoder_weights for an encoder"
            )
        if self.task is not None and found.task != self.task:
            raise ValueError(f"{path} is {_a(found.task)}, not {_a(self.task)}: {self.hint or 'take another file'}")
        return found

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become the network's input."""
        if self.description.preprocessing is None:
            raise ValueError(f"{self.path} does not say how its images are pre-processed")
        return self.description.preprocessing

    @property
    def image_size(self) -> int | list[int]:
        """Pixels along each axis, or one number for all axes."""
        return self.preprocessing.image_size

    @property
    def channels(self) -> int:
        """Channels of the images."""
        return self.preprocessing.channels

    @property
    def spatial_dims(self) -> int:
        """Axes of the images."""
        return self.preprocessing.spatial_dims

    @property
    def spacing(self) -> float | list[float] | None:
        """Millimeters per pixel; None for no resampling."""
        return self.preprocessing.spacing

    @property
    def intensity_window(self) -> list[float] | None:
        """Lowest and highest value of the window."""
        return self.preprocessing.intensity_window

    @property
    def standardize(self) -> bool:
        """Whether the contrast is standardized."""
        return self.preprocessing.standardize

    @property
    def class_names(self) -> list[str]:
        """Names of the outputs in their order."""
        if self.description.class_names is None:
            raise ValueError(f"{self.path} has no class names")
        return self.description.class_names

    @property
    def label_kind(self) -> str | None:
        """Of a classifier."""
        return self.description.label_kind

    @property
    def settings(self) -> dict[str, Any]:
        """Other values of the run that wrote the file."""
        return self.description.settings

    @cached_property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The network's tensors on the CPU; their digest is verified where the file has one."""
        path = self._existing_file()
        header: dict[str, str] = {}
        if is_safetensors(path):
            state, header = _read_safetensors(path)
        else:
            state = _network_state(read_own(path, _COPY_AGAIN), path)
        found = _description(path, header, state)
        if found is not None and found.digest is not None and tensor_digest(state) != found.digest:
            raise ValueError(f"{path} is damaged: the digest of its tensors does not match; {_COPY_AGAIN}")
        return state

    def _existing_file(self) -> Path:
        path = file_of(self.path)
        if not path.is_file():
            raise FileNotFoundError(
                f"there are no weights {path} (in {Path.cwd()}): {self.hint or 'check the path'}; if a run has written "
                "them elsewhere, name the file (--ckpt_path, --pretrained), or the folder of the bundle (--bundle_root)"
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
        from monai_afire.networks.weights.loading import load_encoder_weights
        from monai_afire.networks.weights.whole_network import check_fits

        definition = self.description.network
        if definition is None:
            raise ValueError(f"{self.path} holds a network of another package: build it yourself and load_network")
        state = self.state_dict
        if self.description.task == "encoder" and _is_foreign(state):
            encoder = build_network(definition, str(self.path), **replaced)
            load_encoder_weights(encoder, file_of(self.path), strict=True)
            return encoder.eval()
        state = _with_teacher(state) if "AFiRe" in _classes(definition) else state
        remedy = "its description is of another network: copy the file again"
        try:
            if not {"HuggingFaceEncoder", "TimmEncoder", "MONAIEncoder"} & _classes(definition):
                check_fits(state, _shapes(definition, str(self.path), replaced), self.path, remedy)
            network = build_network(definition, str(self.path), **replaced)
            check_fits(state, network.state_dict(), self.path, remedy)
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
            own = getattr(self, name)
            if value != own:
                raise ValueError(
                    f"--{name}: {value} contradicts {self.path}, which was trained with {own}: leave it out"
                )

    def build_encoder(self) -> Any:
        """
        Build the network's encoder alone, with random weights.

        Returns:
            The encoder.

        Raises:
            ValueError: when the description is impossible, or has no encoder.
        """
        definition: Any = self.description.network
        while definition is not None and "Encoder" not in str(definition["class"]):
            parts = definition["arguments"]
            definition = parts.get("encoder", parts.get("network"))
        if definition is None:
            raise ValueError(f"{self.path} describes no encoder")
        return build_network(definition, str(self.path))


def _shapes(definition: Mapping[str, Any], name: str, replaced: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """State dict without memory: a description that does not fit its tensors must not fill the machine first."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")  # the lung finder's own weights cannot be loaded without memory
        return build_network(definition, name, **replaced).state_dict()


def _classes(definition: Any) -> set[str]:
    if not isinstance(definition, Mapping):
        return set()
    arguments = definition.get("arguments")
    inner = arguments.values() if isinstance(arguments, Mapping) else ()
    return {str(definition.get("class"))}.union(*map(_classes, inner))


def _is_foreign(state: Mapping[str, torch.Tensor]) -> bool:
    """Whether an encoder's tensors have another library's names."""
    return not any(name.startswith(("patch_embedding.", "layers.")) for name in state)


def pretrained_afire(path: str | os.PathLike | None, hint: str = "", **arguments: Any) -> AFiRe:
    """
    An AFiRe network to go on training: that of a file, or a new one.

    Args:
        path: the file; empty for a new network.
        hint: what to do if there is no such file, for the message.
        arguments: of ``AFiRe``. With a file, only the temperature of the teacher counts; the others are the file's.

    Returns:
        The network, with teacher and decoder.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it holds no pre-trained AFiRe network.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> pretrained_afire("", encoder=encoder, num_clusters=8).bank.prototypes.shape
        torch.Size([16, 8])
    """
    if not path:
        return AFiRe(**arguments)
    temperature = {name: value for name, value in arguments.items() if name == "teacher_temperature"}
    return ModelFile(path, TASKS["AFiRe"], hint).build(contrast=True, restore=True, **temperature)


TEACHER = {"teacher_encoder.": "encoder.", "teacher_head.": "head."}


def _with_teacher(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A detector's file may leave the teacher out: it is the student then."""
    filled = dict(state)
    if any(".teacher_" in f".{name}" for name in state):
        return filled
    for teacher, student in TEACHER.items():
        for prefix in ("", "network."):
            own = [name for name in state if name.startswith(prefix + student)]
            filled |= {prefix + teacher + name.removeprefix(prefix + student): state[name] for name in own}
    return filled


def _safetensors_header(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    with safe_open(path, framework="pt") as content:
        return content.metadata() or {}, {}


def _read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as content:
            header = content.metadata() or {}
            return {name: content.get_tensor(name) for name in content.keys()}, header  # noqa: SIM118  no dictionary
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete safetensors file ({error}); {_COPY_AGAIN}") from error


def _mapped_state(path: Path) -> Any:
    """The network's state dict with tensors that stay on the disk."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        return _network_state(torch.load(path, map_location="cpu", weights_only=True, mmap=True), path)


def _network_state(content: Any, path: Path) -> Any:
    """Of ``model.pt`` itself, or of the network in a checkpoint."""
    if isinstance(content, Mapping) and isinstance(content.get("network"), Mapping):
        content = content["network"]
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__} instead of a network's state dict")
    return content


def _description(path: Path, header: Mapping[str, str], state: Any) -> Description | None:
    """From a safetensors header or a state dict, or translated from what older versions wrote."""
    from monai_afire.networks.weights.older_files import described_by_header, described_by_options

    try:
        if HEADER in header:
            return Description.from_data(json.loads(header[HEADER]))
        if header:
            return described_by_header(header)
        metadata = getattr(state, "_metadata", None)
        whole = metadata.get("") if isinstance(metadata, Mapping) else None
        data = whole.get(ENTRY) if isinstance(whole, Mapping) else None
        if not isinstance(data, Mapping):
            return None
        return Description.from_data(data) if "format" in data else described_by_options(data, state)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has a wrong description: {error}") from error


def _a(task: str) -> str:
    return f"an {task}" if task[0] in "aeiou" else f"a {task}"


def _plain(value: Any) -> Any:
    """JSON data of values that a config holds."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value


def _all(value: Any, kind: type, low: float, high: float) -> bool:
    values = value if isinstance(value, list) else [value]
    kinds = (int, float) if kind is float else (int,)
    return 0 < len(values) <= 3 and all(
        isinstance(each, kinds) and not isinstance(each, bool) and low <= each <= high for each in values
    )


def _require(fits: bool, name: str, value: Any, needed: str) -> None:
    if not fits:
        raise ValueError(f"{name} is {value!r}, needs {needed}"[:300])
