# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where the results of an image are written."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

# bytes of a folder or file name; most file systems take 255, and suffixes are to be added
_LONGEST_NAME = 120
_ELSEWHERE = "elsewhere"
_CHANGED = re.compile("~[0-9a-f]{8}$")  # how a changed name ends


def output_path(
    folder: str | os.PathLike, source: str | os.PathLike, root: str | os.PathLike, suffix: str
) -> Path:
    """
    Path of what is made from a file: below ``folder``, in the subfolders that the file has below ``root``.

    The whole name of the source is kept, extension included, so that two sources never share an output; only a source
    that has the output's own extension does not get it twice. A source outside of ``root`` goes to
    ``elsewhere/<hash of its folder>/``. Characters that other systems forbid are replaced and long names cut; such a
    name ends in ``~`` and a hash.

    Raises:
        ValueError: when the path would lie outside of the folder, by a link in it.

    Example:
        >>> output_path("out", "/data/day 1/a.dcm", root="/data", suffix=".png").as_posix()
        'out/day 1/a.dcm.png'
    """
    absolute, base = Path(os.path.abspath(source)), Path(os.path.abspath(root))
    if base in absolute.parents:
        folders = [_portable_name(part) for part in absolute.relative_to(base).parts[:-1]]
    else:
        folders = [_ELSEWHERE, _digest(str(absolute.parent))]
    target = Path(folder, *folders, _portable_name(_name_for(absolute, suffix)) + suffix)
    if os.path.abspath(target) == str(absolute):  # never over the source
        target = Path(folder, *folders, _portable_name(absolute.name) + suffix)
    if not target.resolve().is_relative_to(Path(folder).resolve()):
        found = f"{target} leads outside of {folder} by a link"
        raise ValueError(f"{found}: choose an empty output folder")
    return target


def _name_for(source: Path, suffix: str) -> str:
    """Name of a source, without the extension that a suffix brings, if no other source has that name."""
    _, dot, extension = suffix.partition(".")
    short = source.name.removesuffix(dot + extension)
    if short == source.name or not short or os.path.lexists(source.with_name(short)):
        return source.name
    return short


def _portable_name(name: str) -> str:
    """The name itself wherever it can be written; a changed one carries a hash, so that two never become one."""
    written = re.sub(r'[\x00-\x1f\x7f<>:"|?*\\]', "_", name.encode(errors="replace").decode())
    clean = written.encode()[:_LONGEST_NAME].decode(errors="ignore").rstrip(". ")
    if clean == name and name != _ELSEWHERE and not _CHANGED.search(name):
        return name
    return f"{clean}~{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
