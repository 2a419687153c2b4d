# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""An AFiRe network to go on training."""

from __future__ import annotations

import os
from typing import Any

from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.weights.checkpoint_files import read_description
from monai_afire.networks.weights.description import TASKS, one_for_all
from monai_afire.networks.weights.model_file import ModelFile, check_same

__all__ = ["pretrained_afire"]


def pretrained_afire(path: str | os.PathLike | None, **arguments: Any) -> AFiRe:
    """
    An AFiRe network to go on training: that of a file, or a new one around an encoder.

    Args:
        path: the file; empty, or of another network, for a new one.
        arguments: of ``AFiRe``. With a file, only the temperature of the teacher counts; the others are the file's,
            and an ``encoder`` says the sizes of the images and patches.

    Returns:
        The network, with teacher and decoder.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it holds a network of other sizes than those of the encoder.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> pretrained_afire("", encoder=encoder, num_clusters=8).bank.prototypes.shape
        torch.Size([16, 8])
    """
    description = read_description(path) if path else None
    if not path or (description is not None and description.task != TASKS["AFiRe"]):
        return AFiRe(**arguments)
    kept = {name: arguments[name] for name in {"teacher_temperature"} & arguments.keys()}
    network = ModelFile(path, TASKS["AFiRe"]).build(contrast=True, restore=True, **kept)
    if encoder := arguments.get("encoder"):  # unlike an encoder, a whole network has one size
        for option, name in (("image_size", "img_size"), ("patch_size", "patch_size")):
            given, trained = (getattr(each, name) for each in (encoder, network.encoder))
            check_same(option, one_for_all(given), one_for_all(trained), path)
    return network
