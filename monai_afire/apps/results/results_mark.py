# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The mark of a folder of results, by which a search for radiographs leaves it out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from monai_afire.utils.files import RESULTS_MARK


def mark_results(
    folder: str | os.PathLike, sources: Iterable[str], subfolders: Iterable[str] = ()
) -> None:
    """
    Mark a folder of results, so that a search for radiographs does not take pictures in it for input.

    Where one of the sources lies in it, it cannot be left out: then those subfolders are marked that hold only results.
    """
    start = os.path.join(os.path.abspath(folder), "")
    holds_sources = any(os.path.abspath(source).startswith(start) for source in sources)
    for marked in [Path(folder, name) for name in subfolders] if holds_sources else [Path(folder)]:
        with suppress(FileExistsError):  # a file in the way: an error of the first result
            marked.mkdir(exist_ok=True)
            text = "Results of monai_afire: a search for radiographs leaves this folder out.\n"
            (marked / RESULTS_MARK).write_text(text)
