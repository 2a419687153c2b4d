# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Image embeddings as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from monai.data import MetaTensor
from monai.handlers import ClassificationSaver
from monai.utils import CommonKeys


class EmbeddingSaver(ClassificationSaver):
    """
    MONAI's ``ClassificationSaver`` for encoders: one row per image, its file and the mean of its token features.

    Attach it to an evaluator with ``decollate``.

    Args:
        output_dir: folder of the table.
        filename: of the table.

    Example:
        >>> EmbeddingSaver("output").filename
        'embeddings.csv'
    """

    def __init__(self, output_dir: str, filename: str = "embeddings.csv") -> None:
        super().__init__(
            output_dir=output_dir, filename=filename, batch_transform=_metadata, output_transform=mean_tokens
        )


def mean_tokens(output: Sequence[Mapping[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Embeddings of images."""
    return [item[CommonKeys.PRED].flatten(1).mean(1) for item in output]


def _metadata(batch: Sequence[Mapping[str, MetaTensor]]) -> list[dict[str, Any]]:
    return [item[CommonKeys.IMAGE].meta for item in batch]
