# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options that a training takes from the file of weights that it starts from."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from monai_afire.apps.runs.call import BundleCall, needs_evaluation, referenced_names
from monai_afire.apps.runs.declarations import ENCODER_OPTIONS, OPTIONS
from monai_afire.apps.runs.help_text import describe_default
from monai_afire.apps.runs.run_folder import stopped_run
from monai_afire.networks.definition import encoder_definition
from monai_afire.networks.nets.encoders.encoder_building import IMAGENET, RESIDUAL
from monai_afire.networks.weights.model_file import read_description
from monai_afire.networks.weights.released_files import weights_file

__all__ = ["described_options", "take_from_weights"]

logger = logging.getLogger(__name__)

_LIBRARIES = {"HuggingFaceEncoder": "hub", "TimmEncoder": "timm"}
_NAMES = {"ResidualEncoder": RESIDUAL, "EfficientNetLiteEncoder": IMAGENET}
_RESIZED = ("image_size", "patch_size")  # load_encoder_weights fits an encoder to other values


def described_options(path: str | os.PathLike) -> dict[str, Any]:
    """
    What a file says about its network and images, by the names of the options of a training.

    Args:
        path: the file.

    Returns:
        The options by name; none for a file that is missing or of another program.

    Raises:
        ValueError: when the file has a wrong description.

    Example:
        >>> described_options("no/model.pt")
        {}
    """
    description = read_description(path)
    if description is None:
        return {}
    options = {**_encoder_arguments(description.network), **description.settings}
    options |= {"class_names": description.class_names, "label_kind": description.label_kind}
    if description.preprocessing is not None:
        options |= asdict(description.preprocessing)
    return {
        name: _one_for_all(value)
        for name, value in options.items()
        if name in OPTIONS and value is not None
    }


def _encoder_arguments(definition: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of a network's encoder by the names that they have as options."""
    encoder = encoder_definition(definition) or {"class": "", "arguments": {}}
    kind, arguments = encoder["class"], encoder["arguments"]
    if kind in _LIBRARIES:
        return {"encoder": f"{_LIBRARIES[kind]}:{arguments['model']}"}
    if kind == "ViTEncoder":
        return _renamed(arguments)
    if kind not in _NAMES:
        return {}  # no options describe it
    sizes = {name: arguments[name] for name in ("img_size", "patch_size") if name in arguments}
    return {"encoder": _NAMES[kind], **_renamed(sizes)}


def _renamed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an encoder by the names of options."""
    return {
        "image_size" if name == "img_size" else name: value for name, value in arguments.items()
    }


def _one_for_all(value: Any) -> Any:
    """One number where all axes have the same."""
    is_per_axis = isinstance(value, list) and len(value) > 1 and isinstance(value[0], (int, float))
    return value[0] if is_per_axis and len(set(value)) == 1 else value


def take_from_weights(call: BundleCall, wrong: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """
    Put what the weights of a training say about its encoder into the config.

    Without the content of the config's files nothing changes, since values of a caller look like defaults then.

    Args:
        call: the start of the training; its config is changed.
        wrong: options whose values in the config cannot be read.

    Yields:
        Name and problem of each option that contradicts the weights, or has no possible value there.
    """
    source, path = _start_of(call)
    options = described_options(path) if path else {}
    own = {}
    for name in ENCODER_OPTIONS:
        if name not in options or name not in call.read_names & call.config.keys() or name in wrong:
            continue
        try:
            value = _read(name, options[name])
        except ValueError as error:
            yield name, f"{path} says {error}"
            continue
        given, where = _given(call, name)
        if given is None:
            own[name] = value
        elif _one_for_all(given) != _one_for_all(value) and not (
            source == "encoder_weights" and name in _RESIZED
        ):
            chosen, trained = describe_default(given), describe_default(value)
            yield (
                name,
                f"{chosen}{where} contradicts {path}, which was trained with {trained}: leave it out",
            )
    changed = {name: value for name, value in own.items() if call.config[name] != value}
    for name, value in changed.items():
        call.replace(name, value)
    if changed:
        logger.info(
            f"from {path}: {', '.join(f'{name} {describe_default(value)}' for name, value in changed.items())}"
        )


def _start_of(call: BundleCall) -> tuple[str, Path | None]:
    """The option that names the first file with a description of an encoder, and this file."""
    if call.files is None or "ckpt_path" in call.config:
        return "", None
    if call.config.get("resume") is True and (folder := _stopped_run(call)):
        path = folder / "checkpoint.pt"
        if described_options(path):
            return "ckpt_dir", path
    for name in ("pretrained", "encoder_weights"):
        value = call.value(name) if name in call.config and name in call.read_names else None
        if value and isinstance(value, (str, os.PathLike)) and described_options(value):
            return name, weights_file(value)
    return "", None


def _stopped_run(call: BundleCall) -> Path | None:
    """Folder of the checkpoint of the run to resume; no folder is made for it yet."""
    for name, inside in (("ckpt_dir", ""), ("output_dir", "models")):
        value = call.config.get(name)
        if value is not None and not referenced_names(value) & {"run_dir", "output_dir"}:
            return Path(call.value(name), inside)
    if "run_dir" not in call.config:
        return None
    step = call.config["run_dir"]["step"]
    found = stopped_run(call.value("bundle_root"), step, call.config.get("name"))
    return None if found is None else found / "models"


def _read(name: str, value: Any) -> Any:
    """The values of a file are data, never expressions, since anybody may have written it."""
    if needs_evaluation(value):
        raise ValueError(f"{value!r}, which is no plain value: do not use this file")
    return OPTIONS[name].read(value)


def _given(call: BundleCall, name: str) -> tuple[Any, str]:
    """The value that someone chose, with where it stands; None for a default."""
    if name in call.overrides:
        return call.value(name), ""
    first, *overlays = call.layers.items()
    for path, content in reversed(
        overlays if name in first[1] else []
    ):  # else a default of the overlay that adds it
        if name in content:
            return call.value(name), f" (of {Path(path).name})"
    return None, ""
