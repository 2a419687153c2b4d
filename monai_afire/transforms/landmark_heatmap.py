# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps of the landmarks of a radiograph: the target of a network that finds landmarks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection, NdarrayOrTensor
from monai.data import MetaTensor
from monai.transforms import MapTransform, Transform
from monai.utils import MetaKeys, TraceKeys, TransformBackends

from monai_afire.utils.text import image_name


class LandmarkHeatmap(Transform):
    r"""
    Draw a heat map for each landmark: a Gaussian with the peak 1 at the landmark's pixel, 0 outside of a window.

    .. math:: h_p(x) = \exp\left(-\frac{\lVert x - [c_p] \rVert^2}{2 \sigma^2}\right)
        \text{ where } \lVert x - [c_p] \rVert_\infty \le \tfrac{1}{2} (w - 1)

    with the landmark c, rounded to the pixel :math:`[c]`, and the window's side w. This is the target of the key-point
    detection of ACE ("Anatomically Consistent Embeddings", supplement B.2: 11 × 11, peak 1).

    Args:
        sigma: standard deviation σ in pixels; ACE does not print it. A window of 11 holds 2.5 times 2.
        window: side w of the window in pixels, odd.

    Example:
        >>> heatmap, valid = LandmarkHeatmap(sigma=1.0, window=3)([[1.0, 2.2], [9.0, 9.0]], size=(3, 5))
        >>> heatmap[0], valid
        (tensor([[0.0000, 0.3679, 0.6065, 0.3679, 0.0000],
                [0.0000, 0.6065, 1.0000, 0.6065, 0.0000],
                [0.0000, 0.3679, 0.6065, 0.3679, 0.0000]]), tensor([ True, False]))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, sigma: float = 2.0, window: int = 11) -> None:
        if window % 2 == 0:
            raise ValueError(f"window must be odd, so that it has a middle, got {window}")
        self.sigma = float(sigma)
        self.reach = window // 2

    # MONAI's GenerateHeatmap blurs a whole picture for each landmark (0.28 s for 15 of them, against 0.01 s here), and
    # takes the first pixel to begin at its center, so that a landmark in its other half lies outside
    def __call__(  # type: ignore[override]
        self, landmarks: Sequence[Any] | NdarrayOrTensor, size: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Args:
            landmarks: ``(P, 2)`` positions, (row, column) in pixels, 0 is the center of the first one; None or NaN for
                a landmark that is not known.
            size: rows and columns of the maps.

        Returns:
            The maps ``(P, H, W)`` float32 in [0, 1], zeros for a landmark that lies outside and NaN for one that is not
            known (:class:`monai_afire.losses.HeatmapLoss` leaves it out); and ``(P,)`` bool, False for these.
        """
        points = torch.as_tensor(landmark_array(landmarks))
        limits = torch.tensor(tuple(size), dtype=points.dtype)
        pixels = (points + 0.5).floor()
        valid = ((pixels >= 0) & (pixels < limits)).all(dim=1)  # False for NaN
        # a Gaussian, and a square window, are products of functions of one axis each
        rows, columns = (
            self._profile(pixels[:, axis], int(length)) for axis, length in enumerate(size)
        )
        maps = (rows * valid[:, None])[:, :, None] * columns[:, None]
        maps[~points.isfinite().all(1)] = torch.nan
        return maps, valid

    def _profile(self, centers: torch.Tensor, length: int) -> torch.Tensor:
        """Gaussians along one axis, ``(P, length)``."""
        distance = (torch.arange(length) - centers[:, None]).nan_to_num(torch.inf).abs()
        gaussian = torch.exp(-distance.square() / (2 * self.sigma**2))
        return torch.where(distance <= self.reach, gaussian, 0.0).float()


class LandmarkHeatmapd(MapTransform):
    """
    Add heat maps of the landmarks to an item, see :class:`LandmarkHeatmap`.

    The landmarks are positions in the picture of the file. What was done to the image since, such as resizing,
    cropping and turning, is in its metadata (the affine matrices now and of the file), and is done to them, too. Later
    spatial transforms take image and heat maps together; or put all of them before this one, which spares the peaks the
    interpolation, and shows which landmarks left the picture.

    Three entries are written: the maps, ``landmark_valid`` ``(P,)`` bool, and, in place of the landmarks, their
    positions in the current image, float32 ``(P, 2)``, NaN where they are not known. These no later transform
    takes along.

    Args:
        keys: the one key of the landmarks ``(P, 2)``, (row, column) in pixels of the file.
        image_key: key of the loaded image ``(C, H, W)``, of which the maps get size and metadata. A plain tensor
            without metadata must be the unchanged picture of the file.
        heatmap_key: key of the maps ``(P, H, W)``, float32 in [0, 1].
        sigma: see :class:`LandmarkHeatmap`, in pixels of the current image.
        window: likewise.
        allow_missing_keys: do not raise an error if the landmarks are missing.

    Example:
        >>> item = {"image": torch.zeros(1, 32, 48), "landmarks": [[3.0, 40.0], None]}
        >>> item = LandmarkHeatmapd()(item)
        >>> tuple(item["heatmap"].shape), divmod(int(item["heatmap"][0].argmax()), 48), item["landmark_valid"]
        ((2, 32, 48), (3, 40), tensor([ True, False]))
    """

    backend = LandmarkHeatmap.backend

    def __init__(
        self,
        keys: KeysCollection = "landmarks",
        image_key: str = "image",
        heatmap_key: str = "heatmap",
        sigma: float = 2.0,
        window: int = 11,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = LandmarkHeatmap(sigma, window)
        self.image_key, self.heatmap_key = image_key, heatmap_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Draw the heat maps of one item. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            image = item[self.image_key]
            points = landmark_array(data[key])
            _check_inside(points, image)
            positions = pixels_of_file(points, image)
            heatmap, valid = self.transform(positions, tuple(image.shape[1:]))
            if isinstance(image, MetaTensor):
                heatmap = MetaTensor(heatmap, meta=deepcopy(image.meta))
            item[key] = torch.as_tensor(positions).float()
            item |= {self.heatmap_key: heatmap, "landmark_valid": valid}
        return item


LandmarkHeatmapD = LandmarkHeatmapDict = LandmarkHeatmapd


def landmark_array(landmarks: Sequence[Any] | NdarrayOrTensor) -> np.ndarray:
    """
    Landmarks of a datalist as numbers.

    Args:
        landmarks: P positions (row, column); None, or None within, for one that is not known.

    Returns:
        ``(P, 2)`` float64, NaN for what is not known.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(landmarks, (list, tuple)):
        landmarks = [(np.nan, np.nan) if point is None else point for point in landmarks]
    points = np.asarray(landmarks, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"landmarks are a list of [row, column], got the shape {points.shape}")
    return points


def _check_inside(points: np.ndarray, image: torch.Tensor) -> None:
    """Refuse landmarks outside of the picture that the file holds: they would be learned as absent."""
    rows, columns = _size_of_file(image)
    pixels = np.floor(points + 0.5)
    outside = ((pixels < 0) | (pixels >= (rows, columns))).any(1)  # False for NaN
    if outside.any():
        number = int(outside.argmax())
        found = f"landmark {number} at {points[number].tolist()} lies outside of {rows} x {columns}"
        remedy = "give [row, column] in pixels of the file, and null for one that is not known"
        raise ValueError(f"{image_name({'image': image})}: {found} pixels (rows first); {remedy}")


def _size_of_file(image: torch.Tensor) -> tuple[int, int]:
    """Rows and columns of the picture that an image ``(C, H, W)`` was, before any transform."""
    size: Sequence[int] = image.shape[1:]
    if isinstance(image, MetaTensor):
        first = image.applied_operations[0] if image.applied_operations else {}
        # the latter of an array that came from no file
        size = image.meta.get(MetaKeys.SPATIAL_SHAPE, first.get(TraceKeys.ORIG_SIZE, size))
    return int(size[0]), int(size[1])


def pixels_of_file(points: np.ndarray, image: torch.Tensor) -> np.ndarray:
    """
    Positions of a file's points in the image that transforms made of it.

    Args:
        points: ``(P, 2)`` positions in pixels of the file, 0 is the center of the first one.
        image: ``(C, H, W)``, which MONAI's transforms made of what :py:class:`LoadRadiograph` loaded. A
            plain tensor counts as the unchanged picture of the file.
    """
    if not isinstance(image, MetaTensor):
        return points
    now = np.asarray(image.affine, dtype=np.float64)
    file = image.meta.get(MetaKeys.ORIGINAL_AFFINE)
    if file is None:
        # of an array that came from no file; transforms that MONAI tracks began with its default, the identity
        file = np.eye(len(now)) if image.applied_operations else now
    change = np.linalg.solve(now, np.asarray(file, dtype=np.float64))
    return points @ change[:2, :2].T + change[:2, -1]
