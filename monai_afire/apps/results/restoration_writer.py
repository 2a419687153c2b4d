# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of what a network restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import NDArray

from monai_afire.apps.results.output_paths import output_path
from monai_afire.apps.results.result_tables import ResultTables
from monai_afire.utils.files import save_png
from monai_afire.utils.precision import at_least_float32


@dataclass(eq=False, repr=False)
class RestorationWriter(ResultTables):
    """
    Write what a network restores.

    * ``<image>_restored.png``: with the rows and columns of the network's input;
    * ``restored.csv``: for each image the mean absolute difference of the network's output and input, "change";
    * ``rejected.csv``: files that could not be read, or of which the output is NaN, with the reason.

    The evaluator's output has the restored images ``(B, C, *S)`` in [0, 1] as "pred"; the batches need "image" and
    "index".

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write; a folder with the results of another run is refused.
        num_threads: threads that write.
        resume: continue a stopped run, see :class:`ResultTables`.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    table_name = "restored.csv"

    items: Sequence[Mapping[str, Any]]
    output_dir: str
    num_threads: int = 2
    resume: bool = False

    def header(self) -> Sequence[str]:
        """File and mean absolute difference."""
        return ["image", "change"]

    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch and hand the pictures to the threads."""
        batch: Any = engine.state.batch
        restored, images = (
            at_least_float32(torch.as_tensor(values).as_subclass(torch.Tensor)).detach().cpu()
            for values in (engine.state.output[CommonKeys.PRED], batch[CommonKeys.IMAGE])  # type: ignore[index]
        )
        for row, source in self.accepted(batch, ~restored.isnan().flatten(1).any(1)):
            change = float((restored[row] - images[row]).abs().mean())
            self.add_row([source, f"{change:.6g}"])
            self.submit(self._save_picture, source, restored[row].numpy())

    def _save_picture(self, source: str, restored: NDArray) -> None:
        pixels = np.rint(255 * restored.clip(0, 1)).astype(np.uint8)
        pixels = pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
        save_png(pixels, output_path(self.folder, source, self.root, "_restored.png"))
