# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""An encoder that is ready to use: network, weights, and the transform from a file to its input."""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple

from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import EfficientNetLiteEncoder
from monai_afire.networks.nets.encoders.encoder_building import (
    IMAGENET,
    is_encoder_name,
    library_encoder,
)
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.weights.description import KNOWS_PHANTOMS, PHANTOMS
from monai_afire.networks.weights.finding import RELEASED, find_weights
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.networks.weights.weight_loading import load_encoder_weights
from monai_afire.transforms.radiograph_input import RadiographInput

__all__ = ["ReadyEncoder", "load_encoder"]


class ReadyEncoder(NamedTuple):
    """
    An encoder and the transform of its images.

    Attributes:
        encoder: ``encoder(images)`` turns ``(B, C, H, W)`` in [0, 1] into tokens ``(B, L, D)``.
        transform: from a path, a picture of Pillow or an array to ``(C, H, W)``.
    """

    encoder: RadiographEncoder
    transform: RadiographInput


def load_encoder(source: str | os.PathLike = RELEASED, pretrained: bool = True) -> ReadyEncoder:
    """
    Load an encoder for pictures with the pre-processing that it was trained with.

    Args:
        source: "released" (ViT, 64 x 64 pixels), "released_224" (ViT-Ti/16, 224 x 224 pixels),
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
        ValueError: when the file is damaged, does not describe its encoder, or is of an encoder for volumes.

    A file that was trained on drawn phantoms alone is loaded with a warning.

    Example:
        >>> import numpy as np, torch
        >>> encoder, transform = load_encoder("released")
        >>> image = transform(np.random.default_rng(0).random((300, 250)))  # or a path, or a picture of Pillow
        >>> tokens = encoder(image[None])
        >>> image.shape, tokens.shape, tokens.mean(1).shape
        (torch.Size([1, 64, 64]), torch.Size([1, 64, 192]), torch.Size([1, 192]))
    """
    encoder, standardize = _built(os.fspath(source), pretrained)
    size = encoder.img_size
    if len(size) != 2:
        raise ValueError(f"{source} is an encoder of volumes: build it with ModelFile(path)")
    return ReadyEncoder(encoder.eval(), RadiographInput(size, encoder.in_channels, standardize))


def _built(source: str, pretrained: bool) -> tuple[RadiographEncoder, bool]:
    """The encoder, and whether its images have standardized contrast."""
    if source == IMAGENET:
        return EfficientNetLiteEncoder(pretrained=pretrained), False
    if is_encoder_name(source):
        return library_encoder(source, pretrained=pretrained), False
    path = str(find_weights(source))
    file = ModelFile(path)
    if pretrained and file.description.trained_on == PHANTOMS:
        warnings.warn(
            f"{path} {KNOWS_PHANTOMS}: its features are not those of radiographs;"
            " take 'released', or the model.pt of a training on radiographs",
            stacklevel=3,
        )
    encoder = file.build_encoder()
    if pretrained:
        load_encoder_weights(encoder, path)
    images = file.description.preprocessing
    return encoder, images is not None and images.standardize
