# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pre-trained encoders: ready to use, or as the start of a training; and what their files say of the images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from monai_afire.networks.definition import build_network, encoder_definition
from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import EfficientNetLiteEncoder
from monai_afire.networks.nets.encoders.encoder_building import (
    IMAGENET,
    RESIDUAL,
    VIT,
    build_encoder,
    is_encoder_name,
    library_encoder,
)
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.checkpoint_files import read_description
from monai_afire.networks.weights.description import KNOWS_PHANTOMS, PHANTOMS, one_for_all
from monai_afire.networks.weights.finding import RELEASED, find_weights
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.networks.weights.weight_loading import load_encoder_weights
from monai_afire.transforms.radiograph_input import RadiographInput

__all__ = ["ReadyEncoder", "described", "load_encoder", "seen_images", "starting_encoder"]

_PATCH_SIZE = 16  # of the ViT without a file, and its sizes
_SIZES = {"hidden_size": 192, "num_layers": 5, "num_heads": 6}


class ReadyEncoder(NamedTuple):
    """
    An encoder and the transform of its images.

    Attributes:
        encoder: ``encoder(images)`` turns ``(B, C, H, W)`` in [0, 1] into tokens ``(B, L, D)``.
        transform: from a path, a picture of Pillow or an array to ``(C, H, W)``.
    """

    encoder: RadiographEncoder
    transform: RadiographInput


def load_encoder(weights: str | os.PathLike = RELEASED, pretrained: bool = True) -> ReadyEncoder:
    """
    Load an encoder for pictures with the pre-processing that it was trained with.

    A file that was trained on drawn phantoms alone is loaded with a warning.

    Args:
        weights: "released" (ViT, 64 x 64 pixels), "released_96" (ViT of the released detector, 96 x 96 pixels),
            "released_224" (ViT-Ti/16, 224 x 224 pixels),
            "released_cnn" (EfficientNet-Lite0, 128 x 128 pixels), "imagenet" (the same with ImageNet's weights, 224 x
            224 pixels, extra ``imagenet``), "latest" for the newest run, another run, its folder, or a file of this
            package (:func:`find_weights`); also "hub:FOLDER" and "timm:NAME:pretrained"
            (:func:`monai_afire.networks.build_encoder`). What a file says about its images becomes the transform. The
            images of other sources keep their contrast.
        pretrained: False for the same network with random weights.

    Returns:
        The encoder, in evaluation mode, and its transform.

    Raises:
        FileNotFoundError: when there is no such file.
        ImportError: when the library or the weights of the encoder are not installed.
        ValueError: when the file is damaged, or does not describe its encoder.

    Example:
        >>> import numpy as np, torch
        >>> encoder, transform = load_encoder("released")
        >>> image = transform(np.random.default_rng(0).random((300, 250)))  # or a path, or a picture of Pillow
        >>> tokens = encoder(image[None])
        >>> image.shape, tokens.shape, tokens.mean(1).shape
        (torch.Size([1, 64, 64]), torch.Size([1, 64, 192]), torch.Size([1, 192]))
    """
    name, standardize = os.fspath(weights), False
    if name == IMAGENET:
        encoder: RadiographEncoder = EfficientNetLiteEncoder(pretrained=pretrained)
    elif is_encoder_name(name):
        encoder = library_encoder(name, pretrained=pretrained)
    else:
        path = str(find_weights(name))
        encoder = ModelFile(path).build_encoder()
        standardize = described(path, "standardize", False)
        if pretrained:
            _load_into(encoder, path)
    images = RadiographInput(encoder.img_size, encoder.in_channels, standardize)
    return ReadyEncoder(encoder.eval(), images)


def _load_into(encoder: nn.Module, path: str, branch: str = "teacher") -> None:
    """Load the weights of a file, with a warning where they know no radiographs."""
    if described(path, "trained_on", None) == PHANTOMS:
        warnings.warn(
            f"{path} {KNOWS_PHANTOMS}: its features are not those of radiographs;"
            " take 'released', or the model.pt of a training on radiographs",
            stacklevel=3,
        )
    load_encoder_weights(encoder, path, branch=branch)


def starting_encoder(
    weights: str | os.PathLike | None = None,
    pretrained: bool = False,
    branch: str = "teacher",
    encoder: str | nn.Module | None = None,
    channels: int = 1,
    image_size: Sequence[int] | int = 128,
    patch_size: Sequence[int] | int | None = None,
    otherwise: str = RESIDUAL,
    **of_vit: Any,
) -> RadiographEncoder:
    """
    Build the encoder that a training starts from: that of a file of weights, or another one.

    Args:
        weights: the file, or the name of a released one. One without a description is of a ViT of the sizes given.
        pretrained: whether the weights are loaded, too; without a file, there are none.
        branch: which of two encoders in the file is loaded, "teacher" or "student".
        encoder: one of :func:`monai_afire.networks.build_encoder`, with random weights if they come from the file. None
            for the file's, or else ``otherwise``.
        channels: C, channels of the images.
        image_size: spatial size of the images in pixels, which may differ from the file's.
        patch_size: edge length of a patch in pixels, which may differ from the file's; None for the file's, or 16.
        otherwise: the encoder where neither ``weights`` nor ``encoder`` is given: "residual" learns most from labels
            alone; "vit" is what the methods of pre-training were made for.
        of_vit: further arguments of ``ViTEncoder``, such as ``hidden_size``, ``num_layers``, ``num_heads`` and
            ``use_checkpoint``; None for the file's, or a width of 192, 5 blocks and 6 heads.

    Returns:
        The encoder.

    Raises:
        FileNotFoundError: when there is no file to load.
        ValueError: when the encoder is impossible, has no such argument, or the weights do not fit it.
    """
    path = find_weights(weights)
    definition = _encoder_of(path)
    given = {name: value for name, value in of_vit.items() if value not in (None, False)}
    chosen = encoder or (None if path else otherwise)
    is_vit = definition is not None and definition["class"] == ViTEncoder.__name__
    if definition is not None and (chosen is None or (chosen == VIT and is_vit)):
        sides = {"in_channels": channels, "img_size": image_size, "patch_size": patch_size}
        sides = {name: side for name, side in sides.items() if side is not None}
        known = {name: side for name, side in sides.items() if name in definition["arguments"]}
        built = build_network(definition, str(path), **known, **given)
    else:
        if given and chosen not in (None, VIT):
            raise ValueError(
                f"{', '.join(given)} is for a ViT, and the encoder is {chosen}: leave it out"
            )
        stated = {} if definition is None else definition["arguments"]
        patch = patch_size or stated.get("patch_size") or _PATCH_SIZE
        own = ViTEncoder(channels, image_size, patch, **{**_SIZES, **given})
        built = build_encoder(chosen, own, pretrained=definition is None)
    if path and pretrained:
        _load_into(built, path, branch)
    return built


def _encoder_of(path: str | None) -> dict[str, Any] | None:
    """The definition of the encoder in a file; None where it has none."""
    description = read_description(path) if path else None
    return encoder_definition(description.network) if description else None


def described(path: str | os.PathLike | None, name: str, default: Any) -> Any:
    """
    What a file says of the images of its network, for a training that goes on from it.

    Args:
        path: the file, or the name of a released one; None for no file.
        name: of the value: "image_size", "channels", "standardize" or "trained_on".
        default: without a file, or where it does not say it.

    Returns:
        The value; one number where all axes have the same.
    """
    file = find_weights(path)
    description = read_description(file) if file else None
    if description is None:
        return default
    arguments = (encoder_definition(description.network) or {"arguments": {}})["arguments"]
    values = {
        "image_size": arguments.get("img_size"),
        "channels": arguments.get("in_channels"),
        "trained_on": description.trained_on,
        **(description.preprocessing or {}),
    }
    value = values.get(name)
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
    """
    if kind == PHANTOMS or not is_frozen:
        return kind
    return described(weights, "trained_on", kind)
