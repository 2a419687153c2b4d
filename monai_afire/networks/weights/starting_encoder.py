# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a training has from the file of weights that it starts from: an encoder to load them into, and its images."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import nn

from monai_afire.networks.definition import build_network, definition_of, encoder_definition
from monai_afire.networks.nets.encoders.encoder_building import RESIDUAL, VIT, build_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.checkpoint_files import read_description
from monai_afire.networks.weights.description import (
    KNOWS_PHANTOMS,
    PHANTOMS,
    contradiction,
    one_for_all,
)
from monai_afire.networks.weights.finding import find_weights
from monai_afire.networks.weights.weight_loading import load_encoder_weights

__all__ = ["described", "seen_images", "starting_encoder"]

logger = logging.getLogger(__name__)

_PATCH_SIZE = 16
_SIZES = {"hidden_size": 192, "num_layers": 5, "num_heads": 6}  # of the ViT without a file


def described(path: str | os.PathLike | None, name: str, default: Any) -> Any:
    """
    What a file says of the images of its network, for a training that goes on from it.

    Args:
        path: the file, or the name of a released one; None for no file.
        name: of the value: "image_size", "channels", "standardize" or "trained_on".
        default: without a file, or where it does not say it.

    Returns:
        The value; one number where all axes have the same.

    Raises:
        ValueError: when the file has a wrong description.

    Example:
        >>> described("released", "image_size", 128), described(None, "image_size", 128)
        (64, 128)
    """
    found_path = find_weights(path)
    description = None if found_path is None else read_description(found_path)
    if description is None:
        return default
    definition = encoder_definition(description.network) or {"arguments": {}}
    arguments = definition["arguments"]
    found = {"image_size": arguments.get("img_size"), "channels": arguments.get("in_channels")}
    found["trained_on"] = description.trained_on
    if description.preprocessing is not None:
        found |= asdict(description.preprocessing)
    value = found.get(name)
    return default if value is None else one_for_all(value)


def seen_images(
    weights: str | os.PathLike | None, kind: str | None, is_frozen: bool = True
) -> str | None:
    """
    What images a network has seen, for the file of its weights.

    With a frozen encoder: drawn phantoms alone, if either part knows nothing else. An encoder that goes on learning has
    seen the new images, too.

    Args:
        weights: file of the encoder; None for random ones.
        kind: of the images that the rest was fitted to, "phantoms" or "radiographs"; None where it is not known.
        is_frozen: whether the encoder is as it was.

    Returns:
        "phantoms" or "radiographs"; None where it is not known.

    Example:
        >>> seen_images("released", "radiographs"), seen_images("released_cnn", "phantoms")
        ('radiographs', 'phantoms')
    """
    if kind == PHANTOMS or not is_frozen:
        return kind
    return described(weights, "trained_on", kind)


def starting_encoder(
    weights: str | os.PathLike | None = None,
    pretrained: bool = False,
    branch: str = "teacher",
    encoder: str | nn.Module | None = None,
    channels: int = 1,
    image_size: Sequence[int] | int = 128,
    patch_size: Sequence[int] | int | None = None,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
    standardize: bool | None = None,
    stem: str = "patch",
    use_checkpoint: bool = False,
    otherwise: str = RESIDUAL,
) -> RadiographEncoder:
    """
    Build the encoder that a file of weights describes, or another one where there is no file, and load the weights.

    Args:
        weights: the file, or the name of a released one. One without a description is of a ViT of the sizes given.
        pretrained: whether the weights are loaded, too; without a file, there are none.
        branch: which of two encoders in the file is loaded, "teacher" or "student".
        encoder: one of :func:`monai_afire.networks.build_encoder`, with random weights if they come from the file. None
            for the file's, or else ``otherwise``.
        channels: C, channels of the images.
        image_size: spatial size of the images in pixels, which may differ from the file's.
        patch_size: edge length of a patch in pixels, which may differ from the file's; None for the file's, or 16.
        hidden_size: D, width of the tokens of a ViT; None for the file's, or 192.
        num_layers: number of transformer blocks of a ViT; None for the file's, or 5.
        num_heads: attention heads of a ViT; None for the file's, or 6.
        standardize: whether the contrast of the images is standardized; None for not to be checked.
        stem: of a ViT without a file.
        use_checkpoint: of a transformer.
        otherwise: the encoder where neither ``weights`` nor ``encoder`` is given: "residual" learns most from labels
            alone; "vit" is what the methods of pre-training were made for.

    Returns:
        The encoder.

    Raises:
        FileNotFoundError: when there is no file to load.
        ValueError: when a value contradicts the file, both are named; when a value is for a ViT and the encoder is
            none; and when the encoder is impossible, or the weights do not fit it.

    Example:
        >>> [type(starting_encoder(*given)).__name__ for given in (["released"], [])]
        ['ViTEncoder', 'ResidualEncoder']
        >>> starting_encoder(encoder="vit", image_size=64, num_layers=2).hidden_size
        192
        >>> starting_encoder("released", image_size=64, num_layers=5, standardize=True)
        Traceback (most recent call last):
        ValueError: --encoder_def::num_layers: 5 contradicts ...encoder.safetensors, which was trained with 6...
    """
    weights = find_weights(weights)
    sizes = {"hidden_size": hidden_size, "num_layers": num_layers, "num_heads": num_heads}
    sides: dict[str, Any] = {"img_size": image_size, "patch_size": patch_size}
    description = read_description(weights) if weights else None
    definition = encoder_definition(description.network) if description is not None else None
    if description is not None and description.preprocessing is not None:
        _check("standardize", standardize, description.preprocessing.standardize, weights)
    chosen = encoder if weights or encoder is not None else otherwise
    if definition is not None and _is_of_the_file(chosen, definition):
        _check("channels", channels, definition["arguments"].get("in_channels", 1), weights)
        built = _described_encoder(definition, weights, sizes, sides, use_checkpoint)
    else:
        sides["patch_size"] = patch_size or _patch_of(definition) or _PATCH_SIZE
        of_vit = _vit_arguments(chosen, weights, sizes, stem, use_checkpoint)
        own = ViTEncoder(channels, **sides, **of_vit)
        built = build_encoder(chosen, own, pretrained=definition is None)
        _check_class(chosen, built, definition, weights)
    if weights and pretrained:
        if description is not None and description.trained_on == PHANTOMS:
            logger.warning(f"{weights} {KNOWS_PHANTOMS}: its features are not those of radiographs")
        load_encoder_weights(built, weights, branch=branch)
    return built


def _is_of_the_file(chosen: str | nn.Module | None, definition: Mapping[str, Any]) -> bool:
    """Whether the encoder to build is the one that the file describes; a ViT by name may be it."""
    return chosen is None or (chosen == VIT and definition["class"] == ViTEncoder.__name__)


def _described_encoder(
    definition: Mapping[str, Any],
    path: str | os.PathLike | None,
    sizes: Mapping[str, Any],
    sides: Mapping[str, Any],
    use_checkpoint: bool,
) -> RadiographEncoder:
    """The encoder of a file for images or patches that may be larger."""
    if definition["class"] == ViTEncoder.__name__:
        for name, value in sizes.items():
            _check(f"encoder_def::{name}", value, definition["arguments"].get(name), path)
    else:
        _check_unused(sizes, definition["class"], path)
    replaced = _resized(definition, sides)
    if use_checkpoint and "use_checkpoint" in definition["arguments"]:
        replaced["use_checkpoint"] = True
    return build_network(definition, str(path), **replaced)


def _vit_arguments(
    chosen: str | nn.Module | None,
    path: str | os.PathLike | None,
    sizes: Mapping[str, Any],
    stem: str,
    use_checkpoint: bool,
) -> dict[str, Any]:
    """Arguments of a new ViT. Another encoder takes only the images and the patches from it."""
    if chosen is not None and chosen != VIT:
        found = chosen if isinstance(chosen, str) else type(chosen).__name__
        others = {
            "stem": None if stem == "patch" else stem,
            "use_checkpoint": True if use_checkpoint else None,
        }
        _check_unused({**sizes, **others}, found, path)
    given = {name: value or _SIZES[name] for name, value in sizes.items()}
    return {**given, "stem": stem, "use_checkpoint": use_checkpoint}


def _check_unused(given: Mapping[str, Any], encoder: str, path: str | os.PathLike | None) -> None:
    """Refuse what is given for a ViT and what another encoder would ignore."""
    remedy = "leave it out" if path else f"leave it out, or give --encoder {VIT}"
    for name, value in given.items():
        if value is not None:
            found = f"{path} has {encoder}" if path else f"the encoder is {encoder}"
            raise ValueError(f"--encoder_def::{name}: {value} is for a ViT, and {found}: {remedy}")


def _check(name: str, given: Any, trained: Any, path: str | os.PathLike | None) -> None:
    """Refuse a value that is given and differs."""
    if given is not None and given != trained:
        raise ValueError(contradiction(name, given, path, trained))


def _check_class(
    name: str | nn.Module | None,
    built: RadiographEncoder,
    definition: Mapping[str, Any] | None,
    path: str | os.PathLike | None,
) -> None:
    """Refuse an encoder that cannot take the weights of a file."""
    if definition is None:
        return
    own = definition_of(built) or {"class": type(built).__name__, "arguments": {}}
    model, trained = (str(each["arguments"].get("model", "")) for each in (own, definition))
    is_same_model = model == trained or own["class"] == "MONAIEncoder"
    if own["class"] != definition["class"] or not is_same_model:
        other = f"{definition['class']} {trained}".strip()
        raise ValueError(f"--encoder: {name} contradicts {path}, which has {other}: leave it out")


def _patch_of(definition: Mapping[str, Any] | None) -> Any:
    return None if definition is None else definition["arguments"].get("patch_size")


def _resized(definition: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes that differ from the file's, of those that the class takes."""
    trained = definition["arguments"]
    resized = {}
    for name, size in sizes.items():
        if name in trained and size is not None and one_for_all(size) != one_for_all(trained[name]):
            resized[name] = size
    return resized
