# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Drawn images, which stand in for radiographs, and how a file says that it is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PIL.PngImagePlugin import PngInfo

from monai_afire.networks.weights.description import KNOWS_PHANTOMS, PHANTOMS, RADIOGRAPHS

_PNG = b"\x89PNG\r\n\x1a\n"
_KEYWORD, _TEXT = "Source", "drawn by monai_afire"
_HEAD = 256  # bytes; the mark comes right after the first chunk


def drawn_mark() -> PngInfo:
    """The entry of a PNG file's header that says that the image is drawn, for ``PIL.Image.Image.save``."""
    info = PngInfo()
    info.add_text(_KEYWORD, _TEXT)
    return info


def is_drawn(path: Any) -> bool:
    """Whether the header of a file says that its image is drawn; one that cannot be read does not."""
    try:
        with open(os.fspath(path), "rb") as file:
            head = file.read(_HEAD)
    except (OSError, TypeError):  # a TypeError for what is no path
        return False
    return head.startswith(_PNG) and f"{_KEYWORD}\0{_TEXT}".encode() in head


def image_kind(items: Iterable[Mapping[str, Any]]) -> str:
    """
    What the images of items of a datalist are: "phantoms" where every file is drawn, else "radiographs".

    Example:
        >>> image_kind([{"image": "patient.dcm"}])
        'radiographs'
    """
    return PHANTOMS if all(is_drawn(item["image"]) for item in items) else RADIOGRAPHS


def usable_items(
    weights: str | os.PathLike | None,
    items: Sequence[Mapping[str, Any]],
    phantom_weights: bool = False,
) -> Sequence[Mapping[str, Any]]:
    """
    The items, unless the network was trained on drawn phantoms alone and one of them is a radiograph.

    Args:
        weights: file of the network; None for random weights.
        items: what it is going to be used on, each with "image", the path of a file.
        phantom_weights: True allows it.

    Returns:
        The items.

    Raises:
        ValueError: when an image is no phantom; the message names file and image.

    Example:
        >>> usable_items(None, [{"image": "a.dcm"}])
        [{'image': 'a.dcm'}]
    """
    # this package is imported by the networks
    from monai_afire.networks.weights.pretrained import described

    if phantom_weights or described(weights, "trained_on", None) != PHANTOMS:
        return items
    radiograph = next((item["image"] for item in items if not is_drawn(item["image"])), None)
    if radiograph is not None:
        raise ValueError(
            f"{weights} {KNOWS_PHANTOMS}, and {radiograph} is a radiograph: train on your own images, or take released "
            "weights (phantom_weights=True allows it)"
        )
    return items
