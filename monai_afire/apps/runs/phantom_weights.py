# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights that have never seen a radiograph do not answer for patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monai_afire.data.datalist.drawn_images import PHANTOMS, is_drawn
from monai_afire.networks.weights.model_file import ModelFile

__all__ = ["checked_items"]


def checked_items(
    model_file: ModelFile, items: Sequence[Mapping[str, Any]], phantom_weights: bool = False
) -> Sequence[Mapping[str, Any]]:
    """
    Refuse radiographs for a network that was trained on drawn phantoms alone, before anything is written.

    Args:
        model_file: of the network; one that does not say what it was trained on is not refused.
        items: what the network is going to be used on, each with "image", the path of a file.
        phantom_weights: True allows it.

    Returns:
        The items.

    Raises:
        ValueError: when an image is no phantom; the message names file, image and remedy.

    Example:
        >>> checked_items(ModelFile("no/model.pt"), [{"image": "a.dcm"}], phantom_weights=True)
        [{'image': 'a.dcm'}]
    """
    if phantom_weights or model_file.trained_on != PHANTOMS:
        return items
    other = next((item["image"] for item in items if not is_drawn(item["image"])), None)
    if other is not None:
        reason = f"{model_file.path} was trained on drawn phantoms alone, and {other} is none"
        remedy = f"{model_file.hint or 'take other weights'}; --phantom_weights True allows it"
        raise ValueError(f"{reason}: {remedy}")
    return items
