# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights that come with the package."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["RELEASED", "released_encoder", "released_lung_finder", "released_pose_classifier"]

RELEASED = "released"

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
    return _released_file("encoder.safetensors")


def released_lung_finder() -> Path:
    """
    Find the weights of :class:`monai_afire.networks.LungFinder`.

    Returns:
        The file; its model card is beside it.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.

    Example:
        >>> released_lung_finder().name
        'lungs.safetensors'
    """
    return _released_file("lungs.safetensors")


def weights_file(path: str | os.PathLike) -> Path:
    """The file of a path, or of the word for the released encoder."""
    return released_encoder() if path == RELEASED else Path(path)


def released_pose_classifier() -> Path:
    """
    Find the weights of :class:`monai_afire.audit.PoseClassifier`.

    Returns:
        The file; its model card is beside it.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.

    Example:
        >>> released_pose_classifier().name
        'pose.safetensors'
    """
    return _released_file("pose.safetensors")


def _released_file(name: str) -> Path:
    package = Path(__file__).resolve().parents[2]
    for folder in (package, package.parent):  # inside of an installation, beside the package in a clone
        if (folder / _FOLDER / name).is_file():
            return folder / _FOLDER / name
    raise FileNotFoundError(f"there is no {package / _FOLDER / name}: install the package with its bundles")
