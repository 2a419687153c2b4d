# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Normal images as a small file: their scores and what they look like, no image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from monai_afire.apps.worklist.normal_images import FeatureSpace, NormalImages
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
    """Write normal images as a safetensors file, whose header says whose they are, and return its path."""
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

    Raises:
        OtherDetectorError: for scores of another detector.
        ValueError: for another file, or one that is too small for the level.
    """
    tensors, metadata = read_safetensors(path)
    found = from_header(metadata)
    if found is None or found.task != _TASK:
        raise ValueError(f"{path} is for another purpose, it holds no normal images: {_REMEDY}")
    if found.settings["detector"] != detector:
        raise OtherDetectorError(f"{path} has scores of another detector: {_REMEDY}")
    arrays = {name: value.double().numpy() for name, value in tensors.items()}
    normals = NormalImages(
        arrays["scores"],
        arrays["ap"],
        looks=_part(arrays, "looks."),
        shipped_looks=_part(arrays, "shipped."),
        space=FeatureSpace(**_part(arrays, "space.")) if "space.centers" in arrays else None,
        **found.settings,
    )
    level = normals.level if level is None else level
    if normals.number < (needed := normals_needed(level)):
        raise ValueError(
            f"{path} has {normals.number} normal images, and a p-value of {level:.4g} needs {needed}: "
            "calibrate with more, or lower --specificity"
        )
    return replace(normals, level=level)


def _tensor(values: NDArray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _part(arrays: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    """The arrays whose names begin so, by the rest of their names."""
    named = {name: each for name, each in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): each for name, each in named.items()}
