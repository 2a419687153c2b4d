# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is compared: encoders by a word of the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from monai_afire import __version__
from monai_afire.detection.field_of_view import field_of_view_module
from monai_afire.networks.definition import definition_of
from monai_afire.networks.nets.encoders.encoder_building import is_encoder_name
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.weights.description import tensor_digest
from monai_afire.networks.weights.finding import RELEASED
from monai_afire.networks.weights.pretrained import load_encoder
from monai_afire.transforms import StandardizeContrast

_BATCH = 64  # images that lungs are looked for in at once
_RANDOM = ":random"  # behind a file, as behind the names of other libraries
_SHORT = {"untrained": RELEASED + _RANDOM}


@dataclass(frozen=True)
class ComparedEncoder:
    """
    An encoder with the preparation of its images.

    Args:
        name: to show.
        encoder: in evaluation mode.
        standardize: whether its images have standardized contrast.
        field_of_view: "image", or "lungs" for the square around them.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> compared = ComparedEncoder("mine", encoder, standardize=True, field_of_view="image")
        >>> compared.encode(torch.rand(2, 1, 128, 128)).shape
        (2, 4, 24)
    """

    name: str
    encoder: RadiographEncoder
    standardize: bool
    field_of_view: str

    @property
    def key(self) -> str:
        """What tokens depend on beside the images: the same for the same encoder."""
        own = (
            self.encoder.img_size,
            self.encoder.patch_size,
            tensor_digest(self.encoder.state_dict()),
        )
        settings = __version__, self.standardize, self.field_of_view, definition_of(self.encoder)
        return json.dumps([*settings, *own], default=str)

    @torch.inference_mode()
    def encode(
        self, images: torch.Tensor, device: torch.device | str = "cpu"
    ) -> NDArray[np.float16]:
        """
        Prepare and encode images.

        Args:
            images: ``(B, 1, H, W)`` in [0, 1], of any size.
            device: where the encoder works.

        Returns:
            Tokens ``(B, L, D)``.

        Raises:
            ValueError: when tokens are not finite.
        """
        small = F.interpolate(images, self.encoder.img_size, mode="area")
        if self.standardize:
            small = torch.stack([torch.as_tensor(StandardizeContrast()(image)) for image in small])
        tokens = (
            self.encoder.to(device)(in_field_of_view(small, self.field_of_view).to(device))
            .half()
            .cpu()
            .numpy()
        )
        if not np.isfinite(tokens).all():
            raise ValueError(
                f"encoder {self.name!r}: its features are not finite in half precision; check the weights"
            )
        return tokens


def compared_encoder(word: str, field_of_view: str = "lungs") -> ComparedEncoder:
    """
    Build an encoder by its word.

    Args:
        word: "untrained" or "released" (the same network without and with its weights), "released_224", "released_cnn",
            "imagenet", the file of a run (``model.pt``, or ``model.pt:random`` for its network with random weights),
            "hub:FOLDER" or "timm:NAME" (:func:`monai_afire.networks.load_encoder`); ``NAME=`` ahead of it gives it a
            name.
        field_of_view: see :class:`ComparedEncoder`.

    Returns:
        The encoder.

    Raises:
        FileNotFoundError: when there is no such file.
        ImportError: when the library of the encoder is not installed.
        ValueError: when there is no such encoder, or it does not take gray pictures; the message names it.

    Example:
        >>> compared = compared_encoder("mine=released")
        >>> compared.name, compared.encoder.img_size, compared.standardize
        ('mine', (64, 64), True)
    """
    name, _, source = (word, "", "") if Path(word).exists() else word.partition("=")
    encoder, standardize = _built(source or word)
    if encoder.in_channels != 1 or len(encoder.img_size) != 2:
        raise ValueError(f"encoder {word!r} takes other images than gray pictures: leave it out")
    return ComparedEncoder(name, encoder.requires_grad_(False).eval(), standardize, field_of_view)


def _built(source: str) -> tuple[Any, bool]:
    """The encoder, and whether its images have standardized contrast."""
    source = _SHORT.get(source, source)
    name = source
    if not is_encoder_name(source):
        name = source.removesuffix(_RANDOM)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder, transform = load_encoder(name, pretrained=name == source)
    return encoder, transform.standardize is not None


def in_field_of_view(images: torch.Tensor, name: str) -> torch.Tensor:
    """The part of radiographs ``(B, C, H, W)`` that a detector with this field of view scores."""
    view = field_of_view_module(name)
    return images if view is None else torch.cat([view(batch)[0] for batch in images.split(_BATCH)])
