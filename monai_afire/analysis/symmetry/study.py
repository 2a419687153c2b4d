# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of symmetry for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from monai_afire.analysis.features.raw_pixels import with_raw_pixels
from monai_afire.analysis.features.tokens import WINDOW, landmark_features
from monai_afire.analysis.grouping.figures import map_figure
from monai_afire.analysis.grouping.measures import tsne_map
from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.study import StudyResult
from monai_afire.analysis.symmetry.figures import partner_figure, symmetry_matrix_figure
from monai_afire.analysis.symmetry.measures import (
    landmark_symmetry,
    similarity_matrix,
    symmetric_pairs,
    symmetry_summary,
)
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["SymmetryStudy"]

_QUESTION = (
    "Is a landmark's most similar other landmark of the same image its partner on the other side of the body? Features "
    "are mean tokens of windows around the landmarks, so their places are not known. partner_found compares the "
    "windows as they are, partner_found_mirrored each window with the mirrored others, as ACE does; chance is one over "
    "the number of candidates. The cosine_margin is how much more similar the partner is than the other landmarks on "
    "average."
)
_PARTNERS = {"Partner found in the mirror": True, "Partner found without a mirror": False}


class SymmetryStudy:
    """
    Left and right of the body (ACE, appendix B.1, Fig. 11) as a study of the report.

    Args:
        pairs: indices of landmarks that are partners, the right one first; None for those whose names differ in "left"
            and "right" alone.
        window: side of the windows around landmarks as a fraction of the image's; ACE takes 448 of 1024 pixels.
        max_images: how many images to look at; a seeded sample where there are more.
        seed: of the sampling of images and of t-SNE.
        batch_size: windows in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> names = ["hilum_right", "hilum_left", "carina"]
        >>> images = StudyImages(torch.rand(4, 1, 32, 32), landmarks=31 * torch.rand(4, 3, 2), landmark_names=names)
        >>> SymmetryStudy(progress=False)({"untrained": encoder}, images).table["chance"].tolist()
        [0.5, 0.5]
    """

    needs: Sequence[str] = ("landmarks", "landmark_names")

    def __init__(
        self,
        pairs: Sequence[tuple[int, int]] | None = None,
        window: float = WINDOW,
        max_images: int = 100,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        self.pairs = None if pairs is None else [(int(right), int(left)) for right, left in pairs]
        self.max_images = max_images
        self.seed = seed
        self.options: dict[str, Any] = {"window": window, "batch_size": batch_size, "progress": progress}

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """
        Make the study, see :class:`monai_afire.analysis.Study`.

        Raises:
            ValueError: when no landmark has a partner.
        """
        sampled = images.sample(self.max_images, self.seed)
        assert sampled.landmarks is not None
        assert sampled.landmark_names is not None
        names = list(sampled.landmark_names)
        pairs = symmetric_pairs(names) if self.pairs is None else self.pairs
        if not pairs:
            raise ValueError(f"no two of the landmarks {names} differ in 'left' and 'right' alone: give pairs")
        tables, matrices, maps, groups = {}, {}, {}, {}
        for name, encoder in with_raw_pixels(encoders).items():
            features, mirrored = (
                landmark_features(encoder, sampled.image, sampled.landmarks, mirrored=flip, **self.options)
                for flip in (False, True)
            )
            tables[name] = landmark_symmetry(features, mirrored, pairs)
            matrices[name] = similarity_matrix(features, mirrored)
            sides, groups[name] = _right_and_mirrored_left(features, mirrored, names, pairs)
            maps[name] = tsne_map(sides, self.seed)
        summaries = {name: symmetry_summary(table) for name, table in tables.items()}
        figures = {
            "t-SNE of the right landmarks (full) and of the mirrored left ones (hollow), a colour for each pair": (
                map_figure(maps, groups, paired=True)
            ),
            **{title: partner_figure(_of_kind(tables, flip), names, pairs, title) for title, flip in _PARTNERS.items()},
            "Mean similarity with each landmark in the mirror, partners framed; the diagonal, a landmark with its own "
            "mirror image, is left out": symmetry_matrix_figure(matrices, names, pairs),
        }
        return StudyResult("Left and right", _QUESTION, pd.DataFrame.from_dict(summaries, orient="index"), figures)


def _of_kind(tables: Mapping[str, pd.DataFrame], mirrored: bool) -> dict[str, pd.DataFrame]:
    """The rows of windows compared with mirrored ones, or those of windows as they are."""
    return {name: table[table["mirrored"] == mirrored] for name, table in tables.items()}


def _right_and_mirrored_left(
    features: torch.Tensor, mirrored: torch.Tensor, names: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> tuple[torch.Tensor, list[str]]:
    """What should lie together in a map: one side as it is, the other one in the mirror; unknown ones left out."""
    sides, groups = [], []
    for right, left in pairs:
        for side, index, label in ((features, right, names[right]), (mirrored, left, f"{names[left]} mirrored")):
            known = side[:, index][side[:, index].isfinite().all(-1)]
            sides.append(known)
            groups += [label] * len(known)
    return torch.cat(sides), groups
