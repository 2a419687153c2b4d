# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The released encoder: pre-trained weights that come with the package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RELEASED", "released_encoder"]

RELEASED = "released"

_FILE = Path("bundles", "afire", "released", "encoder.safetensors")


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
    package = Path(__file__).resolve().parents[2]
    for folder in (package, package.parent):  # inside of an installation, beside the package in a clone
        if (folder / _FILE).is_file():
            return folder / _FILE
    raise FileNotFoundError(f"there is no {package / _FILE}: install the package with its bundles, or give a file")
