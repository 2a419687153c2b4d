# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which images a list holds, in one digest: so that a run does not go on with those of another one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from monai.utils import ensure_tuple

from monai_afire.utils.files import common_folder, path_from

_MOST_SIZES = 64  # of files: a network disk may take milliseconds for each


def image_digest(items: Any, class_names: Any = None) -> str | None:
    """
    Digest of the names of a list's images below their common folder, in their order, of some sizes, and of classes.

    A copy of the folder elsewhere has the same digest; other images of the same names have another one.

    Args:
        items: of a datalist, each with "image": the path of a file, or a list of paths.
        class_names: of the labels, in their order.

    Returns:
        The digest; None where the images are no files, or there are none.

    Example:
        >>> image_digest([{"image": "/a/1.png"}]) == image_digest([{"image": "/b/1.png"}])
        True
    """
    items = items if isinstance(items, Sequence) else []
    images = [item.get("image") if isinstance(item, Mapping) else None for item in items]
    paths = [path for image in images for path in ensure_tuple(image)]
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    files = [os.path.abspath(path) for path in paths]
    folder = common_folder(files)
    names = [path_from(file, folder) for file in files]
    sizes = [_size(file) for file in files[:: -(-len(files) // _MOST_SIZES)]]
    classes = None if class_names is None else [str(name) for name in class_names]
    return hashlib.sha256(json.dumps([names, sizes, classes]).encode()).hexdigest()


def _size(file: str) -> int | None:
    """Bytes of a file; None where it cannot be read, which the loading reports."""
    try:
        return os.stat(file).st_size
    except OSError:
        return None
