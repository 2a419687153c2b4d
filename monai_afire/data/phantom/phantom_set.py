# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom as the data of a bundle that is given none: drawn once into a folder, and found there afterwards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ignite.distributed as idist

from monai_afire.data.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES
from monai_afire.data.phantom.lesions import LESION_KINDS
from monai_afire.data.phantom.phantom_dataset import PHANTOM_VERSION
from monai_afire.data.phantom.phantom_files import export_phantom
from monai_afire.utils.files import check_writable

__all__ = ["PhantomSet"]

_NAMES = {"label": LESION_KINDS, "organs": ORGAN_NAMES, "landmarks": LANDMARK_NAMES}


@dataclass(frozen=True)
class PhantomSet:
    """
    The phantom as a data set: what :func:`monai_afire.data.bundle_items` takes where there are no images.

    Args:
        folder: below which its files are, or will be drawn.
        arguments: of :func:`monai_afire.data.phantom.export_phantom`, such as "num_patients" and "image_size".

    Example:
        >>> import tempfile
        >>> arguments = {"num_patients": {"test": 1}, "image_size": 64, "progress": False}
        >>> phantom = PhantomSet(tempfile.mkdtemp(), arguments)
        >>> phantom.datalist() == phantom.datalist()
        True
        >>> phantom.class_names("organs")[2]
        'heart'
    """

    folder: str | os.PathLike
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def class_names(self, key: str) -> list[str]:
        """Names of the "label", "organs" or "landmarks"; none for another key."""
        return list(_NAMES.get(key, ()))

    def datalist(self) -> Path:
        """
        Draw the phantom unless it is there already, drawn with the same arguments by the same version.

        In a process group the main rank draws while the others wait; all of them must see the folder.

        Returns:
            Path of its datalist, in a folder of its own below ``folder``, named by a digest of the arguments.

        Raises:
            OSError: when the folder cannot be written to.
        """
        drawn = Path(self.folder, self._digest())
        with idist.one_rank_first():
            if not drawn.is_dir():
                self._draw(drawn)
        return drawn / "datalist.json"

    def _digest(self) -> str:
        """Of what the files follow from."""
        recipe = {name: value for name, value in self.arguments.items() if name != "progress"}
        text = json.dumps([PHANTOM_VERSION, recipe], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _draw(self, drawn: Path) -> None:
        """Draw beside the folder, which is there when it is complete; another process may be faster."""
        check_writable(self.folder, option="--items::phantom::folder")
        with TemporaryDirectory(dir=self.folder, prefix=".") as temporary:
            export_phantom(Path(temporary, "phantom"), **self.arguments)
            try:
                Path(temporary, "phantom").rename(drawn)
            except OSError:
                if not drawn.is_dir():
                    raise
