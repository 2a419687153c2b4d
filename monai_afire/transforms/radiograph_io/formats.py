# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Recognition of a file's format by its name and its first bytes, before anything is decoded."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Sequence

from monai.config.type_definitions import PathLike

from monai_afire.transforms.radiograph_io.common import RadiographError, refuse, warn_about
from monai_afire.utils.files import spelling_on_disk

SUPPORTED_EXTENSIONS: dict[str, str] = {
    ".dcm": "DICOM",
    ".dicom": "DICOM",
    ".ima": "DICOM",
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".jpe": "JPEG",
    ".jfif": "JPEG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".bmp": "BMP",
    ".nii": "NIfTI",
    ".nii.gz": "NIfTI",
    ".mha": "MetaImage",
    ".mhd": "MetaImage",
    ".nrrd": "NRRD",
}
HEAD_BYTES = 1024
# what may be otherwise when its disk is back
MISSING = "does not exist"
UNOPENED = "cannot be opened"

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"NRRD00", "NRRD"),
)
_GZIP = b"\x1f\x8b"
_OTHER_PICTURES: tuple[tuple[bytes, str], ...] = (
    (b"GIF8", "GIF"),
    (b"RIFF", "WebP"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"P5", "PGM"),
)
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst", ".iso")
_PICTURES = (".gif", ".webp", ".jp2", ".j2k", ".heic", ".avif", ".pgm", ".img", ".dic", ".acr")
_METAIMAGE_FIELDS = (b"ObjectType", b"NDims", b"Comment")  # those that a header starts with
_NIFTI_OFFSETS = ((344, b"n+1\x00"), (4, b"n+2\x00"))


def supported_types() -> str:
    """List of the file types for messages.

    Example:
        >>> supported_types()  # doctest: +ELLIPSIS
        '.dcm, .dicom, .ima, .png, ... .mha, .mhd, .nrrd and DICOM files of any other extension, or none'
    """
    return ", ".join(SUPPORTED_EXTENSIONS) + " and DICOM files of any other extension, or none"


def extension_of(path: str | os.PathLike) -> str:
    """Extension in lower case, or "" for none; ``.nii.gz`` counts as one, and the last number of a UID does not count.

    Example:
        >>> [extension_of(p) for p in ("a/Chest (PA).PNG", "b.nii.gz", "IM-0001-0001", "1.2.840.113619.2")]
        ['.png', '.nii.gz', '', '']
    """
    name = os.path.basename(os.fspath(path)).lower()
    if name.endswith(".nii.gz"):
        return ".nii.gz"
    extension = os.path.splitext(name)[1]
    return "" if extension[1:].isdigit() else extension


def identify_content(head: bytes) -> str:
    """Format of a file from its first ``HEAD_BYTES`` bytes.

    Returns:
        One of "DICOM", "PNG", "JPEG", "TIFF", "BMP", "NIfTI", "MetaImage", "NRRD", or "" when it is none of them.

    Example:
        >>> identify_content(bytes(128) + b"DICM"), identify_content(b"<html>")
        ('DICOM', '')
    """
    if head[128:132] == b"DICM":
        return "DICOM"
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    if head.startswith(b"BM") and head[6:10] == bytes(4):
        return "BMP"
    if head.lstrip().startswith(_METAIMAGE_FIELDS) and b"=" in head.partition(b"\n")[0]:
        return "MetaImage"
    if head.startswith(_GZIP):
        head = _gunzip_head(head)
    if any(head[offset : offset + 4] == magic for offset, magic in _NIFTI_OFFSETS):
        return "NIfTI"
    return "DICOM" if _starts_like_dicom(head) else ""


def picture_or_archive(head: bytes, extension: str) -> str:
    """
    What a file is that may hold radiographs, and that nothing here reads.

    Args:
        head: its first bytes.
        extension: of :func:`extension_of`.

    Returns:
        Such as "GIF picture" or "archive"; "" for another file.

    Example:
        >>> picture_or_archive(b"GIF89a", ".gif"), picture_or_archive(b"a,b", ".csv")
        ('GIF picture', '')
    """
    for signature, name in _OTHER_PICTURES:
        if head.startswith(signature):
            return f"{name} picture"
    inner = _gunzip_head(head) if head.startswith(_GZIP) else b""
    if inner and identify_content(inner):
        return f"compressed {identify_content(inner)}"
    if extension in _ARCHIVES:
        return "archive"
    return "unknown picture" if extension in _PICTURES else ""


def _gunzip_head(head: bytes) -> bytes:
    """First bytes of a gzip stream; what cannot be inflated is left out."""
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


def describe_content(head: bytes) -> str:
    """Say what a file is that is none of the supported formats."""
    start = head.lstrip()[:64].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "is a web page (HTML), such as the login page of a failed download"
    for signature, name in ((b"pk\x03\x04", "a ZIP archive"), (b"%pdf", "a PDF document")):
        if start.startswith(signature):
            return f"is {name}"
    if head and all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        return "is a text file"
    return "is not a picture of a known format"


def identify_file(path: str) -> str:
    """Format of a file by its content, after the checks that need no decoding."""
    extension = extension_of(path)
    head = _read_head(path)
    file_format = identify_content(head)
    supported = f"supported: {supported_types()}"
    if extension and extension not in SUPPORTED_EXTENSIONS and file_format != "DICOM":
        raise refuse(path, f"has the unknown extension {extension}", supported)
    if not file_format:
        found = describe_content(head)
        raise refuse(path, found, "download it again" if "HTML" in found else supported)
    if SUPPORTED_EXTENSIONS.get(extension, file_format) != file_format:
        found = f"is a {file_format} file in spite of its extension"
        warn_about(path, f"{found}; read as {file_format}")
    return file_format


def _read_head(path: str) -> bytes:
    """First bytes of a file, at least one."""
    try:
        mode = os.stat(path).st_mode
        # asked before it is opened: a named pipe would wait for a writer for ever, a device has no end
        head = _first_bytes(path) if stat.S_ISREG(mode) else b""
    except FileNotFoundError as error:
        remedy = spelling_on_disk(path) or "check the name and the folder"
        raise refuse(path, MISSING, remedy) from error
    except (OSError, ValueError) as error:
        raise refuse(path, f"{UNOPENED} ({getattr(error, 'strerror', None) or error})") from error
    if stat.S_ISDIR(mode):
        remedy = "name the files in it, or give it as dataset_dir"
        raise refuse(path, "is a folder, not a file", remedy)
    if not stat.S_ISREG(mode):
        raise refuse(path, "is no regular file, but a pipe, a socket or a device", "give files")
    if not head:
        raise refuse(path, "is empty (0 bytes)", "copy or download it again")
    return head


def _first_bytes(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(HEAD_BYTES)


def single_path(filename: PathLike | Sequence[PathLike]) -> str:
    """One path from a path or a list of one path, as datalists of MONAI have them."""
    names = filename if isinstance(filename, (list, tuple)) else [filename]
    if len(names) > 1:
        found = f"{len(names)} files for one picture"
        raise refuse(f"{names[0]}, ...", found, "give each file an item of its own")
    if not names or not isinstance(names[0], (str, os.PathLike)):
        raise RadiographError(
            f"a file name is expected, got {type(filename).__name__}; give the path as text."
        )
    return os.path.expanduser(os.fspath(names[0]))
