# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which images a list holds, in a few numbers: so that a run does not go on with those of another one."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from monai_afire.utils.files import common_folder, path_from

_MOST_FILES = 64  # whose size is asked for: a network disk may take milliseconds for each


def image_fingerprint(items: Any) -> dict[str, Any] | None:
    """
    What tells the images of a list from others: their number, their names below their common folder, some sizes.

    A copy of the folder elsewhere has the same fingerprint; other images of the same names have another one. The order
    of the items counts, too. Of long lists the sizes of 64 files are taken, evenly spread.

    Args:
        items: of a datalist, each with "image": the path of a file, or a list of paths.

    Returns:
        "count", and digests of "names" and "sizes"; None where the images are no files, or there are none.

    Example:
        >>> image_fingerprint([{"image": "/a/1.png"}]) == image_fingerprint([{"image": "/b/1.png"}])
        True
        >>> image_fingerprint([{"image": 1.0}]) is None
        True
    """
    files = _image_files(items)
    if not files:
        return None
    folder = common_folder(files)
    step = math.ceil(len(files) / _MOST_FILES)
    return {
        "count": len(items),
        "names": _digest(path_from(file, folder) for file in files),
        "sizes": _digest(_size(files[place]) for place in range(0, len(files), step)),
    }


def image_difference(then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str | None:
    """
    In what the images of two lists differ.

    Args:
        then: fingerprint of the former list; None where it is not known.
        now: that of the present one.

    Returns:
        Words; None where nothing is known to differ.

    Example:
        >>> image_difference({"count": 461}, {"count": 30})
        '30 training images now, 461 in that run'
    """
    if then is None or now is None or then == now:
        return None
    if then["count"] != now["count"]:
        return f"{now['count']:,} training images now, {then['count']:,} in that run"
    if then["names"] != now["names"]:
        return f"{now['count']:,} training images of other names, or in another order"
    return "other training images of the same names: their files have other sizes"


def _image_files(items: Any) -> list[str]:
    """All paths of the items' images; none where an item has no path."""
    if not isinstance(items, Sequence):
        return []
    files: list[str] = []
    for item in items:
        image = item.get("image") if isinstance(item, Mapping) else None
        paths: Sequence[Any] = image if isinstance(image, (list, tuple)) else [image]
        if not all(isinstance(path, (str, os.PathLike)) for path in paths):
            return []
        files += [os.path.abspath(path) for path in paths]
    return files


def _size(file: str) -> int:
    """Bytes of a file; -1 where it cannot be asked for, which the loading will say."""
    try:
        return os.stat(file).st_size
    except OSError:
        return -1


def _digest(entries: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(json.dumps(entry).encode())
        digest.update(b"\n")
    return digest.hexdigest()
