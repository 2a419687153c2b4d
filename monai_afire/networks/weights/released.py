# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights that come with the package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from torch import nn

from monai_afire.networks.weights.safetensors_files import read_safetensors

__all__ = ["RELEASED", "released_encoder", "released_file", "with_released_weights"]

RELEASED = "released"
Network = TypeVar("Network", bound=nn.Module)

_FOLDER = Path("bundles", "afire", "released")


def released_encoder() -> Path:
    """
    Find the released encoder, a ViT of 6 layers of width 192 for 64 x 64 pixels in patches of 8, in timm's layout.

    Returns:
        The file; its model card is beside it.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.

    Example:
        >>> released_encoder().name
        'encoder.safetensors'
    """
    return released_file("encoder.safetensors")


def weights_file(path: str | os.PathLike) -> Path:
    """The file of a path, or of the word for the released encoder."""
    return released_encoder() if path == RELEASED else Path(path)


def with_released_weights(network: Network, name: str) -> Network:
    """
    Load weights that come with the package into a network, and freeze it.

    Args:
        network: of the class that the weights are for.
        name: of the file.

    Returns:
        The network, in evaluation mode.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.
    """
    network.load_state_dict(read_safetensors(released_file(name))[0])  # copies into parameters of single precision
    return network.requires_grad_(False).eval()


def released_file(name: str) -> Path:
    """A file of the folder of released weights."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package, package.parent):  # inside of an installation, beside the package in a clone
        if (folder / _FOLDER / name).is_file():
            return folder / _FOLDER / name
    raise FileNotFoundError(f"there is no {package / _FOLDER / name}: install the package with its bundles")
