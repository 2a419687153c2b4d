# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of what a network restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.utils import CommonKeys
from numpy.typing import NDArray

from monai_afire.apps.results.output_paths import output_path
from monai_afire.apps.results.result_tables import ResultTables
from monai_afire.utils.files import save_png


@dataclass(eq=False, repr=False)
class RestorationWriter(ResultTables):
    """
    Write what a network restores.

    * ``<image>_restored.png``: with the rows and columns of the network's input;
    * ``restored.csv``: for each image the mean absolute difference of the network's output and input, "change".

    The evaluator's output has the restored images ``(B, C, *S)`` in [0, 1] as "pred"; the batches need "image" and
    "index".

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write; a folder with the results of another run is refused.
        resume: continue a stopped run, see :class:`ResultTables`.
    """

    table_name = "restored.csv"

    items: Sequence[Mapping[str, Any]]
    output_dir: str
    resume: bool = False

    def header(self) -> Sequence[str]:
        """File and mean absolute difference."""
        return ["image", "change"]

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        """Add the row of an image and hand the picture to the threads."""
        image = torch.as_tensor(batch[CommonKeys.IMAGE][row]).as_subclass(torch.Tensor).to(output)
        self.add_row([source, f"{float((output - image).abs().mean()):.6g}"])
        path = output_path(self.folder, source, self.root, "_restored.png")
        self.submit(source, _save_picture, output.numpy(), path)


def _save_picture(restored: NDArray, path: Path) -> Path:
    pixels = np.rint(255 * restored.clip(0, 1)).astype(np.uint8)
    save_png(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1), path)
    return path
