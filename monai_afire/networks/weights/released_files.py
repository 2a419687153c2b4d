# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights that come with the package."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from monai_afire_cli.runs.run_records import LATEST, MODEL_OF_RUN, has_weights, newest_run

__all__ = ["ENCODERS", "RELEASED", "released_encoder", "released_file", "weights_file"]

RELEASED = "released"

ENCODERS = {
    RELEASED: "encoder.safetensors",
    "released_224": "vit_tiny_patch16_224.safetensors",
    "released_cnn": "efficientnet_lite0_contrast.safetensors",
}


def released_encoder(name: str = RELEASED) -> Path:
    """
    Find a released encoder.

    Args:
        name: "released" for the ViT of 6 layers of width 192 for 64 x 64 pixels in patches of 8, "released_224" for the
            ViT-Ti/16 (12 layers of width 192) for 224 x 224 pixels, both in timm's layout; "released_cnn" for
            EfficientNet-Lite0 for 128 x 128 pixels, pre-trained on ImageNet and then on radiographs.

    Returns:
        The file; its model card is beside it.

    Raises:
        FileNotFoundError: where the package was installed without its bundles.
        ValueError: for any other name.

    Example:
        >>> released_encoder().name
        'encoder.safetensors'
    """
    if name not in ENCODERS:
        raise ValueError(f"no released encoder {name!r}: there are {', '.join(ENCODERS)}")
    return released_file(ENCODERS[name])


def weights_file(path: str | os.PathLike) -> Path:
    """
    The file of a path, of a run's folder, or of the name of a released encoder.

    Where "latest" beside the runs of a bundle leads to no weights, it stands for the newest run that has some, and a
    warning says which.
    """
    if path in ENCODERS:
        return released_encoder(str(path))
    folder = Path(path)
    if folder.name == LATEST and not has_weights(folder):
        newest = newest_run(folder.parent, has_weights)
        if newest is not None:
            # once for all that ask, and where a program has set no level for logging
            warnings.warn(
                f"{folder} leads to a run without weights: those of {newest}, the newest run with weights, are taken",
                stacklevel=1,
            )
            folder = newest
    return folder / MODEL_OF_RUN if has_weights(folder) else folder


def released_file(name: str) -> Path:
    """A file of the bundles' folders of released weights."""
    package = Path(__file__).resolve().parents[2]
    for folder in (
        package,
        package.parent,
    ):
        # inside of an installation, beside the package in a clone
        for path in folder.glob(f"bundles/*/released/{name}"):
            return path
    raise FileNotFoundError(
        f"no released/{name} in {package / 'bundles'}: install the package with its bundles"
    )
