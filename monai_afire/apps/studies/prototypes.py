# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Atlas of AFiRe's prototypes: what does the cluster of each position stand for?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from monai_afire.apps.results.pictures import style
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.studies.features import image_features
from monai_afire.apps.studies.figures import framed, in_colors
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.study import NothingToCompareError, StudyResult, metrics_table
from monai_afire.metrics.pretraining import prototype_entropy, prototype_information
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.visualize.figures import first_channel

_PERMUTATIONS = 20
_GOLDEN = 0.618033988749895
_ENTROPY_COLORS = "cividis"  # not those of the clusters beside it, which mean something else

_QUESTION = (
    "What does each of AFiRe's prototypes stand for? A prototype is a probability vector over clusters for one "
    "position. prototype_information: how well the cluster predicts the position, from 0 (collapsed) to 1. "
    "prototype_entropy: 1 where every prototype is uniform and says nothing. organ_information, where masks are known: "
    "how well the cluster predicts the organ, from 0 to 1. Its chance is that of permuted positions, its limit that of "
    "a cluster for each position."
)
_ATLAS_CAPTION = "Clusters and entropy of the positions beside the mean image, {}"
_PATCHES_CAPTION = (
    "Patches (framed) that the largest clusters get most strongly, with their probability, {}"
)


def prototype_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    networks: Mapping[str, AFiRe],
    batch_size: int = 32,
) -> StudyResult:
    """
    An atlas of the prototypes of AFiRe networks.

    Args:
        images: any; with masks the atlas is compared with organs.
        networks: AFiRe networks by the names that the report shows.

    Raises:
        NothingToCompareError: for a network that contrasts features, it has no clusters.
    """
    metrics, details = {}, {}
    figures: dict[str, Figure] = {}
    mean = images.image.mean(0)
    for name, network in networks.items():
        if network.contrast_space != "probabilities":
            raise NothingToCompareError(f"{name!r} contrasts features, it has no clusters")
        patch_size, prototypes = network.encoder.patch_size, network.bank.prototypes.float().cpu()
        shares = None if images.masks is None else organ_shares(images.masks, patch_size)
        metrics[name] = atlas_scores(prototypes, shares)
        atlas = prototype_atlas(prototypes, network.encoder.grid_size)
        details[f"Dominating cluster of each position, {name}"] = atlas
        figures[_ATLAS_CAPTION.format(name)] = atlas_figure(mean, atlas, name)
        clusters = largest_clusters(prototypes)
        patches = cluster_patches(network, images.image, clusters, batch_size=batch_size)
        windows = patch_windows(images.image, patches, patch_size)
        figures[_PATCHES_CAPTION.format(name)] = cluster_figure(windows, patches)
    return StudyResult("Atlas of prototypes", _QUESTION, metrics_table(metrics), figures, details)


def prototype_atlas(prototypes: torch.Tensor, grid_size: Sequence[int]) -> pd.DataFrame:
    """
    What each position's prototype ``(L, K)`` says, a row each: probabilities over K clusters.

    "cluster" is the dominating one, "entropy" a share of the largest possible, log K.
    """
    row, column = np.unravel_index(range(len(prototypes)), tuple(grid_size))
    probability, cluster = prototypes.max(1)
    entropy = [float(prototype_entropy(own[None])) for own in prototypes]
    places = {"row": row, "column": column, "cluster": cluster}
    return pd.DataFrame({**places, "probability": probability, "entropy": entropy})


def atlas_scores(prototypes: torch.Tensor, shares: torch.Tensor | None = None) -> dict[str, float]:
    """
    The metrics of an atlas of prototypes ``(L, K)``, with :func:`organ_shares` where masks are known.

    "effective_clusters" is the exponential of the entropy of all positions' mean, between 1 and K;
    "organ_information_chance" the mean over 20 random permutations of the positions, and "organ_information_limit" that
    of an atlas with a cluster of its own for each position.
    """
    number = len(prototypes)
    scores = {
        "clusters": float(prototypes.shape[1]),
        "clusters_used": float(len(prototypes.argmax(1).unique())),
        "effective_clusters": float(torch.special.entr(prototypes.mean(0)).sum().exp()),
        "prototype_information": float(prototype_information(prototypes)),
        "prototype_entropy": float(prototype_entropy(prototypes)),
    }
    if shares is not None:
        generator = torch.Generator().manual_seed(0)
        orders = [torch.randperm(number, generator=generator) for _ in range(_PERMUTATIONS)]
        permuted = [organ_information(prototypes[order], shares) for order in orders]
        scores["organ_information"] = organ_information(prototypes, shares)
        scores["organ_information_chance"] = sum(permuted) / _PERMUTATIONS
        scores["organ_information_limit"] = organ_information(torch.eye(number), shares)
    return scores


def organ_shares(masks: torch.Tensor, patch_size: Sequence[int]) -> torch.Tensor:
    """
    Which organs each position shows ``(L, O + 1)``, on average over masks ``(M, O, H, W)``; rows sum to 1.

    Where organs overlap, a pixel is shared by them; the last column is what belongs to no organ.
    """
    total = torch.zeros(1)
    for mask in masks:  # image by image: the masks of all would be four times as large as numbers
        organs = (mask != 0).float()
        number = organs.sum(0, keepdim=True)
        parts = torch.cat([organs / number.clamp_min(1), (number == 0).float()])
        total = total + patchify(parts[:, None], patch_size).mean(-1).T.cpu()
    return total / len(masks)


def organ_information(prototypes: torch.Tensor, shares: torch.Tensor) -> float:
    r"""
    Mutual information of cluster and organ, as a share of the organ's entropy; NaN where there is but one organ.

    .. math:: \frac{I(k; o)}{H(o)}, \qquad p(k, o) = \frac{1}{L} \sum_{j=1}^{L} c_{jk} s_{jo}

    for prototypes c ``(L, K)`` and shares s of the organs ``(L, O)``. Few positions and many clusters make it larger
    than 0 by chance, and where an organ's place differs from image to image not even the position itself tells it.
    """
    joint = prototypes.double().cpu().T @ shares.double().cpu() / len(shares)
    clusters, organs = joint.sum(1), joint.sum(0)
    entropy = torch.special.entr(organs).sum()
    information = torch.special.entr(clusters).sum() + entropy - torch.special.entr(joint).sum()
    return float((information / entropy).clamp(0, 1)) if entropy > 1e-12 else float("nan")


def largest_clusters(prototypes: torch.Tensor, number: int = 8) -> list[int]:
    """The clusters that dominate most positions, largest first; of equal ones those with the larger probability."""
    dominated = torch.bincount(prototypes.argmax(1), minlength=prototypes.shape[1]).tolist()
    total = prototypes.sum(0).tolist()
    ranked = sorted(range(len(total)), key=lambda k: (-dominated[k], -total[k], k))
    return [cluster for cluster in ranked[:number] if dominated[cluster]]


def cluster_patches(
    network: AFiRe,
    images: torch.Tensor,
    clusters: Sequence[int],
    num_patches: int = 8,
    batch_size: int = 32,
) -> pd.DataFrame:
    """
    The patches that the student assigns most strongly to clusters, at most one of each image: neighbors are alike.

    A row per patch, the strongest of each cluster first: "cluster", "rank", "image", "position" (row-major on the patch
    grid) and "probability".
    """

    def probabilities(tokens: torch.Tensor) -> torch.Tensor:
        return network.token_probabilities(tokens)[..., list(clusters)]

    with eval_mode(network):
        q = image_features(network.encoder, images, batch_size, probabilities)
    probability, place = q.max(1)
    top, image = probability.topk(min(num_patches, len(images)), dim=0)
    columns = {
        "cluster": np.repeat(np.array(clusters, dtype=int), len(top)),
        "rank": np.tile(range(len(top)), len(clusters)),
        "image": image.T.flatten(),
        "position": place.gather(0, image).T.flatten(),
        "probability": top.T.flatten(),
    }
    return pd.DataFrame(columns)


def patch_windows(
    images: torch.Tensor, patches: pd.DataFrame, patch_size: Sequence[int]
) -> list[torch.Tensor]:
    """Cut patches out of images, with their neighbors on every side; beyond the border the border goes on."""
    height, width = patch_size
    padded = F.pad(images, (width, width, height, height), mode="replicate")
    windows = []
    for image, position in zip(patches["image"], patches["position"], strict=True):
        row, column = divmod(position, images.shape[-1] // width)
        rows = slice(row * height, (row + 3) * height)
        windows.append(padded[image, :, rows, column * width : (column + 3) * width])
    return windows


def atlas_figure(image: torch.Tensor, atlas: pd.DataFrame, title: str) -> Figure:
    """
    The clusters of all positions and the entropy there, beside a radiograph ``(C, H, W)``, e.g. the mean of all.

    Colors tell neighbors apart, by their lightness for every eye; lines run where the cluster changes.
    """
    clusters, entropy = (
        atlas.pivot(index="row", columns="column", values=value).to_numpy()
        for value in ("cluster", "entropy")
    )
    figure = style.plot_figure(12.4, 4.3, pictures=True)
    axes = figure.subplots(1, 3)
    picture = first_channel(image)
    (height, width), (rows, columns) = picture.shape, entropy.shape
    aspect = (height / rows) / (width / columns)  # of a patch
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes[0].imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect=aspect)
    axes[1].imshow(_colors(clusters), aspect=aspect)
    _number(axes[1], clusters)
    shown = axes[2].imshow(entropy, cmap=_ENTROPY_COLORS, vmin=0, vmax=1, aspect=aspect)
    figure.colorbar(shown, ax=axes[2], shrink=0.8).ax.tick_params(labelsize=style.TICK_SIZE)
    names = ("radiograph", "dominating cluster", "entropy (share of the largest)")
    for axis, name in zip(axes, names, strict=True):
        axis.set_title(name, fontsize=style.TITLE_SIZE)
        axis.set_axis_off()
    figure.suptitle(title, fontsize=style.TITLE_SIZE, parse_math=False)
    return figure


def cluster_figure(windows: Sequence[torch.Tensor], patches: pd.DataFrame) -> Figure:
    """The patches that belong most strongly to each cluster, framed in what surrounds them; a row per cluster."""
    sides = [length // 3 for length in windows[0].shape[1:]]
    middle = np.pad(np.ones(sides, dtype=bool), [(side, side) for side in sides])
    pictures = [framed(in_colors(first_channel(own).clip(0, 1)), middle) for own in windows]
    named = zip(patches["cluster"], patches["probability"], strict=True)
    titles = [f"cluster {cluster}: {probability:.2f}" for cluster, probability in named]
    return image_grid(pictures, titles, columns=patches["rank"].nunique(), inches=1.05)


def _colors(clusters: NDArray) -> NDArray:
    """Colors far apart for clusters whose numbers follow each other in reading order."""
    number = pd.factorize(clusters.ravel())[0].reshape(clusters.shape)
    return mpl.colormaps[style.VALUE_COLORS](number * _GOLDEN % 1.0)[..., :3]


def _number(axis: Axes, clusters: NDArray) -> None:
    """Write the clusters' numbers on their cells, and draw lines where the cluster changes."""
    text = {"ha": "center", "va": "center", "fontsize": min(9.0, 100 / max(clusters.shape))}
    light = _colors(clusters) @ np.array([0.299, 0.587, 0.114])
    for row, column in np.ndindex(*clusters.shape):
        color = "black" if light[row, column] > 0.5 else "white"
        axis.text(column, row, str(clusters[row, column]), color=color, **text)
    for row, column in np.argwhere(clusters[:, 1:] != clusters[:, :-1]):
        axis.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], color="white", linewidth=1)
    for row, column in np.argwhere(clusters[1:] != clusters[:-1]):
        axis.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, color="white", linewidth=1)
