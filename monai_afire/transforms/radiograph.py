# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of radiographs from the files that hospitals and public data sets give."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import DtypeLike, KeysCollection
from monai.config.type_definitions import PathLike
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import Transform
from monai.utils import TransformBackends, convert_to_dst_type
from PIL import Image

from monai_afire.transforms.base import ArrayTransformd
from monai_afire.transforms.radiograph_dicom import read_dicom
from monai_afire.transforms.radiograph_files import (
    Picture,
    RadiographError,
    SizeLimits,
    identify_file,
    opened_picture,
    picture_of,
    planar_affine,
    read_itk_plane,
    read_nifti,
    read_picture,
    refuse,
    single_path,
    warn_about,
)
from monai_afire.utils.text import first_line

_SCALINGS = ("depth", "range", "none")
_IN_MEMORY = "the given picture"
_WIDEST_SPAN = 2.0**64  # of the numbers of a file: what the widest integers hold


class LoadRadiograph(Transform):
    """
    Load one radiograph from DICOM, PNG, JPEG, TIFF, BMP, NIfTI, MetaImage or NRRD as a gray picture in [0, 1].

    The output is ``(1, H, W)``: height first (unlike :py:class:`monai.transforms.LoadImage`, which transposes PNG),
    upright, bright where tissue is dense. The format is found from the content, not from the extension. Transparency is
    dropped, a palette applied, colors reduced to luma, MONOCHROME1 and WhiteIsZero inverted, EXIF orientation
    honored.

    Intensities: a DICOM file is shown through its first window, or its VOI lookup table if it has no window
    (``intensity_range`` in the metadata contains the numbers that became 0 and 1). Any other file is scaled by
    ``scaling``. NaN and -Inf become the smallest finite number, +Inf the largest, with a warning that counts them. A
    file whose finite numbers are more than 2**64 apart, such as ±3.4e38 for missing pixels, is refused. Pixels that a
    DICOM file marks as padding become 0.

    The output is a ``MetaTensor`` with the metadata that MONAI's transforms and ``SaveImage`` use
    (``filename_or_obj``, ``affine``, ``original_affine``, ``spatial_shape``, ``original_channel_dim``, ``space``) and
    ``file_format``, ``photometric``, ``bits``, ``spacing`` (mm between rows and columns, NaN if unknown),
    ``scaled_by``, ``intensity_range``. With ``SaveImage``, NIfTI output lies on the input; PNG output needs
    ``reverse_indexing=False`` in its write options.

    Args:
        scaling: "depth" divides by the range of the detector, the smallest ``2**bits - 1`` (at least 255) that holds
            the picture, so that 8-, 12- and 16-bit versions of one picture agree; fractions within [0, 1] do not
            change. "range" stretches every picture from its own minimum to its own maximum.
            "none" keeps the numbers, for label maps: no window, no inversion, indices of a PNG palette.
        apply_voi_lut: apply the window or lookup table of a DICOM file; otherwise it is scaled by ``scaling``, too.
        min_size: smallest accepted height and width in pixels.
        max_pixels: largest accepted height times width, checked before the pixels are decompressed.
        max_aspect: largest accepted ratio of the longer to the shorter side.
        dtype: data type of the output, of NumPy or PyTorch.
        channels: 1 for gray; 3 keeps the colors of DICOM, PNG, JPEG, TIFF and BMP files, ``(3, H, W)``, and repeats
            what is gray.

    Raises:
        RadiographError: When a file cannot be read as one radiograph; one line: the file, the reason and the remedy.
        ValueError: When an argument is outside its range.

    Example:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> path = os.path.join(tempfile.mkdtemp(), "chest.png")
        >>> Image.linear_gradient("L").resize((64, 48)).save(path)  # 64 wide, 48 high
        >>> image = LoadRadiograph()(path)
        >>> tuple(image.shape), bool(image.max() <= 1), image.meta["file_format"]
        ((1, 48, 64), True, 'PNG')
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012 (MONAI declares it so)

    def __init__(
        self,
        scaling: str = "depth",
        apply_voi_lut: bool = True,
        min_size: int = 32,
        max_pixels: int = 2**26,
        max_aspect: float = 8.0,
        dtype: DtypeLike | torch.dtype = np.float32,
        channels: int = 1,
    ) -> None:
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 (gray) or 3 (red, green, blue), got {channels}.")
        if scaling not in _SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(_SCALINGS)}, got {scaling!r}.")
        if min_size < 1 or max_pixels < 1 or max_aspect < 1:
            got = f"min_size={min_size}, max_pixels={max_pixels}, max_aspect={max_aspect}"
            raise ValueError(f"min_size, max_pixels and max_aspect must be at least 1, got {got}.")
        self.scaling = scaling
        self.apply_voi_lut = apply_voi_lut
        self.limits = SizeLimits(min_size, max_pixels, max_aspect)
        self.dtype = dtype
        self.channels = channels

    def __call__(self, filename: PathLike | Sequence[PathLike]) -> torch.Tensor:
        """
        Args:
            filename: the file, or a list of this one file.

        Returns:
            ``MetaTensor`` (a plain tensor under ``set_track_meta(False)``) of shape ``(channels, H, W)``.
        """
        path = single_path(filename)
        return self._scaled(path, self._read(path, identify_file(path)))

    def from_memory(self, picture: Any) -> torch.Tensor:
        """
        Load a picture that is already in memory, by the same rules as its file.

        Args:
            picture: of Pillow, or an array or tensor: gray ``(H, W)`` or ``(1, H, W)``, or 8-bit colors ``(3, H, W)``
                or ``(H, W, 3)``.
        """
        if not isinstance(picture, Image.Image):
            picture = _array_or_picture(picture)
        if isinstance(picture, Image.Image):
            self.limits.check(_IN_MEMORY, picture.height, picture.width)
            name, color = picture.format or "picture", self._keeps_colors
            decoded = opened_picture(_IN_MEMORY, picture, name, color=color)
        else:
            self.limits.check(_IN_MEMORY, *picture.shape)
            decoded = picture_of(picture, "array", "", 8 * picture.dtype.itemsize)
        return self._scaled(_IN_MEMORY, decoded)

    def blank(self, filename: Any) -> torch.Tensor:
        """A black picture of the smallest accepted size with the metadata of a loaded one, for a rejected file."""
        try:
            path = single_path(filename)
        except RadiographError:
            path = str(filename)
        values = np.zeros((self.limits.min_size, self.limits.min_size), dtype=np.float32)
        return self._image(path, Picture(values, scaled_by="none"))

    @property
    def _keeps_colors(self) -> bool:
        return self.channels == 3 and self.scaling != "none"

    def _read(self, path: str, file_format: str) -> Picture:
        """The numbers of a file; whatever a library raises becomes the error of that file."""
        raw, color = self.scaling == "none", self._keeps_colors
        try:
            if file_format == "DICOM":
                return read_dicom(path, self.limits, self.apply_voi_lut and not raw, color)
            if file_format == "NIfTI":
                return read_nifti(path, self.limits)
            if file_format in ("MetaImage", "NRRD"):
                return read_itk_plane(path, file_format, self.limits)
            return read_picture(path, file_format, self.limits, raw=raw, color=color)
        except (RadiographError, ImportError):  # a package that is missing is no fault of the file
            raise
        except Exception as error:
            # a damaged header can raise anything in the libraries that decode it
            found = f"its {file_format} data cannot be read ({first_line(error)})"
            raise refuse(path, f"is cut or damaged: {found}", "copy or export it again") from error

    def _scaled(self, path: str, picture: Picture) -> torch.Tensor:
        """The image of decoded numbers."""
        if self.scaling == "none":
            picture.values, picture.scaled_by = picture.numbers, "none"
        picture.values = _repaired(path, picture.values)
        if not picture.scaled_by:
            if picture.values.min() == picture.values.max():
                warn_about(path, f"is blank: every pixel is {picture.values.flat[0]:g}")
            picture.values, picture.intensity_range = _scaled_to_unit(picture, self.scaling)
            picture.scaled_by = self.scaling
        if picture.padding is not None and self.scaling != "none":
            picture.values = np.where(picture.padding, np.float32(0.0), picture.values)
        return self._image(path, picture)

    def _image(self, path: str, picture: Picture) -> torch.Tensor:
        """``(channels, H, W)``; its metadata has the same keys for every picture, so that batches collate."""
        if picture.values.ndim == 3:
            values = np.moveaxis(picture.values, -1, 0)
        else:
            values = np.repeat(picture.values[None], self.channels, axis=0)
        # contiguous and in native byte order, as PyTorch requires
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        tensor = convert_to_dst_type(values, torch.empty(0), dtype=self.dtype)[0]
        if not get_track_meta():
            return tensor
        affine = planar_affine() if picture.affine is None else picture.affine
        meta = {
            "filename_or_obj": path,
            "spatial_shape": np.asarray(tensor.shape[1:]),
            "original_channel_dim": 0,
            "affine": torch.as_tensor(affine, dtype=torch.float64),
            "original_affine": affine.astype(np.float64),
            "space": "RAS",
            "file_format": picture.file_format,
            "photometric": picture.photometric,
            "bits": picture.bits,
            "spacing": np.asarray(picture.spacing or (np.nan, np.nan), dtype=np.float64),
            "scaled_by": picture.scaled_by,
            "intensity_range": np.asarray(picture.intensity_range, dtype=np.float64),
        }
        return MetaTensor(tensor, meta=meta)


class LoadRadiographd(ArrayTransformd):
    """
    Dictionary version of :py:class:`LoadRadiograph`: replaces the file name under each key by the picture.

    Args:
        keys: keys of the file names.
        settings: as for :py:class:`LoadRadiograph`.
        rejected_key: None raises on a file that cannot be read. With a key, one bad file does not stop a run over
            thousands: the item gets a black picture instead and, under this key, the reason ("" for a good one).
        file_key: None forgets the name of the file, of the first key; else it is kept under this one.

    Example:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> path = os.path.join(tempfile.mkdtemp(), "chest.png")
        >>> Image.linear_gradient("L").resize((64, 48)).save(path)
        >>> item = LoadRadiographd(keys="image")({"image": path, "label": 1})
        >>> tuple(item["image"].shape), item["label"]
        ((1, 48, 64), 1)
    """

    array = LoadRadiograph

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        rejected_key: str | None = None,
        file_key: str | None = None,
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, *settings, **named_settings)
        self.rejected_key = rejected_key
        self.file_key = file_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Load the files of one item. The item itself does not change."""
        item = dict(data)
        if self.rejected_key is not None:
            item[self.rejected_key] = ""
        if self.file_key is not None:
            item[self.file_key] = data[self.first_key(item)]
        for key in self.key_iterator(item):
            try:
                item[key] = self.transform(data[key])
            except RadiographError as error:
                if self.rejected_key is None:
                    raise
                item[key], item[self.rejected_key] = self.transform.blank(data[key]), str(error)
        return item


LoadRadiographD = LoadRadiographDict = LoadRadiographd


def _array_or_picture(array: Any) -> np.ndarray | Image.Image:
    """An array in memory as gray numbers ``(H, W)``, or as a picture in color."""
    array = array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array
    if not isinstance(array, np.ndarray):
        expected = "a path, a picture of Pillow or an array is expected"
        raise RadiographError(f"{expected}, got {type(array).__name__}; give one of these.")
    shape = array.shape
    if array.ndim == 3 and len(array) == 3:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[2] == 3 and array.dtype == np.uint8:
        return Image.fromarray(np.ascontiguousarray(array))
    array = array[0] if array.ndim == 3 and len(array) == 1 else array
    if array.ndim != 2:
        shapes = "give (H, W), (1, H, W), or the colors (3, H, W) or (H, W, 3) in 8 bits"
        raise refuse(_IN_MEMORY, f"has the shape {shape} of {array.dtype}", shapes)
    return array


# ---- intensities


def _repaired(path: str, values: np.ndarray) -> np.ndarray:
    """Replace NaN and -Inf by the smallest finite number, +Inf by the largest, with a warning that counts them."""
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind != "f":  # of complex ones the imaginary part would be lost
        raise refuse(path, f"holds {values.dtype}, not real numbers", "save the magnitude")
    is_finite = np.isfinite(values)
    bad = values.size - np.count_nonzero(is_finite)
    if bad == values.size:
        raise refuse(path, "has no finite pixel", "export it again")
    finite = values[is_finite] if bad else values
    low, high = float(finite.min()), float(finite.max())
    # all others would become one gray level, or the difference infinite
    if not high - low <= _WIDEST_SPAN:
        found = f"holds numbers from {low:.3g} to {high:.3g}, which no detector gives"
        raise refuse(path, found, "replace missing pixels by NaN, or export it again")
    if not bad:
        return values
    warn_about(path, f"has {bad} pixels that are NaN or infinite, replaced by finite ones")
    return np.nan_to_num(values, nan=low, neginf=low, posinf=high)


def _scaled_to_unit(picture: Picture, scaling: str) -> tuple[np.ndarray, tuple[float, float]]:
    """``(H, W)`` float32 in [0, 1], bright where the file means bright; the numbers of the file that became 0 and 1."""
    values, declared, (factor, summand) = picture.values, picture.declared_range, picture.slope
    inverted = picture.inverted ^ (factor < 0)
    is_whole = values.dtype.kind in "iu"
    if is_whole and values.dtype != np.uint64 and (inverted or values.dtype.itemsize > 2):
        # signed and wide enough to be mirrored; whole numbers stay whole, and nothing signed holds those of 64 bits
        values = values.astype(np.int32 if values.dtype.itemsize <= 2 else np.int64)
    inside = values if picture.padding is None else values[~picture.padding]
    low, high = float(inside.min()), float(inside.max())
    # a picture that fills less than a quarter of the declared range is in a container of more bits
    fills = declared is not None and high - low > (declared[1] - declared[0]) / 4
    mirror: float | None = None
    if declared and fills and inverted and scaling == "depth":
        # mirroring within the declared range gives the numbers of the same picture in MONOCHROME2, by the same rule
        mirror = int(sum(declared)) if is_whole else sum(declared)
        values, inside = mirror - values, mirror - inside
    if scaling == "depth":
        low, high = _depth_range(inside, picture.floor)
    unit = values.astype(np.float64 if values.dtype.itemsize > 4 else np.float32)
    unit -= low  # in place: a new picture for each step takes longer than the step
    unit /= max(high - low, 1e-30)
    unit = np.clip(unit, 0.0, 1.0, out=unit).astype(np.float32, copy=False)
    if mirror is not None:
        low, high = mirror - low, mirror - high
    elif inverted:
        unit, low, high = np.float32(1.0) - unit, high, low
    return unit, (factor * low + summand, factor * high + summand)


def _depth_range(values: np.ndarray, floor: float | None) -> tuple[float, float]:
    """
    Range of the detector behind a picture whose number for "no signal" is ``floor``, None where it is not known.

    The floor (0, or the smallest number below) and ``2**bits - 1`` above, of the fewest bits, at least 8, that hold the
    numbers; (0, 1) of fractions.
    """
    low, high = float(values.min()), float(values.max())
    is_fraction = values.dtype.kind == "f"
    if is_fraction:
        if low < 0 and -low <= 0.01 * high:  # overshoot of an interpolation is not a signed picture
            low = 0.0
        if low >= 0 and high <= 1:
            return 0.0, 1.0
        if (low < 0 or high < 128) and not np.array_equal(values, np.rint(values)):
            return low, high
    start = min(0.0, low) if floor is None else floor
    span = (high - start) / (1.01 if is_fraction else 1.0)
    bits = max(8, math.ceil(math.log2(span + 1)))
    return start, start + 2.0**bits - 1.0
