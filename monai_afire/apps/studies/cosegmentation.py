# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Organs without training: do clusters of dense features cut all images into the same organs?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.draw import TRUTH_COLOR, class_color, outline_picture
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.results.pictures.style import VALUE_COLORS
from monai_afire.apps.studies.features import FeatureMaps, finest_stride, l2_normalize
from monai_afire.apps.studies.figures import SHARE_LIMITS, dot_plot
from monai_afire.apps.studies.images import StudyImages, evenly_spaced, names_or_numbers
from monai_afire.apps.studies.study import SAME_PLACE, StudyResult, mean_by, metrics_table
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels
from monai_afire.visualize.figures import picture_grid

LIMIT = "limit of the resolution"

_PICTURES, _STARTS = 3, 4  # images that are shown; starts of k-means
_MAX_POINTS = 20_000  # cells from which the clusters are learned, 60 MiB of a ViT-B's features

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


def cosegmentation_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    num_clusters: int = 16,
    reference: int = 5,
    stride: int = 8,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """
    Zero-shot co-segmentation (PEAC, Fig. 7).

    Args:
        num_clusters: segments that the images are cut into.
        reference: how many images' masks say which segments are an organ; they are evenly spaced.
        stride: pixels per cell; where it does not divide an encoder's patch, the next smaller that does.

    Raises:
        ValueError: when no image is left to score.
    """
    masks, pictures = images.known("masks"), images.image
    organs = names_or_numbers(images.mask_names, masks.shape[1])
    references = evenly_spaced(reference, len(masks))
    labels, removed = {}, {}
    for name, encoder in with_raw_pixels(encoders).items():
        step = finest_stride(encoder, stride)
        labels[name], removed[name] = (
            cosegment(encoder, pictures, num_clusters, step, remove, seed, batch_size)
            for remove in (False, True)
        )
    positions = position_labels(len(masks), next(iter(labels.values())).shape[1:])
    labels[SAME_PLACE] = positions
    scores = {name: score_segments(own, masks, references) for name, own in labels.items()}
    tables = {name: table for name, (table, _) in scores.items()}
    tables[LIMIT] = best_dice(positions, masks, references)
    metrics = {name: _organ_metrics(table, organs) for name, table in tables.items()}
    for name, own in removed.items():
        table, _ = score_segments(own, masks, references)
        metrics[name]["mean_dice_position_removed"] = _organ_metrics(table, organs)["mean_dice"]
    dice = mean_by(tables, "organ", "dice", organs)
    figures = {"Dice of each organ": dot_plot(dice, "Co-segmentation", "mean Dice", SHARE_LIMITS)}
    if shown := _others(references, len(masks))[:_PICTURES]:
        found = {name: own[shown] for name, own in labels.items()}
        predicted = {
            name: segments_to_masks(own, scores[name][1], masks.shape[2:])
            for name, own in found.items()
        }
        del found[SAME_PLACE]
        figures[_SEGMENTS_CAPTION] = segments_figure(pictures[shown], found)
        figures["Organs that the segments make"] = organ_outlines_figure(
            pictures[shown], masks[shown], predicted, organs
        )
    question = _QUESTION.format(
        clusters=num_clusters, references=len(references), same_place=SAME_PLACE, limit=LIMIT
    )
    return StudyResult("Organs without training", question, metrics_table(metrics), figures)


@torch.no_grad()
def cosegment(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    num_clusters: int = 16,
    stride: int | None = None,
    remove_position: bool = False,
    seed: int = 0,
    batch_size: int = 32,
) -> torch.Tensor:
    """
    Cut a set of images jointly into K segments ``(M, *cells)``: k-means of the directions of their dense features.

    No mask is used, and nothing trained; :func:`organ_clusters` says afterwards which segments are an organ. PEAC keeps
    the segments that the class token attends to; encoders here need not have one. Clusters are learned from a seeded
    sample of cells, so memory does not grow with the number of images but for the result.
    """
    from sklearn.cluster import KMeans  # takes a second

    encoder.check_images(images)
    everything = range(len(images))
    maps = FeatureMaps(encoder, images, stride, remove_position, batch_size)
    shape = [len(axis) for axis in maps.centers]
    per_image = max(1, min(math.prod(shape), _MAX_POINTS // len(images)))
    generator = torch.Generator().manual_seed(seed)
    sample = []
    for part in maps(everything):
        for features in part.flatten(2):
            drawn = torch.randperm(math.prod(shape), generator=generator)[:per_image]
            sample.append(features[:, drawn.to(features.device)].T)
    points = _directions(torch.cat(sample))
    kmeans = KMeans(min(num_clusters, len(points)), n_init=_STARTS, random_state=seed).fit(points)
    labels = [
        kmeans.predict(_directions(part.movedim(1, -1).flatten(0, -2))) for part in maps(everything)
    ]
    return torch.as_tensor(np.concatenate(labels)).long().reshape(-1, *shape)


def _directions(features: torch.Tensor) -> NDArray[np.float64]:
    """Features ``(N, D)`` of length 1."""
    return l2_normalize(features).cpu().double().numpy()


def position_labels(num_images: int, cells: Sequence[int]) -> torch.Tensor:
    """The baseline without any image, ``(M, *cells)``: each position is a segment."""
    return torch.arange(math.prod(cells)).reshape(*cells).expand(num_images, -1, -1)


def organ_clusters(
    labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int]
) -> torch.Tensor:
    """
    Which of K segments are an organ ``(K, O)``: the union that has the highest Dice on the reference images.

    That union holds the segments with the largest share inside the organ. Organs may share segments; an organ that the
    references do not show has none.
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
    """The organs' masks ``(M, O, H, W)`` that segments ``(M, *cells)`` make by :func:`organ_clusters`."""
    cells = clusters[labels].movedim(-1, 1)
    return F.interpolate(cells.float(), size=tuple(img_size), mode="nearest").bool()


def score_segments(
    labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int]
) -> tuple[pd.DataFrame, torch.Tensor]:
    """
    Dice of the organs that segments ``(M, *cells)`` make, on images whose masks ``(M, O, H, W)`` were not used.

    Returns:
        A row per image that is no reference, and organ: "image", "organ" (indices) and "dice" (NaN where the image does
        not show the organ); and :func:`organ_clusters`, ``(K, O)``.
    """
    queries = _others(reference, len(labels))
    clusters = organ_clusters(labels, masks, reference)
    coverage = _coverage(labels, masks)[queries].flatten(2)
    predicted = clusters[labels[queries]].movedim(-1, 1).flatten(2)
    return _dice_table(queries, predicted, coverage), clusters


def best_dice(labels: torch.Tensor, masks: torch.Tensor, reference: Sequence[int]) -> pd.DataFrame:
    """The limit of the resolution: Dice of the best union of cells for each image and organ, knowing its mask."""
    queries = _others(reference, len(labels))
    coverage = _coverage(labels, masks)[queries].flatten(2)
    one = torch.ones(coverage.shape[2])
    predicted = [_best_union(organ, one) for organ in coverage.flatten(0, 1)]
    return _dice_table(queries, torch.stack(predicted).reshape(coverage.shape), coverage)


def segments_figure(images: torch.Tensor, labels: Mapping[str, torch.Tensor]) -> Figure:
    """The segments of each encoder as they are found (PEAC, Fig. 7); its colors are the same in all images."""
    gray = images.float().mean(1).cpu().numpy().clip(0, 1)
    rows = [
        [
            image,
            *(_tinted(image, own[number].numpy(), int(own.max()) + 1) for own in labels.values()),
        ]
        for number, image in enumerate(gray)
    ]
    return picture_grid(rows, ["image", *labels], "")


def organ_outlines_figure(
    images: torch.Tensor,
    masks: torch.Tensor,
    predicted: Mapping[str, torch.Tensor],
    names: Sequence[str],
) -> Figure:
    """The organs that each encoder's segments make, beside the true ones: a row per image."""
    gray = images.float().mean(1).cpu().numpy()
    pictures = [
        outline_picture(image, own[number].cpu().numpy(), masks[number].cpu().numpy())
        for number, image in enumerate(gray)
        for own in predicted.values()
    ]
    legend = {"truth": TRUTH_COLOR}
    legend |= {name: class_color(number) for number, name in enumerate(names)}
    titles = list(predicted) * len(gray)
    return image_grid(pictures, titles, None, legend, columns=len(predicted))


def _others(reference: Sequence[int], num_images: int) -> list[int]:
    """The images that are scored: all but the references."""
    others = sorted(set(range(num_images)) - set(reference))
    if not others:
        raise ValueError(
            f"all {num_images} images are references, none is left to score: give more images"
        )
    return others


def _coverage(labels: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Share of each cell that an organ covers, (M, O, *cells), on the CPU."""
    return F.interpolate(masks.cpu().float(), size=tuple(labels.shape[1:]), mode="area").double()


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
    number = dice.shape[1]
    places = {"image": np.repeat(images, number), "organ": np.tile(range(number), len(images))}
    return pd.DataFrame({**places, "dice": dice.flatten()})


def _organ_metrics(table: pd.DataFrame, organs: Sequence[str]) -> dict[str, float]:
    """Mean Dice of each organ over the images, and the mean of these."""
    per_organ = table.groupby("organ")["dice"].mean()
    named = {f"dice_{name}": float(per_organ[number]) for number, name in enumerate(organs)}
    return {"mean_dice": float(per_organ.mean()), **named}


def _tinted(image: NDArray, labels: NDArray[np.int64], number: int) -> NDArray:
    """The image under its segments' colors."""
    colors = matplotlib.colormaps[VALUE_COLORS](np.linspace(0, 1, max(number, 2)))[:, :3]
    times = [side // count for side, count in zip(image.shape, labels.shape, strict=True)]
    cells = labels.repeat(times[0], axis=0).repeat(times[1], axis=1)
    return 0.5 * image[..., None] + 0.5 * colors[cells]
