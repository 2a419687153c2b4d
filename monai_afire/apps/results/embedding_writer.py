# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of image embeddings while an encoder runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from monai_afire.apps.results.result_tables import ResultTables


@dataclass(eq=False, repr=False)
class EmbeddingWriter(ResultTables):
    """
    Write the embedding of each image, the mean of its token features, while the network runs.

    ``embeddings.csv`` has no line of titles, as MONAI's ``ClassificationSaver`` writes it: the file, then D numbers.
    The evaluator's output has the features ``(B, D, *S)`` as "pred".

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write; a folder with the results of another run is refused.
        resume: continue a stopped run, see :class:`ResultTables`.

    Example:
        >>> import tempfile
        >>> from ignite.engine import Engine
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

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        """Add the row of an image."""
        self.add_row([source, *output.flatten(1).mean(1).tolist()])
