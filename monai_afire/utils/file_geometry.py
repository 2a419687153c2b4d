# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From the network's input back to the voxels of the file that a volume was loaded from."""

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

__all__ = ["FileGeometry"]


@dataclass(frozen=True)
class FileGeometry:
    """
    Where the voxels of a volume lie: in its file, as it was loaded, and in the network's input.

    Attributes:
        shape: voxels of the loaded volume, its axes to the right, the front and up.
        affine: ``(4, 4)`` of the loaded volume.
        original_affine: ``(4, 4)`` of the file, whose axes may run otherwise.
        input_affine: ``(4, 4)`` of the network's input.

    Example:
        >>> unit = np.eye(4)
        >>> turned = np.diag([-1.0, 1.0, 1.0, 1.0])
        >>> turned[0, 3] = 3.0
        >>> values = FileGeometry((4, 2, 2), unit, turned, unit).to_file(np.arange(16.0).reshape(4, 2, 2))
        >>> values[:, 0, 0].tolist()
        [12.0, 8.0, 4.0, 0.0]
    """

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
        """
        Values of the network's input on the voxels of the file, linearly interpolated.

        Args:
            values: ``(x, y, z)``.
            outside: "border" continues them where the input did not reach, "zeros" does not.

        Returns:
            In the file's own order of axes.
        """
        loaded = self._resampled(values, self.affine, self.shape, outside)
        turn = ornt_transform(axcodes2ornt("RAS"), io_orientation(self.original_affine))
        return np.asarray(apply_orientation(loaded, turn), dtype=np.float32)

    def on_picture(self, values: NDArray, sides: Sequence[int]) -> NDArray[np.float32]:
        """
        Values of the network's input on a picture of the loaded volume, which input may show a part of, or more.

        Args:
            values: ``(x, y, z)``.
            sides: of the picture, the volume squeezed to so many voxels along each axis.

        Returns:
            ``(*sides)``, linearly interpolated; the smallest of the values where the input did not reach.
        """
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
