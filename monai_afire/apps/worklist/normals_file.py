# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Normal images as a small file: their scores and what they look like, no image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from monai_afire.apps.worklist.normal_images import NormalImages
from monai_afire.apps.worklist.support import FeatureSpace
from monai_afire.detection.conformal import normals_needed
from monai_afire.networks.weights.checkpoint_files import read_safetensors, write_safetensors
from monai_afire.networks.weights.description import Description, from_header

__all__ = ["OtherDetectorError", "load_normals", "save_normals"]

_TASK = "normal images of a detector"
_REMEDY = "write it again with --calibrate"
_SETTINGS = ("by_view", "children", "adults", "origin", "made", "detector", "level")


class OtherDetectorError(ValueError):
    """A file with scores of another detector."""


def save_normals(normals: NormalImages, path: str | os.PathLike) -> Path:
    """
    Write normal images as a safetensors file, complete or not at all, whose header says whose they are.

    Args:
        normals: to write.
        path: the file.

    Returns:
        The file.
    """
    from monai_afire import __version__  # the package imports this module

    arrays = {"scores": normals.scores, "ap": normals.ap}
    arrays |= {f"looks.{name}": values for name, values in normals.looks.items()}
    arrays |= {f"shipped.{name}": values for name, values in normals.shipped_looks.items()}
    tensors = {name: _tensor(values) for name, values in arrays.items()}
    if normals.space is not None:
        tensors["space.centers"] = _tensor(normals.space.centers)
        tensors["space.whitening"] = _tensor(normals.space.whitening).half()
    settings = {name: getattr(normals, name) for name in _SETTINGS}
    description = Description(_TASK, settings=settings, version=__version__)
    return write_safetensors(tensors, path, description)


def load_normals(
    path: str | os.PathLike, detector: str, level: float | None = None
) -> NormalImages:
    """
    Read normal images.

    Args:
        path: of :func:`save_normals`.
        detector: digest of the detector's file, which must be the one that scored them.
        level: p-value up to which an image is above the threshold; None for that of the file.

    Returns:
        The normal images.

    Raises:
        FileNotFoundError: when there is no such file.
        OtherDetectorError: for scores of another detector.
        ValueError: when it is damaged, no such file, or too small for the level.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no {path}: check the name, or {_REMEDY}")
    tensors, metadata = read_safetensors(path, _REMEDY)
    settings = _settings(path, metadata)
    if settings["detector"] != detector:
        raise OtherDetectorError(f"{path} has scores of another detector: {_REMEDY}")
    arrays = {name: value.double().numpy() for name, value in tensors.items()}
    normals = NormalImages(
        arrays["scores"],
        arrays["ap"],
        looks=_part(arrays, "looks."),
        shipped_looks=_part(arrays, "shipped."),
        space=FeatureSpace(**_part(arrays, "space.")) if "space.centers" in arrays else None,
        **settings,
    )
    level = normals.level if level is None else level
    if normals.number < normals_needed(level):
        raise ValueError(
            f"{path} has {normals.number} normal images, and a p-value of {level:.4g} needs "
            f"{normals_needed(level)}: calibrate with more, or lower --specificity"
        )
    return replace(normals, level=level)


def _tensor(values: NDArray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _settings(path: str | os.PathLike, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Of the header, checked."""
    found = from_header(metadata)
    if found is None or found.task != _TASK:
        raise ValueError(f"{path} is for another purpose, it holds no normal images: {_REMEDY}")
    return found.settings


def _part(arrays: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    return {
        name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)
    }
