# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of composition for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from monai_afire.analysis.composition.figures import composition_figure, matching_figure
from monai_afire.analysis.composition.measures import (
    composition_summary,
    compositionality,
    decomposition_and_retrieval,
)
from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.study import StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["CompositionStudy"]

_QUESTION = (
    "Is the embedding of a patch the mean of its parts' embeddings (composition), does an image lose a patch's "
    "embedding when the patch is taken out (decomposition), and does a patch find the image it is from (retrieval)? "
    "Embeddings are mean tokens of random patches, enlarged to the encoder's input. A similarity of 1 with the own "
    "parts is perfect, but says nothing unless that with another image's parts is lower: embeddings may all be alike. "
    "The share of patches nearer to their own parts is 0.5 by chance; accuracies are those of choosing among "
    "{gallery}, chance is {chance:.3f}."
)


class CompositionStudy:
    """
    Composition, decomposition and retrieval of patches (ACE, section 5.1) as a study of the report.

    Args:
        parts: see :func:`monai_afire.analysis.compositionality`; None for 2 and 4, of volumes 2 and 8.
        patches_per_image: see there.
        side: smallest and largest side of a patch as a share of the image's.
        gallery: see :func:`monai_afire.analysis.decomposition_and_retrieval`.
        seed: of the patches.
        batch_size: pictures in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> result = CompositionStudy(progress=False)({"untrained": encoder}, StudyImages(torch.rand(4, 1, 32, 32)))
        >>> float(result.table.loc["untrained", "chance"])
        0.25
    """

    needs: Sequence[str] = ()

    def __init__(
        self,
        parts: Sequence[int] | None = None,
        patches_per_image: int = 4,
        side: Sequence[float] = (0.3, 0.6),
        gallery: int = 32,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        self.parts = parts
        self.patches_per_image = patches_per_image
        self.gallery = gallery
        self.options: dict[str, Any] = {"side": side, "seed": seed, "batch_size": batch_size, "progress": progress}

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`."""
        compositions, summaries = {}, {}
        parts = (2, 2 ** (images.image.ndim - 2)) if self.parts is None else tuple(self.parts)
        for name, encoder in encoders.items():
            compositions[name] = compositionality(encoder, images.image, parts, self.patches_per_image, **self.options)
            matches = decomposition_and_retrieval(encoder, images.image, gallery=self.gallery, **self.options)
            summaries[name] = composition_summary(compositions[name], *matches)
        table = pd.DataFrame.from_dict(summaries, orient="index")
        size = min(self.gallery, len(images.image))
        return StudyResult(
            "Composition and decomposition",
            _QUESTION.format(gallery=size, chance=1 / size),
            table,
            {
                "Similarity of a patch with the mean of its parts, and with that of another image's parts; Gaussian "
                "kernel density estimates, each scaled to the same height": composition_figure(compositions),
                "Accuracy of choosing the patch that was taken out, and of finding a patch's image": matching_figure(
                    table
                ),
            },
        )
