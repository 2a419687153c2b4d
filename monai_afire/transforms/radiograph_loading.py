# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of radiographs from the files that hospitals and public data sets give."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import DtypeLike, KeysCollection
from monai.config.type_definitions import PathLike
from monai.transforms import Transform
from monai.utils import TransformBackends, convert_to_dst_type

from monai_afire.transforms.base import ArrayTransformd
from monai_afire.transforms.radiograph_io.common import (
    RadiographError,
    RadiographPixels,
    SizeLimits,
    loaded_image,
    planar_affine,
    refuse,
    warn_about,
)
from monai_afire.transforms.radiograph_io.dicom import read_dicom
from monai_afire.transforms.radiograph_io.formats import identify_file, single_path
from monai_afire.transforms.radiograph_io.intensity import check_span, repaired, scale_to_unit
from monai_afire.transforms.radiograph_io.memory import NAME, read_memory
from monai_afire.transforms.radiograph_io.pictures import read_picture
from monai_afire.transforms.radiograph_io.planes import read_itk_plane, read_nifti
from monai_afire.utils.text import first_line

SCALINGS = ("depth", "range", "none")


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
        use_window: apply the window or lookup table of a DICOM file; otherwise it is scaled by ``scaling``, too.
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
        use_window: bool = True,
        min_size: int = 32,
        max_pixels: int = 2**26,
        max_aspect: float = 8.0,
        dtype: DtypeLike | torch.dtype = np.float32,
        channels: int = 1,
    ) -> None:
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 (gray) or 3 (red, green, blue), got {channels}.")
        if scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}.")
        if min_size < 1 or max_pixels < 1 or max_aspect < 1:
            got = f"min_size={min_size}, max_pixels={max_pixels}, max_aspect={max_aspect}"
            raise ValueError(f"min_size, max_pixels and max_aspect must be at least 1, got {got}.")
        self.scaling = scaling
        self.use_window = use_window
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
        return self._finished(path, self._read(path, identify_file(path)))

    def from_memory(self, picture: Any) -> torch.Tensor:
        """
        Load a picture that is already in memory, by the same rules as its file.

        Args:
            picture: of Pillow, or an array or tensor: gray ``(H, W)`` or ``(1, H, W)``, or 8-bit colors ``(3, H, W)``
                or ``(H, W, 3)``.

        Returns:
            As for a file.

        Raises:
            RadiographError: when it is no picture of an accepted size.
        """
        return self._finished(NAME, read_memory(picture, self.limits, self._keeps_colors))

    @property
    def _keeps_colors(self) -> bool:
        return self.channels == 3 and self.scaling != "none"

    def _finished(self, path: str, pixels: RadiographPixels) -> torch.Tensor:
        """The image of decoded pixels."""
        if self.scaling == "none" and pixels.slope != (1.0, 0.0):
            pixels.values = pixels.values * pixels.slope[0] + pixels.slope[1]
        pixels.values = repaired(path, pixels.values)
        check_span(path, pixels.values)
        is_scaled = bool(pixels.scaled_by) or self.scaling == "none"
        if not is_scaled and pixels.values.min() == pixels.values.max():
            warn_about(path, f"is blank: every pixel is {pixels.values.flat[0]:g}")
        return self._image(path, self._scaled(pixels))

    def blank(self, filename: Any) -> torch.Tensor:
        """A black picture of the smallest accepted size with the metadata of a loaded one, for a rejected file."""
        try:
            path = single_path(filename)
        except RadiographError:
            path = str(filename)
        values = np.zeros((self.limits.min_size, self.limits.min_size), dtype=np.float32)
        return self._image(
            path, RadiographPixels(values, "", "", 0, planar_affine(), scaled_by="none")
        )

    def _read(self, path: str, file_format: str) -> RadiographPixels:
        raw, color = self.scaling == "none", self._keeps_colors
        try:
            if file_format == "DICOM":
                return read_dicom(path, self.limits, self.use_window and not raw, color)
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

    def _scaled(self, pixels: RadiographPixels) -> RadiographPixels:
        """The picture in [0, 1], unless numbers are kept."""
        if self.scaling == "none":
            pixels.scaled_by = "none"
            return pixels
        if not pixels.scaled_by:
            pixels.values, pixels.intensity_range = scale_to_unit(pixels, self.scaling)
            pixels.scaled_by = self.scaling
        if pixels.padding is not None:
            pixels.values = np.where(pixels.padding, np.float32(0.0), pixels.values)
        return pixels

    def _image(self, path: str, pixels: RadiographPixels) -> torch.Tensor:
        """``(channels, H, W)``; its metadata has the same keys for every picture, so that batches collate."""
        if pixels.values.ndim == 3:
            values = np.moveaxis(pixels.values, -1, 0)
        else:
            values = np.repeat(pixels.values[None], self.channels, axis=0)
        # contiguous, and in the machine's order of bytes: PyTorch knows no other
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        tensor = convert_to_dst_type(values, torch.empty(0), dtype=self.dtype)[0]
        return loaded_image(
            tensor,
            path,
            pixels.affine,
            pixels.affine,
            file_format=pixels.file_format,
            photometric=pixels.photometric,
            bits=pixels.bits,
            spacing=np.asarray(pixels.spacing or (np.nan, np.nan), dtype=np.float64),
            scaled_by=pixels.scaled_by,
            intensity_range=np.asarray(pixels.intensity_range, dtype=np.float64),
        )


class LoadRadiographd(ArrayTransformd):
    """
    Dictionary version of :py:class:`LoadRadiograph`: replaces the file name under each key by the picture.

    Args:
        keys: keys of the file names.
        settings: as for :py:class:`LoadRadiograph`.
        allow_missing_keys: skip keys that an item lacks instead of raising.
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

    array_class = LoadRadiograph

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        allow_missing_keys: bool = False,
        rejected_key: str | None = None,
        file_key: str | None = None,
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, *settings, allow_missing_keys=allow_missing_keys, **named_settings)
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
