# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Geometry of a volume's file: results of the network resampled to its voxels."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nibabel
import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import SpatialResample
from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform
from numpy.typing import NDArray

from monai_afire.utils.files import atomic_path


@dataclass(frozen=True)
class FileGeometry:
    """Where the voxels of a volume lie: in its file, as it was loaded, and in the network's input."""

    shape: tuple[int, ...]
    affine: NDArray
    original_affine: NDArray
    input_affine: NDArray

    @classmethod
    def of(cls, batch: Mapping[str, Any], row: int) -> FileGeometry:
        """Of an image of a batch, see :class:`monai_afire.transforms.DescribeRadiographd` and ``NoteAffined``."""
        affines = (
            torch.as_tensor(batch[key][row]).cpu().numpy() for key in ("affine", "original_affine", "input_affine")
        )
        return cls(tuple(batch["spatial_shape"][row].tolist()), *affines)

    def to_file(self, values: NDArray, outside: str = "border") -> NDArray[np.float32]:
        """Values of the network's input on the voxels of the file, linearly interpolated."""
        loaded = self._resampled(values, self.affine, self.shape, outside)
        turn = ornt_transform(axcodes2ornt("RAS"), io_orientation(self.original_affine))
        return np.asarray(apply_orientation(loaded, turn), dtype=np.float32)

    def on_picture(self, values: NDArray, sides: Sequence[int]) -> NDArray[np.float32]:
        """Values of the network's input on a picture of the loaded volume, which input may show a part of, or more."""
        smallest = values.min()
        return self._resampled(values - smallest, self._picture_affine(sides), sides, "zeros") + smallest

    def positions_in_file(self, positions: NDArray) -> NDArray:
        """Positions ``(P, 3)`` in voxels of the network's input, in those of the file."""
        return _moved(positions, self.original_affine, self.input_affine)

    def positions_on_picture(self, positions: NDArray, sides: Sequence[int]) -> NDArray:
        """Positions ``(P, 3)`` in voxels of the network's input, in those of a picture, see :meth:`on_picture`."""
        return _moved(positions, self._picture_affine(sides), self.input_affine)

    def save(self, values: NDArray, path: str | os.PathLike) -> None:
        """Write what :meth:`to_file` gave, or what was made of it, as compressed NIfTI."""
        image = nibabel.Nifti1Image(values, self.original_affine)
        with atomic_path(path) as temporary:
            temporary.write_bytes(gzip.compress(image.to_bytes(), compresslevel=1, mtime=0))

    def _picture_affine(self, sides: Sequence[int]) -> NDArray:
        scale = np.asarray(self.shape) / np.asarray(sides)
        squeezed = np.diag([*scale, 1.0])
        squeezed[:3, 3] = (scale - 1) / 2  # the first voxel's middle lies in that of those it is made of
        return self.affine @ squeezed

    def _resampled(self, values: NDArray, affine: NDArray, sides: Sequence[int], outside: str) -> NDArray[np.float32]:
        source = MetaTensor(
            torch.as_tensor(np.ascontiguousarray(values), dtype=torch.float32)[None],
            affine=torch.as_tensor(self.input_affine),
        )
        resample = SpatialResample(mode="bilinear", padding_mode=outside)
        return resample(source, dst_affine=torch.as_tensor(affine), spatial_size=tuple(sides))[0].numpy()


def _moved(positions: NDArray, to_affine: NDArray, from_affine: NDArray) -> NDArray:
    change = np.linalg.solve(to_affine, from_affine)
    return positions @ change[:3, :3].T + change[:3, 3]
