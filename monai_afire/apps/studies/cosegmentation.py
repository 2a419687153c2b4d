# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Organs without training: do clusters of dense features cut all images into the same organs?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.results.pictures.draw import TRUTH_COLOR, class_color, outline_picture
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.results.pictures.style import VALUE_COLORS
from monai_afire.apps.studies.dot_plot import dot_plot
from monai_afire.apps.studies.features.dense import FeatureMaps, finest_stride
from monai_afire.apps.studies.features.similarity import nearest_center, spherical_kmeans
from monai_afire.apps.studies.images.study_images import (
    StudyImages,
    names_or_numbers,
    reference_indices,
)
from monai_afire.apps.studies.study import SAME_PLACE, StudyResult, StudySettings, mean_by
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels
from monai_afire.visualize.figures import picture_grid

_MAX_POINTS = 20_000  # cells from which the clusters are learned, 60 MiB of a ViT-B's features


@torch.no_grad()
def cosegment(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    num_clusters: int = 16,
    stride: int | None = None,
    remove_position: bool = False,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = True,
) -> torch.Tensor:
    """
    Cut a set of images jointly into segments: k-means of the dense features of all of them.

    No mask is used, and nothing trained; :func:`organ_clusters` says afterwards which segments are an organ. PEAC
    shows such segments. It keeps those that the class token attends to; encoders here need not have one.

    Images are encoded in chunks, twice; with ``remove_position`` three times. Clusters are learned from a seeded
    sample of cells, so memory does not grow with the number of images but for the result.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        num_clusters: K, segments.
        stride: pixels per cell, a divisor of the patch; None for the patch itself.
        remove_position: whether to subtract the mean feature map of all images, see
            :func:`monai_afire.apps.studies.landmark_correspondence`.
        seed: of the sampling of cells and of k-means.
        batch_size: copies of images in a pass of the encoder.
        progress: whether to show a progress bar over the images.

    Returns:
        ``(M, *cells)`` int64, the segment of each cell, on the CPU.

    Raises:
        ValueError: for images of another size than the encoder's, or options out of range.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> cosegment(encoder, torch.rand(3, 1, 32, 32), num_clusters=4, progress=False).shape
        torch.Size([3, 4, 4])
    """
    encoder.check_images(images)
    everything = range(len(images))
    total = len(images) * (3 if remove_position else 2)
    with tqdm(total=total, disable=not progress, unit="image", desc="co-segmentation") as bar:
        maps = FeatureMaps(encoder, images, stride, batch_size, bar)
        if remove_position:
            maps.remove_mean()
        shape = [len(axis) for axis in maps.centers]
        per_image = max(1, min(math.prod(shape), _MAX_POINTS // len(images)))
        generator = torch.Generator().manual_seed(seed)
        sample = []
        for _, part in maps(everything):
            for features in part.flatten(2):
                drawn = torch.randperm(math.prod(shape), generator=generator)[:per_image]
                sample.append(features[:, drawn.to(features.device)].T)
        centers = spherical_kmeans(torch.cat(sample), num_clusters, seed)
        labels = [
            nearest_center(part.movedim(1, -1).flatten(0, -2), centers).cpu()
            for _, part in maps(everything)
        ]
    return torch.cat(labels).reshape(-1, *shape)


def organ_clusters(
    labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int]
) -> torch.Tensor:
    r"""
    Which segments are an organ, learned from the masks of a few images.

    An organ is the union of segments that has the highest Dice on the reference images. That union holds the segments
    with the largest share inside the organ, so only as many unions are tried as there are segments. Organs may overlap
    and share segments; an organ that the references do not show has none.

    Args:
        labels: ``(M, *cells)``, of :func:`cosegment` or :func:`position_labels`.
        masks: ``(M, O, *S)`` bool; each axis a multiple of the cells'.
        reference: indices of the images whose masks may be used.

    Returns:
        ``(K, O)`` bool.

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> masks = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
        >>> masks[..., :2] = True
        >>> organ_clusters(torch.tensor([[[0, 1], [0, 1]]]), masks, [0])
        tensor([[ True],
                [False]])
    """
    coverage = _coverage(labels, masks)[list(reference)].movedim(1, -1).flatten(0, -2)  # (cells, O)
    label = labels[list(reference)].flatten()
    number = int(labels.max()) + 1
    inside = coverage.new_zeros(number, coverage.shape[1]).index_add_(0, label, coverage)
    size = torch.bincount(label, minlength=number).to(inside)
    return torch.stack([_best_union(organ, size) for organ in inside.T], dim=1)


def segments_to_masks(
    labels: torch.Tensor, clusters: torch.Tensor, img_size: Sequence[int]
) -> torch.Tensor:
    """
    The organs' masks that segments make.

    Args:
        labels: ``(M, *cells)``.
        clusters: ``(K, O)`` bool, of :func:`organ_clusters`.
        img_size: spatial size of the masks, a multiple of the cells.

    Returns:
        ``(M, O, *img_size)`` bool.

    Example:
        >>> segments_to_masks(torch.tensor([[[0, 1]]]), torch.tensor([[True], [False]]), (2, 4))[0, 0].int()
        tensor([[1, 1, 0, 0],
                [1, 1, 0, 0]], dtype=torch.int32)
    """
    cells = clusters[labels].movedim(-1, 1)
    return F.interpolate(cells.float(), size=tuple(img_size), mode="nearest").bool()


def score_segments(
    labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int] | int = 5
) -> tuple[pd.DataFrame, torch.Tensor]:
    """
    Dice of the organs that segments make, on images whose masks were not used.

    Args:
        labels: ``(M, *cells)``, of :func:`cosegment` or :func:`position_labels`.
        masks: ``(M, O, *S)`` bool; each axis a multiple of the cells'.
        reference: indices of the images from which :func:`organ_clusters` learns which segments are an organ, or how
            many to take, evenly spaced.

    Returns:
        A row per other image and organ: "image", "organ" (indices) and "dice" (NaN where the image does not show the
        organ); and the segments of each organ, ``(K, O)``.

    Raises:
        ValueError: for shapes that do not fit, or when no image is left to score.

    Example:
        >>> masks = torch.zeros(2, 1, 4, 4, dtype=torch.bool)
        >>> masks[..., :2] = True
        >>> score_segments(torch.tensor([[[0, 1], [0, 1]]]).expand(2, 2, 2), masks, [0])[0]["dice"].tolist()
        [1.0]
    """
    references, queries = _split(reference, len(labels))
    clusters = organ_clusters(labels, masks, references)
    coverage = _coverage(labels, masks)[queries].flatten(2)
    predicted = clusters[labels[queries]].movedim(-1, 1).flatten(2)
    return _dice_table(queries, predicted, coverage), clusters


def best_dice(
    labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int] | int = 5
) -> pd.DataFrame:
    """
    The limit of the resolution: Dice of the best union of cells for each image and organ, knowing its mask.

    Args:
        labels: ``(M, *cells)``; their shape alone counts.
        masks: as in :func:`score_segments`.
        reference: as there; those images are left out.

    Returns:
        The first result of :func:`score_segments`.

    Raises:
        ValueError: as there.

    Example:
        >>> masks = torch.zeros(2, 1, 4, 4, dtype=torch.bool)
        >>> masks[..., :1] = True
        >>> best_dice(torch.zeros(2, 2, 2, dtype=torch.long), masks, [0])["dice"].round(decimals=3).tolist()
        [0.667]
    """
    _, queries = _split(reference, len(labels))
    coverage = _coverage(labels, masks)[queries].flatten(2)
    one = torch.ones(coverage.shape[2])
    predicted = [_best_union(organ, one) for organ in coverage.flatten(0, 1)]
    return _dice_table(queries, torch.stack(predicted).reshape(coverage.shape), coverage)


def position_labels(num_images: int, cells: Sequence[int]) -> torch.Tensor:
    """
    The baseline without any image: each position is a segment, so that an organ is where it is in the references.

    Args:
        num_images: M.
        cells: along each axis.

    Returns:
        ``(M, *cells)``, for :func:`score_segments`.

    Example:
        >>> position_labels(1, (2, 2))
        tensor([[[0, 1],
                 [2, 3]]])
    """
    return torch.arange(math.prod(cells)).reshape(1, *cells).repeat(num_images, *[1] * len(cells))


def _split(reference: Sequence[int] | int, num_images: int) -> tuple[list[int], list[int]]:
    """The images whose masks may be used, and those that are scored."""
    references = reference_indices(reference, num_images)
    queries = sorted(set(range(num_images)) - set(references))
    if not queries:
        raise ValueError(
            f"all {num_images} images are references, none is left to score: give more images"
        )
    return references, queries


def _coverage(labels: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Share of each cell that an organ covers, (M, O, *cells), on the CPU."""
    cells, size = labels.shape[1:], masks.shape[2:]
    if (
        len(labels) != len(masks)
        or len(cells) != len(size)
        or any(s % c for s, c in zip(size, cells, strict=True))
    ):
        shapes = f"{tuple(masks.shape)} and {tuple(labels.shape)}"
        raise ValueError(f"the axes of masks must be multiples of the labels', got {shapes}")
    return F.interpolate(masks.cpu().float(), size=tuple(cells), mode="area").double()


def _best_union(inside: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """The segments (K,) whose union has the highest Dice, from how much of each (K,) is inside and how large it is."""
    share = torch.where(size > 0, inside / size.clamp_min(1e-12), -1.0)
    order = share.argsort(descending=True, stable=True)
    dice = 2 * inside[order].cumsum(0) / (size[order].cumsum(0) + inside.sum()).clamp_min(1e-12)
    chosen = torch.zeros_like(size, dtype=torch.bool)
    if inside.sum() > 0:
        chosen[order[: int(dice.argmax()) + 1]] = True
    return chosen


def _dice_table(
    images: Sequence[int], predicted: torch.Tensor, coverage: torch.Tensor
) -> pd.DataFrame:
    """Rows from predicted cells and how much of each an organ covers, both (images, O, cells): the Dice of pixels."""
    common = (predicted * coverage).sum(-1)
    total = predicted.sum(-1) + coverage.sum(-1)
    dice = torch.where(coverage.sum(-1) > 0, 2 * common / total, torch.nan)
    images_of_rows, organs = (
        np.repeat(images, dice.shape[1]),
        np.tile(range(dice.shape[1]), len(images)),
    )
    return pd.DataFrame({"image": images_of_rows, "organ": organs, "dice": dice.flatten()})


def cosegmentation_figure(tables: Mapping[str, pd.DataFrame], names: Sequence[str]) -> Figure:
    """
    The mean Dice of each organ and encoder.

    Args:
        tables: of :func:`monai_afire.apps.studies.score_segments`, by the encoders' names.
        names: of the organs.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder or an organ.

    Example:
        >>> table = pd.DataFrame({"organ": [0, 1], "dice": [0.9, 0.4]})
        >>> len(cosegmentation_figure({"mine": table}, ["lung", "heart"]).axes)
        1
    """
    values = mean_by(tables, "organ", "dice", names)
    return dot_plot(values, "Co-segmentation", "mean Dice", limits=(-0.03, 1.03))


def segments_figure(images: torch.Tensor, labels: Mapping[str, torch.Tensor]) -> Figure:
    """
    The segments as they are found, before anything is known of organs (PEAC, Fig. 7).

    Args:
        images: ``(M, C, H, W)``, a few.
        labels: for each encoder ``(M, h, w)``, of :func:`monai_afire.apps.studies.cosegment`.

    Returns:
        The figure: a row per image, the image itself at the left. In all rows of an encoder a color is the same
        segment, ordered from the top of the images to the bottom; colors of two encoders have nothing in common.

    Example:
        >>> figure = segments_figure(torch.rand(2, 1, 8, 8), {"mine": torch.randint(3, (2, 4, 4))})
        >>> [axis.get_title() for axis in figure.axes]
        ['image', 'mine', '', '']
    """
    gray = images.float().mean(1).cpu().numpy().clip(0, 1)
    ordered = {name: _from_top_to_bottom(own) for name, own in labels.items()}
    rows = []
    for number, image in enumerate(gray):
        tinted = [_tinted(image, own[number], int(own.max()) + 1) for own in ordered.values()]
        rows.append([image, *tinted])
    return picture_grid(rows, ["image", *ordered], "")


def organ_outlines_figure(
    images: torch.Tensor,
    masks: torch.Tensor,
    predicted: Mapping[str, torch.Tensor],
    names: Sequence[str],
) -> Figure:
    """
    The organs that the segments make, beside the true ones.

    Args:
        images: ``(M, C, H, W)``, a few.
        masks: ``(M, O, H, W)`` bool, the truth.
        predicted: for each encoder the same of its segments, see :func:`monai_afire.apps.studies.segments_to_masks`.
        names: of the organs.

    Returns:
        The figure: a row per image, a column per encoder.

    Example:
        >>> masks = torch.rand(1, 2, 8, 8) > 0.5
        >>> len(organ_outlines_figure(torch.rand(1, 1, 8, 8), masks, {"mine": masks}, ["lung", "heart"]).axes)
        1
    """
    gray = images.float().mean(1).cpu().numpy()
    pictures = [
        outline_picture(image, own[number].cpu().numpy(), masks[number].cpu().numpy())
        for number, image in enumerate(gray)
        for own in predicted.values()
    ]
    legend = {
        "truth": TRUTH_COLOR,
        **{name: class_color(number) for number, name in enumerate(names)},
    }
    return image_grid(pictures, list(predicted) * len(gray), None, legend, columns=len(predicted))


def _from_top_to_bottom(labels: torch.Tensor) -> NDArray[np.int64]:
    """Number the segments by their mean row, so that neighbors in the body are neighbors in the colors."""
    _, place = np.unique(labels.cpu().numpy(), return_inverse=True)
    place = place.reshape(labels.shape)
    rows = np.broadcast_to(np.arange(labels.shape[1])[:, None], labels.shape)
    mean_row = np.bincount(place.ravel(), weights=rows.ravel()) / np.bincount(place.ravel())
    rank = np.argsort(np.argsort(mean_row, kind="stable"))
    return rank[place]


def _tinted(image: NDArray, labels: NDArray[np.int64], number: int) -> NDArray:
    """The image under its segments' colors."""
    colors = matplotlib.colormaps[VALUE_COLORS](np.linspace(0, 1, max(number, 2)))[:, :3]
    times = [side // count for side, count in zip(image.shape, labels.shape, strict=True)]
    cells = labels.repeat(times[0], axis=0).repeat(times[1], axis=1)
    return 0.5 * image[..., None] + 0.5 * colors[cells]


LIMIT = "limit of the resolution"

_QUESTION = (
    "Do features alone cut the images into the same organs? The dense features of all images are put into {clusters} "
    "clusters, without any mask. The masks of {references} reference images then say which clusters are an organ, and "
    "the Dice of these is measured on the other images. '{same_place}' needs no encoder: each position is a cluster of "
    "its own, so an organ is where it is in the references. '{limit}' is the best that cells of this size can reach. "
    "For columns that end in position_removed, the mean feature map of all images is subtracted first, which removes "
    "what an encoder knows of positions alone."
)
_SEGMENTS_CAPTION = (
    "Segments as they are found; a color is the same segment in all images of an encoder"
)


@dataclass
class CosegmentationStudy(StudySettings):
    """
    Zero-shot co-segmentation (PEAC, Fig. 7) as a study of the report.

    Args:
        num_clusters: segments that the images are cut into.
        reference: indices among these images, or how many, whose masks say which segments are an organ.
        stride: pixels per cell; where it does not divide an encoder's patch, the next smaller that does.
        max_images: the most images to use; a seeded sample of more.
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

    needs = ("masks",)
    num_clusters: int = 16
    reference: Sequence[int] | int = 5
    stride: int = 8
    max_images: int = 50
    num_pictures: int = 3

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        sampled = images.sample(self.max_images, self.seed)
        assert sampled.masks is not None
        masks, organs = sampled.masks, names_or_numbers(sampled.mask_names, sampled.masks.shape[1])
        references = reference_indices(self.reference, len(masks))
        every = with_raw_pixels(encoders)
        segments = {name: self._segments(encoder, sampled.image) for name, encoder in every.items()}
        positions = position_labels(len(masks), next(iter(segments.values())).shape[1:])
        labels = {**segments, SAME_PLACE: positions}
        scores = {name: score_segments(own, masks, references) for name, own in labels.items()}
        tables = {name: table for name, (table, _) in scores.items()}
        tables[LIMIT] = best_dice(positions, masks, references)
        metrics = {name: _organ_metrics(table, organs) for name, table in tables.items()}
        for name, encoder in every.items():
            removed = self._segments(encoder, sampled.image, remove_position=True)
            table, _ = score_segments(removed, masks, references)
            mean_dice = _organ_metrics(table, organs)["mean_dice"]
            metrics[name]["mean_dice_position_removed"] = mean_dice
        figures = {"Dice of each organ": cosegmentation_figure(tables, organs)}
        queries = [index for index in range(len(masks)) if index not in references]
        if shown := queries[: self.num_pictures]:
            found = {name: own[shown] for name, own in labels.items()}
            clusters = {name: own for name, (_, own) in scores.items()}
            pictures = sampled.image[shown]
            figures |= _segment_figures(pictures, masks[shown], organs, found, clusters)
        names = {"same_place": SAME_PLACE, "limit": LIMIT}
        question = _QUESTION.format(clusters=self.num_clusters, references=len(references), **names)
        frame = pd.DataFrame.from_dict(metrics, orient="index")
        return StudyResult("Organs without training", question, frame, figures)

    def _segments(
        self, encoder: RadiographEncoder, images: torch.Tensor, remove_position: bool = False
    ) -> torch.Tensor:
        stride = finest_stride(encoder, self.stride)
        return cosegment(
            encoder, images, self.num_clusters, stride, remove_position, self.seed, **self.encoding
        )


def _organ_metrics(table: pd.DataFrame, organs: Sequence[str]) -> dict[str, Any]:
    """Mean Dice of each organ over the images, and the mean of these."""
    per_organ = table.groupby("organ")["dice"].mean()
    return {"mean_dice": float(per_organ.mean())} | {
        f"dice_{name}": float(per_organ[number]) for number, name in enumerate(organs)
    }


def _segment_figures(
    images: torch.Tensor,
    masks: torch.Tensor,
    organs: Sequence[str],
    labels: Mapping[str, torch.Tensor],
    clusters: Mapping[str, torch.Tensor],
) -> dict[str, Figure]:
    """A few images with their segments by the encoders' names, and with the organs that these make."""
    of_encoders = {name: own for name, own in labels.items() if name != SAME_PLACE}
    predicted = {
        name: segments_to_masks(own, clusters[name], masks.shape[2:])
        for name, own in labels.items()
    }
    return {
        _SEGMENTS_CAPTION: segments_figure(images, of_encoders),
        "Organs that the segments make": organ_outlines_figure(images, masks, predicted, organs),
    }
