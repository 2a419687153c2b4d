# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of co-segmentation for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from monai_afire.analysis.cosegmentation.figures import (
    cosegmentation_figure,
    organ_outlines_figure,
    segments_figure,
)
from monai_afire.analysis.cosegmentation.measures import (
    best_dice,
    cosegment,
    position_labels,
    score_segments,
    segments_to_masks,
)
from monai_afire.analysis.features.dense import finest_stride
from monai_afire.analysis.features.raw_pixels import with_raw_pixels
from monai_afire.analysis.images.study_images import StudyImages, names_or_numbers, reference_indices
from monai_afire.analysis.study import StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["CosegmentationStudy"]

SAME_PLACE = "same place"
LIMIT = "limit of the resolution"

_QUESTION = (
    "Do features alone cut the images into the same organs? The dense features of all images are put into {clusters} "
    "clusters, without any mask. The masks of {references} reference images then say which clusters are an organ, and "
    "the Dice of these is measured on the other images. '{same_place}' needs no encoder: each position is a cluster of "
    "its own, so an organ is where it is in the references. '{limit}' is what cells of this size could reach if the "
    "masks were known. In columns that end in position_removed the mean feature map of all images is subtracted first, "
    "which takes from an encoder what it knows of positions alone."
)
_SEGMENTS_CAPTION = "Segments as they are found; a colour is the same segment in all images of an encoder"


class CosegmentationStudy:
    """
    Zero-shot co-segmentation (PEAC, Fig. 7) as a study of the report.

    Args:
        num_clusters: segments that the images are cut into.
        reference: indices among the images looked at, or how many, whose masks say which segments are an organ.
        stride: pixels per cell; where it does not divide an encoder's patch, the next smaller that does.
        remove_position: whether to add the Dice without the mean feature map.
        max_images: how many images to look at; a seeded sample where there are more.
        num_pictures: how many of them to show.
        seed: of the sampling and of the clusters.
        batch_size: pictures in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = StudyImages(torch.rand(4, 1, 32, 32), masks=torch.rand(4, 1, 32, 32) > 0.5)
        >>> result = CosegmentationStudy(4, reference=2, progress=False)({"untrained": encoder}, images)
        >>> list(result.table.index)
        ['untrained', 'raw pixels', 'same place', 'limit of the resolution']
    """

    needs: Sequence[str] = ("masks",)

    def __init__(
        self,
        num_clusters: int = 16,
        reference: Sequence[int] | int = 5,
        stride: int = 8,
        remove_position: bool = True,
        max_images: int = 50,
        num_pictures: int = 3,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        self.num_clusters = num_clusters
        self.reference = reference
        self.stride = stride
        self.remove_position = remove_position
        self.max_images = max_images
        self.num_pictures = num_pictures
        self.seed = seed
        self.options: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "progress": progress}

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`."""
        sampled = images.sample(self.max_images, self.seed)
        assert sampled.masks is not None
        masks, organs = sampled.masks, names_or_numbers(sampled.mask_names, sampled.masks.shape[1])
        references = reference_indices(self.reference, len(masks))
        segments = {
            name: self._segments(encoder, sampled.image, remove_position=False)
            for name, encoder in with_raw_pixels(encoders).items()
        }
        positions = position_labels(len(masks), next(iter(segments.values())).shape[1:])
        scores = {
            name: score_segments(labels, masks, references)
            for name, labels in {**segments, SAME_PLACE: positions}.items()
        }
        tables = {name: table for name, (table, _) in scores.items()} | {LIMIT: best_dice(positions, masks, references)}
        metrics = {name: _organ_metrics(table, organs) for name, table in tables.items()}
        for name, encoder in with_raw_pixels(encoders).items() if self.remove_position else ():
            removed, _ = score_segments(self._segments(encoder, sampled.image, True), masks, references)
            metrics[name]["mean_dice_position_removed"] = _organ_metrics(removed, organs)["mean_dice"]
        figures = {"Dice of each organ": cosegmentation_figure(tables, organs)}
        shown = [index for index in range(len(masks)) if index not in references][: self.num_pictures]
        if sampled.image.ndim == 4 and shown:
            pictures, found = sampled.image[shown], {name: labels[shown] for name, labels in segments.items()}
            predicted = {
                name: segments_to_masks({**found, SAME_PLACE: positions[shown]}[name], clusters, masks.shape[2:])
                for name, (_, clusters) in scores.items()
            }
            figures[_SEGMENTS_CAPTION] = segments_figure(pictures, found)
            figures["Organs that the segments make"] = organ_outlines_figure(pictures, masks[shown], predicted, organs)
        question = _QUESTION.format(
            clusters=self.num_clusters, references=len(references), same_place=SAME_PLACE, limit=LIMIT
        )
        return StudyResult(
            "Organs without training", question, pd.DataFrame.from_dict(metrics, orient="index"), figures
        )

    def _segments(self, encoder: RadiographEncoder, images: torch.Tensor, remove_position: bool) -> torch.Tensor:
        stride = finest_stride(encoder, self.stride)
        return cosegment(encoder, images, self.num_clusters, stride, remove_position, **self.options)


def _organ_metrics(table: pd.DataFrame, organs: Sequence[str]) -> dict[str, Any]:
    """Mean Dice of each organ over the images, and the mean of these."""
    per_organ = table.groupby("organ")["dice"].mean()
    return {"mean_dice": float(per_organ.mean())} | {
        f"dice_{name}": float(per_organ[number]) for number, name in enumerate(organs)
    }
