# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Radiograph files: the format of a file, and the numbers of pictures, TIFF and planes before they are scaled."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.config.type_definitions import PathLike
from PIL import Image, ImageOps

WRITER = "monai_afire"  # signs the heat maps that this package writes, which are no radiographs
SUPPORTED_EXTENSIONS: dict[str, str] = {
    **dict.fromkeys((".dcm", ".dicom", ".ima"), "DICOM"),
    ".png": "PNG",
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif"), "JPEG"),
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    ".bmp": "BMP",
    **dict.fromkeys((".nii", ".nii.gz"), "NIfTI"),
    **dict.fromkeys((".mha", ".mhd"), "MetaImage"),
    ".nrrd": "NRRD",
}
HEAD_BYTES = 1024
REDUCED = "reduced to gray (channels 3 keeps the colors)"
MISSING, UNOPENED = "does not exist", "cannot be opened"  # what may differ when a disk is back

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    **dict.fromkeys((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"), "TIFF"),
    b"NRRD00": "NRRD",
}
_GZIP = b"\x1f\x8b"
_METAIMAGE_FIELDS = (b"ObjectType", b"NDims", b"Comment")  # those that a header starts with
_NIFTI_MAGIC = ((344, b"n+1\x00"), (4, b"n+2\x00"))


class RadiographError(ValueError):
    """A file cannot be read as one radiograph; the message is one line: the file, the reason and the remedy.

    It takes a single argument so that it passes unchanged from the worker processes of a ``DataLoader``.
    """


class RadiographWarning(UserWarning):
    """A file was read, but something about it deserves a look; the message names the file."""


def refuse(path: PathLike, reason: str, remedy: str = "") -> RadiographError:
    """Build the one-line error for a file: name, reason, remedy."""
    return RadiographError(f"{path}: {reason}; {remedy}." if remedy else f"{path}: {reason}.")


def warn_about(path: PathLike, message: str) -> None:
    """Warn about one file."""
    warnings.warn(f"{path}: {message}.", RadiographWarning, stacklevel=4)


def refuse_own_result(path: str, is_own: bool) -> None:
    """Refuse a heat map of this package, which a viewer may have put back beside its radiograph."""
    if is_own:
        raise refuse(path, f"is a heat map that {WRITER} wrote, not a radiograph", "leave it out")


@dataclass(frozen=True)
class SizeLimits:
    """Sizes that are accepted, as of :py:class:`LoadRadiograph`; checked before memory is allocated for the pixels."""

    min_size: int = 32
    max_pixels: int = 2**26
    max_aspect: float = 8.0

    def check(self, path: str, height: int, width: int) -> None:
        """Refuse a picture of the wrong size."""
        size, short = f"is {width} x {height} pixels (width x height)", min(height, width)
        if short < self.min_size:
            raise refuse(path, f"{size}, min_size is {self.min_size}", "export it in more pixels")
        if height * width > self.max_pixels:
            raise refuse(path, f"{size}, max_pixels is {self.max_pixels}", "shrink it")
        if max(height, width) > self.max_aspect * short:
            raise refuse(path, f"{size}, max_aspect is {self.max_aspect:g}", "crop it")


@dataclass
class Picture:
    """A decoded picture, upright, before its intensities are scaled."""

    values: np.ndarray  # numbers (H, W) or colors (H, W, 3); in [0, 1] when scaled_by is set
    file_format: str = ""
    photometric: str = ""  # colors as the file states them: "MONOCHROME1", "RGB", "PALETTE" ...
    bits: int = 0  # per sample, as the file declares
    spacing: tuple[float, float] | None = None  # of rows and columns in mm; None: unknown
    affine: np.ndarray | None = None  # RAS (4, 4) of row, column, normal; None: no position
    inverted: bool = False  # low numbers, in the units of the file, are to be shown bright
    declared_range: tuple[float, float] | None = None  # that the file could store
    floor: float | None = None  # means "no signal" (black, or white if inverted); None: unknown
    padding: np.ndarray | None = None  # where a pixel is padding outside the picture, (H, W) bool
    slope: tuple[float, float] = (1.0, 0.0)  # factor and summand from values to the file's units
    scaled_by: str = ""  # "window" or "voi_lut" when the file's own rule was applied
    intensity_range: tuple[float, float] = (0.0, 1.0)  # the file's numbers that were shown as 0, 1

    @property
    def numbers(self) -> np.ndarray:
        """The values in the units of the file."""
        factor, summand = self.slope
        return self.values if self.slope == (1.0, 0.0) else self.values * factor + summand


def planar_affine(spacing: tuple[float, float] | None = None) -> np.ndarray:
    """RAS affine of a picture without position: rows run towards -y and columns towards -x."""
    row, column = spacing or (1.0, 1.0)
    return np.array([[0, -column, 0, 0], [-row, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=float)


def rgb_to_gray(rgb: np.ndarray) -> np.ndarray:
    """Luma of Rec. 601 of unsigned integers ``(H, W, 3)`` -> ``(H, W)``; exact where the three channels are equal."""
    weighted = rgb.astype(np.uint32) @ np.array([299, 587, 114], dtype=np.uint32)
    return ((weighted + 500) // 1000).astype(rgb.dtype)


# ---- formats


def supported_types() -> str:
    """List of the file types for messages."""
    return ", ".join(SUPPORTED_EXTENSIONS) + " and DICOM files of any other extension, or none"


def extension_of(path: PathLike) -> str:
    """
    Extension in lower case, or "" for none; ``.nii.gz`` counts as one, and the last number of a UID does not count.

    Example:
        >>> [extension_of(p) for p in ("a/Chest (PA).PNG", "b.nii.gz", "IM-0001-0001", "1.2.840.113619.2")]
        ['.png', '.nii.gz', '', '']
    """
    name = os.path.basename(os.fspath(path)).lower()
    extension = ".nii.gz" if name.endswith(".nii.gz") else os.path.splitext(name)[1]
    return "" if extension[1:].isdigit() else extension


def single_path(filename: PathLike | Sequence[PathLike]) -> str:
    """One path from a path or a list of one path, as datalists of MONAI have them."""
    names = filename if isinstance(filename, (list, tuple)) else [filename]
    if len(names) != 1 or not isinstance(names[0], (str, os.PathLike)):
        found = f"{len(names)} files" if len(names) > 1 else type(filename).__name__
        raise RadiographError(f"{found} where the name of one file is expected; give one path.")
    return os.path.expanduser(os.fspath(names[0]))


def identify_content(head: bytes) -> str:
    """
    Format of a file from its first ``HEAD_BYTES`` bytes, "" where it is none of those of ``SUPPORTED_EXTENSIONS``.

    Example:
        >>> identify_content(bytes(128) + b"DICM"), identify_content(b"<html>")
        ('DICOM', '')
    """
    if head[128:132] == b"DICM":
        return "DICOM"
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            return name
    if head.startswith(b"BM") and head[6:10] == bytes(4):
        return "BMP"
    if head.lstrip().startswith(_METAIMAGE_FIELDS) and b"=" in head.partition(b"\n")[0]:
        return "MetaImage"
    head = _inflated_head(head)
    if any(head[offset : offset + 4] == magic for offset, magic in _NIFTI_MAGIC):
        return "NIfTI"
    return "DICOM" if _starts_like_dicom(head) else ""


def _inflated_head(head: bytes) -> bytes:
    """First bytes of what a gzip file holds; those of another file as they are."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


def _starts_like_dicom(head: bytes) -> bool:
    """Recognize a data set without preamble: it starts with an element of group 0002 or 0008."""
    if len(head) < 16 or head[:2] not in (b"\x02\x00", b"\x08\x00") or head[3] != 0:
        return False
    explicit = head[4:6].isalpha() and head[4:6].isupper()
    implicit = 0 < int.from_bytes(head[4:8], "little") <= 256
    return explicit or implicit


def identify_file(path: str) -> str:
    """Format of a file by its content, whatever its extension says."""
    extension, head = extension_of(path), _read_head(path)
    file_format, supported = identify_content(head), f"supported: {supported_types()}"
    if not file_format:
        raise refuse(path, f"is no picture, it starts with {head[:16]!r}", supported)
    if extension and extension not in SUPPORTED_EXTENSIONS and file_format != "DICOM":
        raise refuse(path, f"has the unknown extension {extension}", supported)
    if SUPPORTED_EXTENSIONS.get(extension, file_format) != file_format:
        warn_about(path, f"is read as {file_format}, which it is in spite of its extension")
    return file_format


def _read_head(path: str) -> bytes:
    """First bytes of a file, at least one."""
    # asked before it is opened: a named pipe would wait for a writer for ever, a device has no end
    if os.path.exists(path) and not os.path.isfile(path):
        raise refuse(path, "is a folder, a pipe or a device, not a file", "name the files in it")
    try:
        with open(path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise refuse(path, MISSING, "check its name") from error
    except (OSError, ValueError) as error:
        raise refuse(path, f"{UNOPENED} ({getattr(error, 'strerror', None) or error})") from error
    if not head:
        raise refuse(path, "is empty (0 bytes)", "copy or download it again")
    return head


# ---- PNG, JPEG, TIFF, BMP

_BITS, _PHOTOMETRIC, _ORIENTATION, _PLANES, _SAMPLE_FORMAT = 258, 262, 274, 284, 339  # TIFF tags
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2
_SEPARATE = 2  # planes
_SIGNS = {1: "u", 2: "i"}  # sample format -> kind of a NumPy type
_LARGEST_SPREAD = 1 / 32  # of the channels of a gray picture, as compression leaves it


def read_picture(
    path: str, file_format: str, limits: SizeLimits, raw: bool = False, color: bool = False
) -> Picture:
    """Read a PNG, JPEG, TIFF or BMP file; ``raw`` keeps the indices of a palette, ``color`` colors ``(H, W, 3)``."""
    formats = ("JPEG", "MPO") if file_format == "JPEG" else (file_format,)
    # a stream, not a name: Pillow would map the file into memory, where it ignores the orientation of a TIFF
    with open(path, "rb") as stream:
        try:
            image = Image.open(stream, formats=formats)
        except Image.UnidentifiedImageError:
            if file_format == "TIFF" and (found := _read_with_tifffile(path, limits, color)):
                return found
            raise
        limits.check(path, image.height, image.width)
        # the further pictures of a JPEG are previews by definition of that format
        if file_format != "JPEG" and getattr(image, "is_animated", False):
            raise refuse(path, "holds several pictures", "save the wanted one alone")
        refuse_own_result(path, image.info.get("comment") == WRITER.encode())
        tags: Any = getattr(image, "tag_v2", {})
        is_deep = np.max(tags.get(_BITS, 1)) > 8 or np.max(tags.get(_SAMPLE_FORMAT, 1)) != 1
        if is_deep and (found := _read_with_tifffile(path, limits, color)):
            return found
        return opened_picture(path, image, file_format, raw, color)


def opened_picture(
    path: str, image: Image.Image, file_format: str, raw: bool = False, color: bool = False
) -> Picture:
    """A picture that Pillow has opened, upright; arguments as of :func:`read_picture`."""
    tags: Any = getattr(image, "tag_v2", {}) if file_format == "TIFF" else {}
    # 16-bit PNG files had the mode I before Pillow 11.3
    of_mode = 16 if image.mode.startswith("I") else {"1": 1, "F": 32}.get(image.mode, 8)
    bits = int(np.max(tags.get(_BITS, of_mode)))
    # Pillow decodes separate planes of more than 8 bits wrong, and 32 bits in the other order
    is_swapped = image.mode in ("I", "F") and getattr(tags, "prefix", b"II") == b"MM"
    if bits > 8 and (is_swapped or tags.get(_PLANES) == _SEPARATE):
        remedy = "pip install imagecodecs, or save it again as a 16-bit PNG"
        raise refuse(path, "is compressed as no installed library decodes it rightly", remedy)
    image.load()
    values = _numbers(path, ImageOps.exif_transpose(image), raw, color)
    sign = _SIGNS.get(int(np.max(tags.get(_SAMPLE_FORMAT, 0))))
    if sign and values.dtype.kind in "iu" and values.dtype.itemsize * 8 == bits:
        values = values.view(f"{sign}{values.dtype.itemsize}")  # a mode of Pillow has one sign
    mode = "PALETTE" if image.mode in ("P", "PA") else image.mode
    picture = picture_of(values, file_format, mode, bits, tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
    picture.inverted &= bits > 8  # Pillow turns WhiteIsZero round itself for up to 8 bits
    return picture


def picture_of(
    values: np.ndarray, file_format: str, mode: str, bits: int, white_is_zero: bool = False
) -> Picture:
    """A picture without position, of numbers that the file declares to have ``bits`` bits."""
    return Picture(
        values=values.astype(values.dtype.newbyteorder("="), copy=False),
        file_format=file_format,
        photometric="WHITE_IS_ZERO" if white_is_zero else mode,
        bits=bits,
        inverted=white_is_zero,
        # whole numbers: 2**64 - 1 is no floating-point number
        declared_range=(0, 2**bits - 1) if values.dtype.kind == "u" else None,
    )


def _numbers(path: str, image: Image.Image, raw: bool, color: bool) -> np.ndarray:
    """Numbers ``(H, W)`` of a picture of any mode, ``(H, W, 3)`` of one in color where that is to be kept."""
    mode = image.mode
    if mode in ("L", "F", "I") or mode.startswith("I;16") or (raw and mode == "P"):
        return np.asarray(image)
    if mode in ("LA", "La"):
        return np.asarray(image.getchannel(0))
    if mode == "1":
        return np.asarray(image.convert("L"))
    if mode in ("P", "PA", "RGBA", "RGBa"):
        # the colors under a transparent pixel are kept, not mixed with a background
        image = image.convert("RGBA")
    rgb = image.convert("RGB")
    if color:
        return np.asarray(rgb)
    # small, so that noise of single pixels, as JPEG leaves it, is no color
    _warn_if_colored(path, np.asarray(rgb.resize((64, 64), Image.Resampling.BOX)))
    return np.asarray(rgb.convert("L"))


def _warn_if_colored(path: str, colors: np.ndarray) -> None:
    """Warn about a picture ``(H, W, 3)`` that is not gray by more than compression makes it."""
    spread = colors.max(axis=-1).astype(np.int32) - colors.min(axis=-1)
    if spread.mean() > _LARGEST_SPREAD * (np.iinfo(colors.dtype).max + 1):
        warn_about(path, f"is a color picture, perhaps no radiograph; {REDUCED}")


def _read_with_tifffile(path: str, limits: SizeLimits, color: bool) -> Picture | None:
    """TIFF by tifffile; None where it lacks the codec, or cannot read the file at all."""
    import tifffile

    try:
        with tifffile.TiffFile(path) as tiff:
            page: Any
            page, *others = itertools.islice(tiff.pages, 2)  # to count thousands takes long
            if others or page.imagedepth != 1:
                raise refuse(path, "holds several pictures", "save the wanted one alone")
            limits.check(path, page.imagelength, page.imagewidth)
            values = page.asarray()
    except RadiographError:
        raise
    except Exception:  # a damaged file can raise anything; Pillow says what is wrong
        return None
    if page.planarconfig == _SEPARATE and values.ndim == 3:
        values = np.moveaxis(values, 0, -1)
    values = _turned(values, int(page.tags.valueof(_ORIENTATION, 1)))
    photometric, bits = int(page.photometric), int(np.max(page.bitspersample))
    values = _gray_or_colors(path, values, photometric, color)
    mode = "RGB" if photometric == _RGB else str(values.dtype.newbyteorder("="))
    return picture_of(values, "TIFF", mode, bits, photometric == _WHITE_IS_ZERO)


def _turned(values: np.ndarray, orientation: int) -> np.ndarray:
    """A stored picture as its orientation says (TIFF 6.0, page 36)."""
    if orientation in (3, 4, 6, 7):
        values = values[::-1]
    if orientation in (2, 3, 7, 8):
        values = values[:, ::-1]
    return np.ascontiguousarray(values.swapaxes(0, 1) if orientation in (5, 6, 7, 8) else values)


def _gray_or_colors(path: str, samples: np.ndarray, photometric: int, color: bool) -> np.ndarray:
    """Gray numbers without transparency; colors of 16 bits as fractions, or as their luma."""
    is_gray = photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO)
    if is_gray and samples.ndim == 2:
        return samples
    if is_gray and samples.shape[-1] == 2:
        return samples[..., 0]
    if photometric != _RGB or samples.dtype != np.uint16:
        found = f"holds pixels of the shape {samples.shape[2:]} of {samples.dtype}"
        raise refuse(path, found, "save it in gray, or in 16-bit RGB")
    rgb = samples[..., :3]
    if color:
        return (rgb / (2.0**16 - 1)).astype(np.float32)
    _warn_if_colored(path, rgb)
    return rgb_to_gray(rgb)


# ---- NIfTI, MetaImage, NRRD

_HEADER_BYTES = 2**16  # of MetaImage and NRRD
_METAIMAGE_DATA = re.compile(rb"^\s*ElementDataFile\s*[=:][ \t]*(.*?)\s*$", re.MULTILINE)
_METAIMAGE_COMPRESSED = re.compile(
    rb"^\s*CompressedData\s*[=:]\s*[T1]", re.MULTILINE | re.IGNORECASE
)
_NRRD_ELSEWHERE = re.compile(rb"^(data ?file|(byte|line) ?skip)\s*:", re.MULTILINE | re.IGNORECASE)


def read_nifti(path: str, limits: SizeLimits) -> Picture:
    """Read a NIfTI-1 or NIfTI-2 file, compressed or not, whose axes have length 1 except two."""
    with open(path, "rb") as stream:
        is_compressed = stream.read(2) == _GZIP
        stream.seek(0)
        content: Any = gzip.GzipFile(fileobj=stream) if is_compressed else stream
        is_second = content.read(8)[4:7] == b"n+2"
        content.seek(0)
        image = (nib.Nifti2Image if is_second else nib.Nifti1Image).from_stream(content)
        axes = _plane_axes(path, image.shape, limits)
        values = np.asarray(image.dataobj).copy()  # no map of the file
        while is_compressed and content.read(2**20):
            pass  # to its checksum
    return _plane(values, image.affine, axes, "NIfTI", int(image.header["bitpix"]))


def read_itk_plane(path: str, file_format: str, limits: SizeLimits) -> Picture:
    """Read a MetaImage or NRRD file whose axes have length 1 except two."""
    import itk

    _refuse_pixels_elsewhere(path, file_format)
    header = itk.MetaImageIO.New() if file_format == "MetaImage" else itk.NrrdImageIO.New()
    header.SetFileName(path)
    header.ReadImageInformation()
    shape = [header.GetDimensions(axis) for axis in range(header.GetNumberOfDimensions())]
    axes = _plane_axes(path, shape, limits)
    if header.GetNumberOfComponents() != 1:
        raise refuse(path, "holds several numbers per pixel", "save it in gray")
    if file_format == "MetaImage":
        _check_compressed_pixels(path, header.GetImageSizeInBytes())
    affine, bits = _itk_affine(header), 8 * header.GetComponentSize()
    return _plane(read_with_itk(path, header).T, affine, axes, file_format, bits)


def read_with_itk(path: str, imageio: Any) -> np.ndarray:
    """Read a file by one of ITK's ``ImageIO`` classes; the axes are in the order of NumPy, ``(..., z, y, x)``."""
    import itk

    try:
        return itk.array_from_image(itk.imread(path, imageio=imageio))
    except RuntimeError as error:  # its first line is a place in the source of ITK
        raise ValueError(str(error).rpartition("ITK ERROR: ")[2]) from error


def _refuse_pixels_elsewhere(path: str, file_format: str) -> None:
    """Refuse a header that may name any file of the machine; pixels are in the file, or in one beside a MetaImage."""
    with open(path, "rb") as stream:
        start = stream.read(_HEADER_BYTES)
    if file_format == "NRRD":
        header, end, _ = start.replace(b"\r\n", b"\n").partition(b"\n\n")
        is_elsewhere = not end or bool(_NRRD_ELSEWHERE.search(header))
    else:
        found = _METAIMAGE_DATA.search(start)
        name = os.fsdecode(found[1]) if found else ""
        is_beside = os.path.basename(name) == name
        is_beside &= os.path.isfile(os.path.join(os.path.dirname(path), name))
        is_elsewhere = name.upper() != "LOCAL" and not is_beside
    if is_elsewhere:
        raise refuse(path, "has its pixels in no file beside it", "save both in one file")


def _check_compressed_pixels(path: str, size: int) -> None:
    """Raise for damaged pixels of a compressed MetaImage, for which ITK returns uninitialized memory."""
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    data = _METAIMAGE_DATA.search(header)
    if data is None or not _METAIMAGE_COMPRESSED.search(header, 0, data.start()):
        return
    if data[1].upper() == b"LOCAL":
        content = Path(path).read_bytes()
        pixels = content[content.index(b"\n", data.end(1)) + 1 :]
    else:
        pixels = Path(path).with_name(os.fsdecode(data[1])).read_bytes()
    stream = zlib.decompressobj(wbits=47)  # zlib or gzip, as ITK writes either
    if len(stream.decompress(pixels, size + 1)) != size or not stream.eof:
        raise ValueError("its compressed pixels are cut")


def _itk_affine(header: Any) -> np.ndarray:
    """RAS affine of a header, whose directions are those of ITK, LPS."""
    affine = np.eye(4)
    for axis in range(min(3, header.GetNumberOfDimensions())):
        direction = np.asarray(header.GetDirection(axis))[:3]
        affine[: len(direction), axis] = direction * header.GetSpacing(axis)
        affine[axis, 3] = header.GetOrigin(axis)
    affine[:2] *= -1
    return affine


def _plane_axes(path: str, shape: Sequence[int], limits: SizeLimits) -> list[int]:
    """The two axes of an array that are longer than 1; its shape and size are checked."""
    axes = [axis for axis, length in enumerate(shape) if length != 1]
    if len(axes) > 2 or any(axis > 2 for axis in axes) or 0 in shape:
        found = f"has the shape {' x '.join(map(str, shape))}, not of one 2-D picture"
        raise refuse(path, found, "save the wanted slice as a file of its own")
    axes = (axes + [axis for axis in range(3) if axis not in axes])[:2]
    limits.check(path, *(int((*shape, 1, 1, 1)[axis]) for axis in reversed(axes)))
    return axes


def _plane(
    values: np.ndarray, affine: np.ndarray, axes: list[int], file_format: str, bits: int
) -> Picture:
    """
    The one plane of an array as viewers show it, and its affine.

    Rows run to the feet, or to the back where the plane is that of x and y, as converters of DICOM give one to
    radiographs; columns run to the left of the patient, or to the back. All of these are negative directions (RAS+).
    """
    column, row = axes
    values = values.reshape((*values.shape, 1, 1, 1)[:3])
    values = np.moveaxis(values, (row, column), (0, 1))[:, :, 0]
    photometric = "MONOCHROME2"
    if values.dtype.fields:
        photometric = "RGB"
        values = rgb_to_gray(np.stack([values[name] for name in "RGB"], axis=-1))
    plane = _known_plane(affine[:, [row, column, 3 - row - column, 3]].astype(np.float64))
    world, signs = nib.io_orientation(plane)[:2].T
    if world[0] < world[1]:
        values, plane, signs = values.T, plane[:, [1, 0, 2, 3]], signs[::-1]
    # writers of NIfTI without geometry leave the identity, and their rows start at the top
    is_unknown = file_format == "NIfTI" and 2 not in axes and np.array_equal(affine, np.eye(4))
    for axis in [] if is_unknown else np.flatnonzero(signs > 0).tolist():
        values = np.flip(values, axis)
        plane[:, 3] += plane[:, axis] * (values.shape[axis] - 1)
        plane[:, axis] *= -1
    spacing = tuple(np.linalg.norm(plane[:3, :2], axis=0).tolist())
    return Picture(np.ascontiguousarray(values), file_format, photometric, bits, spacing, plane)


def _known_plane(affine: np.ndarray) -> np.ndarray:
    """The affine of a picture's plane, whose third direction may be missing; one without position where more is."""
    normal = np.cross(affine[:3, 0], affine[:3, 1])
    if not np.isfinite(affine[:, [0, 1, 3]]).all() or not normal.any():
        return planar_affine()
    volume = affine[:3, 2] @ normal  # the determinant
    if volume == 0 or not np.isfinite(volume):
        affine[:3, 2] = normal / np.linalg.norm(normal)
    return affine
