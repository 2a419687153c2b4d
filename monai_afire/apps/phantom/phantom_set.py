# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom as the data of a bundle that is given none: drawn once into a folder, and found there afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ignite.distributed as idist

from monai_afire.apps.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES
from monai_afire.apps.phantom.lesions import LESION_KINDS
from monai_afire.apps.phantom.phantom_dataset import PHANTOM_VERSION
from monai_afire.apps.phantom.phantom_files import export_phantom
from monai_afire.utils.distributed import LONGEST_WAIT
from monai_afire.utils.files import check_writable, write_text
from monai_afire.utils.folder_lock import folder_lock

__all__ = ["PhantomSet"]

_NAMES = {"label": LESION_KINDS, "organs": ORGAN_NAMES, "landmarks": LANDMARK_NAMES}


@dataclass(frozen=True)
class PhantomSet:
    """
    The phantom as a data set: what :func:`monai_afire.data.bundle_items` takes where there are no images.

    Args:
        folder: where its files are, or will be drawn.
        arguments: of :func:`monai_afire.apps.phantom.export_phantom`, such as "num_patients" and "image_size".

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
            Path of its datalist.

        Raises:
            OSError: when the folder cannot be written to, or holds a datalist that is not the phantom's.
        """
        with idist.one_rank_first():
            if not self._is_drawn():
                self._draw()
        return Path(self.folder) / "datalist.json"

    def _recipe(self) -> dict[str, Any]:
        """What the files follow from."""
        recipe = {
            name: value
            for name, value in self.arguments.items()
            if name not in ("progress", "num_processes")
        }
        return json.loads(json.dumps({**recipe, "version": PHANTOM_VERSION}))

    def _is_drawn(self) -> bool:
        """Whether the folder holds what would be drawn."""
        folder = Path(self.folder)
        with suppress(OSError, ValueError):  # a recipe that is missing or cut
            recipe = json.loads((folder / "recipe.json").read_text())
            return (folder / "datalist.json").is_file() and recipe == self._recipe()
        return False

    def _draw(self) -> None:
        """Draw, unless another process does so meanwhile."""
        recipe = Path(self.folder) / "recipe.json"
        folder = check_writable(self.folder, option="--items::phantom::folder")
        with folder_lock(folder, LONGEST_WAIT.total_seconds()):
            if self._is_drawn():
                return
            recipe.unlink(missing_ok=True)
            export_phantom(self.folder, **self.arguments)
            # written last: an interrupted drawing leaves no recipe and is drawn again
            write_text(recipe, json.dumps(self._recipe()))
