# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Zero-shot co-segmentation of a set of images, and its Dice against masks of organs (PEAC, Fig. 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from tqdm.auto import tqdm

from monai_afire.analysis.features.dense import FeatureMaps
from monai_afire.analysis.features.similarity import nearest_center, spherical_kmeans
from monai_afire.analysis.images.study_images import reference_indices
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["best_dice", "cosegment", "organ_clusters", "position_labels", "score_segments", "segments_to_masks"]

_MAX_POINTS = 20_000  # cells from which the clusters are learned, 60 MiB of a ViT-B's features


@torch.no_grad()
def cosegment(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    num_clusters: int = 16,
    stride: Sequence[int] | int | None = None,
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
            :func:`monai_afire.analysis.landmark_correspondence`.
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
    with tqdm(
        total=len(images) * (3 if remove_position else 2), disable=not progress, unit="image", desc="co-segmentation"
    ) as bar:
        maps = FeatureMaps(encoder, images, stride, batch_size, bar)
        if remove_position:
            maps.remove_mean()
        cells = math.prod(len(axis) for axis in maps.centers)
        per_image = max(1, min(cells, _MAX_POINTS // len(images)))
        generator = torch.Generator().manual_seed(seed)
        sample = []
        for _, part in maps(everything):
            for features in part.flatten(2):
                drawn = torch.randperm(cells, generator=generator)[:per_image]
                sample.append(features[:, drawn.to(features.device)].T)
        centers = spherical_kmeans(torch.cat(sample), num_clusters, seed)
        labels = [
            nearest_center(part.movedim(1, -1).flatten(0, -2), centers).reshape(len(part), *part.shape[2:]).cpu()
            for _, part in maps(everything)
        ]
    return torch.cat(labels)


def organ_clusters(labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int]) -> torch.Tensor:
    r"""
    Which segments are an organ, learned from the masks of a few images.

    An organ is the union of segments that has the highest Dice on the reference images. That union holds the segments
    with the largest share inside the organ, so only as many unions are tried as there are segments. Organs may overlap
    and share segments; an organ that the references do not show has none.

    Args:
        labels: ``(M, *cells)``, of :func:`cosegment` or :func:`position_labels`.
        masks: ``(M, O, *S)`` bool; each axis a multiple of the cells'.
        reference: indices of the images whose masks may be looked at.

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


def segments_to_masks(labels: torch.Tensor, clusters: torch.Tensor, img_size: Sequence[int]) -> torch.Tensor:
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
    Dice of the organs that segments make, on images whose masks were not looked at.

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


def best_dice(labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int] | int = 5) -> pd.DataFrame:
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
    predicted = [torch.stack([_best_union(organ, one) for organ in image]) for image in coverage]
    return _dice_table(queries, torch.stack(predicted), coverage)


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
    """The images whose masks may be looked at, and those that are scored."""
    references = reference_indices(reference, num_images)
    queries = sorted(set(range(num_images)) - set(references))
    if not queries:
        raise ValueError(
            f"{len(references)} of {num_images} images are references, none is left to score: give more images or "
            "fewer references"
        )
    return references, queries


def _coverage(labels: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Share of each cell that an organ covers, (M, O, *cells), on the CPU."""
    cells, size = labels.shape[1:], masks.shape[2:]
    if len(labels) != len(masks) or len(cells) != len(size) or any(s % c for s, c in zip(size, cells, strict=True)):
        raise ValueError(
            f"masks (M, O, *S) with axes that are multiples of the cells' are needed for labels {tuple(labels.shape)}, "
            f"got {tuple(masks.shape)}"
        )
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


def _dice_table(images: Sequence[int], predicted: torch.Tensor, coverage: torch.Tensor) -> pd.DataFrame:
    """Rows from predicted cells and how much of each an organ covers, both (images, O, cells): the Dice of pixels."""
    common = (predicted * coverage).sum(-1)
    total = predicted.sum(-1) + coverage.sum(-1)
    dice = torch.where(coverage.sum(-1) > 0, 2 * common / total, torch.nan)
    organs = dice.shape[1]
    return pd.DataFrame(
        {
            "image": [image for image in images for _ in range(organs)],
            "organ": list(range(organs)) * len(images),
            "dice": dice.flatten().tolist(),
        }
    )
