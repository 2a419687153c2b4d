# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of volumes through MONAI's readers, and the choice between volumes and pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import PathLike
from monai.data import ITKReader, MetaTensor, NibabelReader
from monai.transforms import (
    Compose,
    LoadImage,
    Orientation,
    Resized,
    ResizeWithPadOrCropd,
    Spacingd,
    SpatialPadd,
    Transform,
)
from monai.utils import TransformBackends, ensure_tuple, ensure_tuple_rep

from monai_afire.transforms.radiograph_io.common import first_line, loaded_image, refuse
from monai_afire.transforms.radiograph_io.formats import identify_file, single_path
from monai_afire.transforms.radiograph_io.intensity import repaired
from monai_afire.transforms.radiograph_loading import FileLoaderd, LoadRadiographd

_ORIENTATION = "RAS"
_BLANK_SIDE = 32


class LoadVolume(Transform):
    """
    Load one volume from NIfTI, MetaImage, NRRD or a folder with one DICOM series, by MONAI's and ITK's readers.

    The output is ``(1, X, Y, Z)``, its axes turned to run right, front and up (RAS) without resampling, so that
    volumes of any scanner lie alike.

    Args:
        intensity_window: numbers of the file, such as Hounsfield units, that become 0 and 1; what lies beyond is
            clipped. None stretches every volume from its own minimum to its own maximum.
        raw: keep the numbers, for label maps.

    Raises:
        ValueError: when the window is empty.
        RadiographError: when a file cannot be read as one volume; one line: the file, the reason and the remedy.

    Example:
        >>> import tempfile, nibabel
        >>> path = os.path.join(tempfile.mkdtemp(), "ct.nii.gz")
        >>> nibabel.save(nibabel.Nifti1Image(np.full((8, 6, 4), 40, np.int16), np.diag([-1.0, 1.0, 2.0, 1.0])), path)
        >>> volume = LoadVolume(intensity_window=(-1000, 1000))(path)
        >>> tuple(volume.shape), round(float(volume.max()), 2), volume.meta["affine"].diagonal().tolist()
        ((1, 8, 6, 4), 0.52, [1.0, 1.0, 2.0, 1.0])
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012  MONAI declares it so

    def __init__(self, intensity_window: Sequence[float] | None = None, raw: bool = False) -> None:
        if intensity_window is not None and not intensity_window[0] < intensity_window[1]:
            raise ValueError(f"intensity_window must be two ascending numbers, got {intensity_window!r}")
        self.intensity_window = intensity_window
        self.raw = raw
        self.to_axes = Orientation(axcodes=_ORIENTATION, labels=(("L", "R"), ("P", "A"), ("I", "S")))

    def __call__(self, filename: PathLike | Sequence[PathLike]) -> torch.Tensor:
        """
        Args:
            filename: the file or folder, or a list of this one.

        Returns:
            ``MetaTensor`` (a plain tensor under ``set_track_meta(False)``) of shape ``(1, X, Y, Z)`` float32, in [0, 1]
            unless ``raw``.
        """
        path = single_path(filename)
        loaded = self._read(path)
        upright = cast(MetaTensor, self.to_axes(loaded))
        values = self._scaled(torch.as_tensor(repaired(path, upright.as_tensor().float().numpy())))
        return loaded_image(values, path, upright.affine.numpy(), loaded.affine.numpy())

    def blank(self, filename: Any) -> torch.Tensor:
        """A black volume with the metadata of a loaded one, for a rejected file."""
        return loaded_image(torch.zeros(1, *[_BLANK_SIDE] * 3), str(filename), np.eye(4), np.eye(4))

    def _read(self, path: str) -> MetaTensor:
        series = os.path.isdir(path)
        file_format = "DICOM" if series else identify_file(path)
        if file_format not in ("DICOM", "NIfTI", "MetaImage", "NRRD"):
            raise refuse(path, f"is a {file_format} picture where a volume is expected", "leave spatial_dims 3 out")
        reader = NibabelReader() if file_format == "NIfTI" else ITKReader()
        try:
            image = LoadImage(reader=reader, image_only=True, ensure_channel_first=True)(path)
        except Exception as error:  # a damaged header can raise anything in the libraries that decode it
            reason = f"cannot be read as a volume: its {file_format} data are damaged, or there are none"
            raise refuse(path, f"{reason} ({first_line(error)})", "copy or export it again") from error
        if image.ndim != 4 or image.shape[0] != 1 or min(image.shape[1:]) < 2:
            found = f"has channels and axes {tuple(image.shape)} where one channel and three axes are expected"
            raise refuse(path, found, "give a volume, of a series the folder of its slices")
        return image

    def _scaled(self, values: torch.Tensor) -> torch.Tensor:
        """Values in [0, 1], unless numbers are kept."""
        if self.raw:
            return values
        low, high = self.intensity_window or (float(values.min()), float(values.max()))
        return ((values - low) / max(high - low, 1e-30)).clamp(0, 1)


class LoadVolumed(FileLoaderd):
    """
    Dictionary version of :py:class:`LoadVolume`: replaces the file name under each key by the volume.

    Args:
        keys: keys of the file names.
        settings: as for :py:class:`LoadVolume`.
        allow_missing_keys: skip keys that an item lacks instead of raising.
        rejected_key: as for :py:class:`LoadRadiographd`.
    """

    array_class = LoadVolume


LoadVolumeD = LoadVolumeDict = LoadVolumed


def image_loader(
    keys: KeysCollection,
    spatial_dims: int = 2,
    channels: int = 1,
    intensity_window: Sequence[float] | None = None,
    rejected_key: str | None = None,
    spacing: float | Sequence[float] | None = None,
) -> Transform:
    """
    The transform that loads a bundle's images: pictures, gray or in color, or volumes.

    Args:
        keys: keys of the file names.
        spatial_dims: 2 for :py:class:`LoadRadiographd`, 3 for :py:class:`LoadVolumed`.
        channels: 1 for gray, 3 for color, of pictures alone.
        intensity_window: of volumes alone, see :py:class:`LoadVolume`.
        rejected_key: see :py:class:`LoadRadiographd`.
        spacing: millimeters between voxels to resample volumes to, one for all axes or one for each, where crops are
            cut that keep proportions; None for the file's own. (:py:func:`fit_images` takes it for whole images.)

    Raises:
        ValueError: for colors of volumes, and for a window or spacing of pictures.

    Example:
        >>> type(image_loader("image", spatial_dims=3)).__name__, type(image_loader("image", channels=3)).__name__
        ('LoadVolumed', 'LoadRadiographd')
    """
    if spatial_dims == 3:
        if channels != 1:
            raise ValueError(f"volumes have one channel, got channels {channels}; leave channels out")
        load = LoadVolumed(keys, intensity_window, rejected_key=rejected_key)
        if spacing is None:
            return load
        return Compose([load, Spacingd(keys, ensure_tuple_rep(spacing, 3), padding_mode="border")])
    if intensity_window is not None:
        raise ValueError("intensity_window is for volumes: a picture says itself how it is shown; leave it out")
    _check_spacing(spacing, spatial_dims)
    return LoadRadiographd(keys, rejected_key=rejected_key, channels=channels)


def fit_images(
    keys: KeysCollection,
    size: int | Sequence[int],
    spatial_dims: int = 2,
    spacing: float | Sequence[float] | None = None,
    mode: str | Sequence[str] = "area",
    allow_missing_keys: bool = False,
    cover: bool = False,
) -> Compose:
    """
    The transform from whole images to the network's input, or to what windows of its size cover.

    Args:
        keys: keys of images and masks.
        size: side of the input in pixels or voxels, one for all axes or one for each.
        spatial_dims: number of axes.
        spacing: millimeters between voxels, one for all axes or one for each: images are resampled to it, then padded
            or cropped about their middle. None resizes the whole image, whatever its proportions.
        mode: "area" for images and "nearest-exact" for masks, one for all keys or one for each. ("nearest" shifts masks
            by half a pixel.)
        allow_missing_keys: do not raise an error if a key is missing.
        cover: with ``spacing``, pad alone: larger images stay whole, for
            :py:class:`monai_afire.inferers.WindowInferer`.

    Raises:
        ValueError: for another number of sides than axes, spacing of pictures, and to cover images without spacing.

    Example:
        >>> image = MetaTensor(torch.rand(1, 8, 8, 4), affine=np.diag([1.0, 1.0, 2.0, 1.0]))
        >>> fit_images("image", 6, spatial_dims=3)({"image": image})["image"].shape
        torch.Size([1, 6, 6, 6])
        >>> fit_images("image", [4, 4, 6], spatial_dims=3, spacing=2.0)({"image": image})["image"].affine.diagonal()
        tensor([2., 2., 2., 1.], dtype=torch.float64)
    """
    _check_spacing(spacing, spatial_dims)
    shape = ensure_tuple_rep(size, spatial_dims)
    modes = ensure_tuple_rep(mode, len(ensure_tuple(keys)))
    if cover and spacing is None:
        raise ValueError("windows cover volumes of one spacing: give spacing, in millimeters, or leave cover out")
    if spacing is None:
        return Compose([Resized(keys, shape, mode=modes, anti_aliasing=False, allow_missing_keys=allow_missing_keys)])
    sampling = ["nearest" if name.startswith("nearest") else "bilinear" for name in modes]
    distance = ensure_tuple_rep(spacing, spatial_dims)
    return Compose(
        [
            Spacingd(keys, distance, mode=sampling, padding_mode="border", allow_missing_keys=allow_missing_keys),
            (SpatialPadd if cover else ResizeWithPadOrCropd)(keys, shape, allow_missing_keys=allow_missing_keys),
        ]
    )


def _check_spacing(spacing: float | Sequence[float] | None, spatial_dims: int) -> None:
    if spacing is not None and spatial_dims != 3:
        raise ValueError(f"spacing {spacing} is for volumes, and spatial_dims is {spatial_dims}; leave it out")


def input_shape(channels: int, size: int | Sequence[int], spatial_dims: int = 2) -> list[int]:
    """
    Shape of one image as the network takes it.

    Args:
        channels: of the image.
        size: one side for all axes, or one for each.
        spatial_dims: number of axes.

    Example:
        >>> input_shape(1, 96, spatial_dims=3)
        [1, 96, 96, 96]
    """
    return [channels, *ensure_tuple_rep(size, spatial_dims)]
