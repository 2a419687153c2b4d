# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which file is meant, and what is in it, before anything is decoded."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from monai.config.type_definitions import PathLike

from monai_afire.transforms.radiograph_io.common import RadiographError, refuse, warn_about
from monai_afire.transforms.radiograph_io.formats import (
    HEAD_BYTES,
    SUPPORTED_EXTENSIONS,
    describe_content,
    extension_of,
    identify_content,
    supported_types,
)
from monai_afire.transforms.radiograph_io.shards import is_member, read_member


def identify_file(path: str) -> str:
    """Format of a file by its content, after the checks that need no decoding.

    Raises:
        RadiographError: When it does not exist, is a folder or empty, cannot be opened, or is of no supported type.
    """
    extension = extension_of(path)
    head = _read_head(path)
    if extension and extension not in SUPPORTED_EXTENSIONS:
        raise refuse(path, f"has the unknown extension {extension}", f"supported: {supported_types()}")
    file_format = identify_content(head)
    if not file_format:
        remedy = "download it again" if "HTML" in describe_content(head) else f"supported: {supported_types()}"
        raise refuse(path, describe_content(head), remedy)
    expected = SUPPORTED_EXTENSIONS.get(extension, file_format)
    if expected != file_format:
        warn_about(path, f"is a {file_format} file in spite of its extension; read as {file_format}")
    return file_format


def _read_head(path: str) -> bytes:
    if not is_member(path) and os.path.isdir(path):
        raise refuse(path, "is a folder, not a file", "name the files in it, or give it as dataset_dir")
    try:
        head = read_member(path, HEAD_BYTES) if is_member(path) else _read_start(path)
    except FileNotFoundError as error:
        raise refuse(path, "does not exist", "check the name and the folder") from error
    except RadiographError:
        raise
    except (OSError, ValueError) as error:
        raise refuse(path, f"cannot be opened ({getattr(error, 'strerror', None) or error})") from error
    if not head:
        raise refuse(path, "is empty (0 bytes)", "copy or download it again")
    return head


def _read_start(path: str) -> bytes:
    # asked before it is opened: a named pipe would wait for a writer for ever, a device has no end
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise refuse(path, "is no regular file, but a pipe, a socket or a device", "give files")
    with open(path, "rb") as stream:
        return stream.read(HEAD_BYTES)


def single_path(filename: PathLike | Sequence[PathLike]) -> str:
    """One path from a path or a list of one path, as datalists of MONAI have them."""
    names = [filename] if isinstance(filename, (str, os.PathLike)) else filename
    if isinstance(names, (list, tuple)) and len(names) == 1 and isinstance(names[0], (str, os.PathLike)):
        return os.path.expanduser(os.fspath(names[0]))
    if isinstance(names, (list, tuple)) and len(names) > 1:
        raise RadiographError(
            f"{names[0]}, ...: {len(names)} files for one picture; give each file an item of its own."
        )
    raise RadiographError(f"a file name is expected, got {type(filename).__name__}; give the path as text.")
