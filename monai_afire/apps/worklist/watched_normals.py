# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The normal images of a watched folder: scored once, or those of the last weeks anew each day."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from monai_afire.apps.worklist.run_normals import NORMALS_FILE
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.utils.files import atomic_path, is_safetensors, write_text

_LIST = "normals.json"
_DAY, _WEEK = 86_400.0, 7 * 86_400.0  # seconds


@dataclass
class WatchedNormals:
    """
    The option ``calibrate`` of each batch of a watch.

    Args:
        out: output folder of the watch.
        calibrate: folder or datalist of normal images, or a file that a run has written; None for none.
        weeks: take the images of the folder that are at most so many weeks old; None for all.

    Raises:
        DatalistError: for weeks without a folder.

    Example:
        >>> WatchedNormals(Path("out")).option()
        {}
    """

    out: Path
    calibrate: str | os.PathLike | None = None
    weeks: float | None = None

    def __post_init__(self) -> None:
        if self.weeks is not None and not (self.calibrate and Path(self.calibrate).is_dir()):
            raise DatalistError(
                "--calibrate_weeks needs a folder of normal images: give --calibrate"
            )

    def option(self) -> dict[str, str]:
        """What the next batch is run with."""
        if not self.calibrate:
            return {}
        source, kept = Path(self.calibrate), self.out / NORMALS_FILE
        if source.is_file() and is_safetensors(source):
            return {"calibrate": str(source)}
        if kept.is_file() and (self.weeks is None or time.time() - kept.stat().st_mtime < _DAY):
            return {"calibrate": str(kept)}
        return {"calibrate": str(source if self.weeks is None else self._recent(source))}

    def keep(self, batch: Path) -> None:
        """Keep what a batch has made for the next ones."""
        made = batch / NORMALS_FILE
        if made.is_file():
            with atomic_path(self.out / NORMALS_FILE) as temporary:
                shutil.copyfile(made, temporary)

    def _recent(self, folder: Path) -> Path:
        """Datalist of the images that are not too old."""
        oldest = time.time() - float(self.weeks or 0) * _WEEK
        paths = [folder / name for name in scan_radiographs(folder)]
        recent = [
            os.path.abspath(path)
            for path in paths
            if path.is_file() and path.stat().st_mtime >= oldest
        ]
        if not recent:
            raise DatalistError(f"{folder} has no image of the last {self.weeks:g} weeks: add some")
        items = [{"image": path} for path in recent]
        write_text(self.out / _LIST, json.dumps({"training": items}, indent=1))
        return self.out / _LIST
