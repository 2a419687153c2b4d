# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of image embeddings while an encoder runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from ignite.engine import Engine
from monai.utils import CommonKeys

from monai_afire.apps.results.result_tables import ResultTables
from monai_afire.utils.precision import at_least_float32


@dataclass(eq=False, repr=False)
class EmbeddingWriter(ResultTables):
    """
    Write the embedding of each image, the mean of its token features, while the network runs.

    ``embeddings.csv`` has no line of titles, as MONAI's ``ClassificationSaver`` writes it: the file, then D numbers.
    ``rejected.csv`` names the files without an embedding and the reason: they could not be read, or the network's
    output for them is NaN.

    The evaluator's output has the features ``(B, D, *S)`` as "pred"; the batches need "index" (the number in ``items``)
    and may have "rejected", see :class:`monai_afire.transforms.LoadRadiographd`.

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write; a folder with the results of another run is refused.
        resume: continue a stopped run, see :class:`ResultTables`.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.

    Example:
        >>> import tempfile
        >>> engine = Engine(lambda engine, batch: {"pred": torch.tensor([[[1.0, 2.0], [0.0, 0.5]]])})
        >>> writer = EmbeddingWriter([{"image": "a.png"}], tempfile.mkdtemp())
        >>> writer.attach(engine)
        >>> _ = engine.run([{"index": torch.tensor([0])}])
        >>> print((writer.folder / "embeddings.csv").read_text())
        a.png,1.5,0.25
    """

    table_name = "embeddings.csv"

    items: Sequence[Mapping[str, Any]]
    output_dir: str
    resume: bool = False

    def header(self) -> Sequence[str]:
        """No titles."""
        return []

    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch."""
        features = engine.state.output[CommonKeys.PRED].as_subclass(torch.Tensor)  # type: ignore[index]
        embeddings = at_least_float32(features).flatten(2).mean(2).cpu()
        for row, source in self.accepted(engine.state.batch, embeddings.isfinite().all(1)):  # type: ignore[arg-type]
            self.add_row([source, *embeddings[row].tolist()])
