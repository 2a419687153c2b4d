# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Atlas of AFiRe's prototypes: what does the cluster of each position stand for?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from monai.utils import convert_to_tensor
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.heat_map import MARK_COLOR
from monai_afire.apps.results.pictures.style import (
    LABEL_SIZE,
    TICK_SIZE,
    TITLE_SIZE,
    VALUE_COLORS,
    plot_figure,
)
from monai_afire.apps.studies.features.tokens import image_features
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.apps.studies.study import StudyResult, StudySettings
from monai_afire.metrics.pretraining import prototype_entropy, prototype_information
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.visualize.figures import first_channel

_PERMUTATIONS = 20


def prototype_atlas(prototypes: torch.Tensor, grid_size: Sequence[int]) -> pd.DataFrame:
    """
    What each position's prototype says.

    Args:
        prototypes: ``(L, K)`` probability vectors, ``network.bank.prototypes``.
        grid_size: positions along each axis; their product is L.

    Returns:
        A row per position, row-major: "row", "column", the dominating "cluster" with its
        "probability", and the "entropy" of the prototype as a share of the largest possible, log K.

    Raises:
        ValueError: for vectors that are no probabilities (AFiRe's ``contrast_space="features"``), or another grid.

    Example:
        >>> prototype_atlas(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), (1, 2)).to_dict("list")
        {'row': [0, 0], 'column': [0, 1], 'cluster': [0, 0], 'probability': [1.0, 0.5], 'entropy': [0.0, 1.0]}
    """
    rows = _checked(prototypes)
    if len(rows) != math.prod(grid_size):
        raise ValueError(
            f"{len(rows)} prototypes do not fill a grid of {tuple(grid_size)} positions"
        )
    axes = np.unravel_index(range(len(rows)), tuple(grid_size))
    probability, cluster = rows.max(1)
    columns = dict(zip(("row", "column"), axes, strict=True))
    entropy = [float(prototype_entropy(row[None])) for row in rows]
    return pd.DataFrame(
        {**columns, "cluster": cluster, "probability": probability, "entropy": entropy}
    )


def atlas_scores(prototypes: torch.Tensor, shares: torch.Tensor | None = None) -> dict[str, float]:
    """
    The metrics of an atlas.

    Args:
        prototypes: ``(L, K)`` probability vectors.
        shares: ``(L, O)`` of :func:`organ_shares`, where masks are known.

    Returns:
        "clusters", K; "clusters_used", how many dominate a position; "effective_clusters", the exponential of the
        entropy of all positions' mean, between 1 and K; "prototype_information" and "prototype_entropy" of
        :mod:`monai_afire.metrics`; with shares "organ_information", its "organ_information_chance", the mean over 20
        random permutations of the positions, and "organ_information_limit", that of an atlas with a cluster of its own
        for each position.

    Raises:
        ValueError: for vectors that are no probabilities, or shares of other positions.

    Example:
        >>> scores = atlas_scores(torch.eye(4), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
        >>> scores["clusters_used"], round(scores["organ_information"], 4)
        (4.0, 1.0)
    """
    rows = _checked(prototypes)
    scores = {
        "clusters": float(rows.shape[1]),
        "clusters_used": float(len(rows.argmax(1).unique())),
        "effective_clusters": float(torch.special.entr(rows.mean(0)).sum().exp()),
        "prototype_information": float(prototype_information(rows)),
        "prototype_entropy": float(prototype_entropy(rows)),
    }
    if shares is not None:
        generator = torch.Generator().manual_seed(0)
        permuted = [
            rows[torch.randperm(len(rows), generator=generator)] for _ in range(_PERMUTATIONS)
        ]
        scores["organ_information"] = organ_information(rows, shares)
        scores["organ_information_chance"] = (
            sum(organ_information(p, shares) for p in permuted) / _PERMUTATIONS
        )
        scores["organ_information_limit"] = organ_information(torch.eye(len(rows)), shares)
    return scores


def organ_shares(masks: torch.Tensor, patch_size: Sequence[int]) -> torch.Tensor:
    """
    Which organs each position shows, on average over images.

    Args:
        masks: ``(M, O, *S)``, non-zero inside of an organ; where organs overlap, a pixel is shared by them.
        patch_size: pixels per position along each axis.

    Returns:
        ``(L, O + 1)`` on the CPU, rows sum to 1; the last column is what belongs to no organ.

    Example:
        >>> organ_shares(torch.tensor([[[[1, 1, 0, 0]], [[0, 1, 0, 0]]]]), (1, 2)).tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]
    """
    inside = convert_to_tensor(masks, track_meta=False) != 0
    total = torch.zeros(0)
    for mask in inside:  # image by image: the masks of all would be four times as large as numbers
        organs = mask.float()
        number = organs.sum(0, keepdim=True)
        parts = torch.cat([organs / number.clamp_min(1), (number == 0).float()])
        patches = patchify(parts[:, None], patch_size).mean(-1).T.cpu()
        total = patches if not len(total) else total + patches
    return total / len(inside)


def organ_information(prototypes: torch.Tensor, shares: torch.Tensor) -> float:
    r"""
    Mutual information of cluster and organ, as a share of the organ's entropy.

    .. math:: \frac{I(k; o)}{H(o)}, \qquad p(k, o) = \frac{1}{L} \sum_{j=1}^{L} c_{jk} s_{jo}

    for prototypes c and shares s of the organs. Few positions and many clusters make it larger than 0 by chance, and
    where an organ's place differs from image to image not even the position itself tells it: see :func:`atlas_scores`.

    Args:
        prototypes: ``(L, K)`` probability vectors.
        shares: ``(L, O)`` probability vectors.

    Returns:
        In [0, 1]; NaN where there is but one organ.

    Raises:
        ValueError: when the positions differ in number.

    Example:
        >>> round(organ_information(torch.eye(2), torch.eye(2)), 4), organ_information(torch.eye(2), torch.ones(2, 1))
        (1.0, nan)
    """
    if len(prototypes) != len(shares):
        raise ValueError(
            f"{len(prototypes)} prototypes, but shares of {len(shares)} positions: give those of one grid"
        )
    joint = prototypes.double().cpu().T @ shares.double().cpu() / len(shares)
    clusters, organs = joint.sum(1), joint.sum(0)
    entropy = torch.special.entr(organs).sum()
    information = torch.special.entr(clusters).sum() + entropy - torch.special.entr(joint).sum()
    return float((information / entropy).clamp(0, 1)) if entropy > 1e-12 else float("nan")


def largest_clusters(prototypes: torch.Tensor, number: int = 8) -> list[int]:
    """
    The clusters that dominate most positions; of equal ones those with the larger probability in total.

    Args:
        prototypes: ``(L, K)`` probability vectors.
        number: how many at most.

    Returns:
        Indices of clusters that dominate at least one position, largest first.

    Example:
        >>> largest_clusters(torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.3, 0.7, 0.0]]))
        [1, 0]
    """
    rows = _checked(prototypes)
    dominated = torch.bincount(rows.argmax(1), minlength=rows.shape[1])
    ranked = sorted(
        range(rows.shape[1]), key=lambda k: (-int(dominated[k]), -float(rows[:, k].sum()), k)
    )
    return [cluster for cluster in ranked[:number] if dominated[cluster]]


def cluster_patches(
    network: AFiRe,
    images: torch.Tensor,
    clusters: Sequence[int],
    num_patches: int = 8,
    batch_size: int = 32,
    progress: bool = True,
) -> pd.DataFrame:
    """
    The patches of images that the student assigns most strongly to clusters.

    Args:
        network: pre-trained, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        clusters: their indices.
        num_patches: how many of each cluster; an image gives at most one to each, or neighbors would fill the list.
        batch_size: images in a pass.
        progress: whether to show a progress bar over the images.

    Returns:
        A row per patch, the strongest of each cluster first: "cluster", "rank", "image", "position" (row-major on the
        patch grid) and "probability".

    Raises:
        ValueError: for images that the encoder does not take, a cluster that does not exist, or a network that
            contrasts features (there are no clusters).

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> cluster_patches(network, torch.rand(3, 1, 32, 32), [5, 0], 2, progress=False)["cluster"].tolist()
        [5, 5, 0, 0]
    """
    if network.contrast_space != "probabilities":
        raise ValueError("this network contrasts features, it has no clusters: leave the atlas out")
    if any(not 0 <= cluster < network.bank.prototypes.shape[1] for cluster in clusters):
        raise ValueError(
            f"clusters are 0 to {network.bank.prototypes.shape[1] - 1}, got {list(clusters)}"
        )
    with eval_mode(network):
        q = image_features(
            network.encoder,
            images,
            batch_size,
            progress,
            lambda tokens: network.token_probabilities(tokens)[..., list(clusters)],
        )
    probability, place = q.max(1)
    top, image = probability.topk(min(num_patches, len(images)), dim=0)
    return pd.DataFrame(
        {
            "cluster": np.repeat(np.array(clusters, dtype=int), len(top)),
            "rank": np.tile(range(len(top)), len(clusters)),
            "image": image.T.flatten(),
            "position": place.gather(0, image).T.flatten(),
            "probability": top.T.flatten(),
        }
    )


def patch_windows(
    images: torch.Tensor, patches: pd.DataFrame, patch_size: Sequence[int], context: int = 1
) -> torch.Tensor:
    """
    Cut patches out of images with what surrounds them; beyond the border the border goes on.

    Args:
        images: ``(M, C, *S)``.
        patches: with "image" and "position", of :func:`cluster_patches`.
        patch_size: pixels per position along each axis.
        context: patches around the one in the middle, on every side.

    Returns:
        ``(N, C, *((2 context + 1) patch_size))``.

    Example:
        >>> table = pd.DataFrame({"image": [0], "position": [3]})
        >>> patch_windows(torch.arange(16.0).reshape(1, 1, 4, 4), table, (2, 2), context=0).flatten().tolist()
        [10.0, 11.0, 14.0, 15.0]
    """
    plain = convert_to_tensor(images, track_meta=False)
    grid = [length // p for length, p in zip(plain.shape[2:], patch_size, strict=True)]
    # F.pad begins with the last axis
    widths = [context * p for p in reversed(patch_size) for _ in range(2)]
    windows = plain.new_empty(
        len(patches), plain.shape[1], *((2 * context + 1) * p for p in patch_size)
    )
    for window, image, position in zip(windows, patches["image"], patches["position"], strict=True):
        cells = zip(np.unravel_index(position, grid), patch_size, strict=True)
        around = (
            slice(None),
            *(slice(index * p, (index + 2 * context + 1) * p) for index, p in cells),
        )
        window[:] = F.pad(plain[image][None], widths, mode="replicate")[0][around]
    return windows


def _checked(prototypes: torch.Tensor) -> torch.Tensor:
    rows = convert_to_tensor(prototypes, track_meta=False).detach().float().cpu()
    if (
        rows.ndim != 2
        or (rows < 0).any()
        or not torch.allclose(rows.sum(1), torch.ones(len(rows)), atol=1e-3)
    ):
        raise ValueError(
            f"prototypes {tuple(rows.shape)} are no probability vectors (L, K): features have no atlas"
        )
    return rows


_GOLDEN = 0.618033988749895
# other ones than those of the clusters beside it, which mean something else
_ENTROPY_COLORS = "cividis"


def atlas_figure(image: torch.Tensor, atlas: pd.DataFrame, title: str = "") -> Figure:
    """
    The clusters of all positions and the entropy there, beside a radiograph.

    Colors tell neighbors apart, by their lightness for every eye; the number of the cluster says which it is, and
    lines run where the cluster changes.

    Args:
        image: ``(C, *S)`` in [0, 1], e.g. the mean of all images.
        atlas: of :func:`monai_afire.apps.studies.prototype_atlas`.
        title: of the whole.

    Returns:
        The figure.

    Example:
        >>> from monai_afire.apps.studies.prototypes import prototype_atlas
        >>> len(atlas_figure(torch.rand(1, 32, 32), prototype_atlas(torch.eye(16), (4, 4))).axes)
        4
    """
    clusters = atlas.pivot(index="row", columns="column", values="cluster").to_numpy()
    entropy = atlas.pivot(index="row", columns="column", values="entropy").to_numpy()
    figure = plot_figure(12.4, 4.3, pictures=True)
    axes = figure.subplots(1, 3)
    picture = first_channel(image)
    (height, width), (rows, columns) = picture.shape, entropy.shape
    aspect = (height / rows) / (width / columns)  # of a patch
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes[0].imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect=aspect)
    axes[1].imshow(_colors(clusters), aspect=aspect)
    _number(axes[1], clusters)
    shown = axes[2].imshow(entropy, cmap=_ENTROPY_COLORS, vmin=0, vmax=1, aspect=aspect)
    figure.colorbar(shown, ax=axes[2], shrink=0.8).ax.tick_params(labelsize=TICK_SIZE)
    for axis, name in zip(
        axes, ("radiograph", "dominating cluster", "entropy (share of the largest)"), strict=True
    ):
        axis.set_title(name, fontsize=TITLE_SIZE)
        axis.set_axis_off()
    figure.suptitle(title, fontsize=TITLE_SIZE, parse_math=False)
    return figure


def cluster_figure(
    windows: torch.Tensor, patches: pd.DataFrame, context: int = 1, title: str = ""
) -> Figure:
    """
    The patches that belong most strongly to each cluster, framed in what surrounds them; a row per cluster.

    Args:
        windows: ``(N, C, *S)`` of :func:`monai_afire.apps.studies.patch_windows`.
        patches: of :func:`monai_afire.apps.studies.cluster_patches`, a row per window.
        context: patches around the one in the middle, on every side.
        title: of the whole.

    Returns:
        The figure.

    Raises:
        ValueError: without a patch.

    Example:
        >>> table = pd.DataFrame({"cluster": [7, 7], "rank": [0, 1], "probability": [0.9, 0.8]})
        >>> len(cluster_figure(torch.rand(2, 1, 24, 24), table).axes)
        2
    """
    if not len(patches):
        raise ValueError("no patch to show: give at least one image and one cluster")
    clusters = list(dict.fromkeys(patches["cluster"]))
    columns = int(patches["rank"].max()) + 1
    figure = plot_figure(1.0 + 1.05 * columns, 0.5 + 1.22 * len(clusters))
    axes = figure.subplots(len(clusters), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for window, (_, patch) in zip(windows, patches.iterrows(), strict=True):
        axis = axes[clusters.index(patch["cluster"]), int(patch["rank"])]
        picture = first_channel(window)
        height, width = (length / (2 * context + 1) for length in picture.shape)
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
        corner = (context * width - 0.5, context * height - 0.5)
        axis.add_patch(
            Rectangle(corner, width, height, fill=False, edgecolor=MARK_COLOR, linewidth=1.2)
        )
        axis.set_title(f"{patch['probability']:.2f}", fontsize=TICK_SIZE, pad=2)
    for row, cluster in zip(axes, clusters, strict=True):
        row[0].set_ylabel(f"cluster {cluster}", fontsize=LABEL_SIZE)
    figure.suptitle(title, fontsize=TITLE_SIZE, parse_math=False)
    return figure


def _colors(clusters: NDArray) -> NDArray:
    """Colors far apart for clusters whose numbers follow each other in reading order."""
    number = pd.factorize(clusters.ravel())[0].reshape(clusters.shape)
    return mpl.colormaps[VALUE_COLORS](number * _GOLDEN % 1.0)[..., :3]


def _number(axis: Axes, clusters: NDArray) -> None:
    """Write the clusters' numbers on their cells, and draw lines where the cluster changes."""
    size = min(9.0, 100 / max(clusters.shape))
    light = _colors(clusters) @ np.array([0.299, 0.587, 0.114])
    for row, column in np.ndindex(*clusters.shape):
        color = "black" if light[row, column] > 0.5 else "white"
        text = str(clusters[row, column])
        axis.text(column, row, text, ha="center", va="center", fontsize=size, color=color)
        if column + 1 < clusters.shape[1] and clusters[row, column] != clusters[row, column + 1]:
            axis.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], color="white", linewidth=1)
        if row + 1 < clusters.shape[0] and clusters[row, column] != clusters[row + 1, column]:
            axis.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, color="white", linewidth=1)


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


@dataclass
class PrototypeStudy(StudySettings):
    """
    An atlas of the prototypes of AFiRe networks as a study of the report.

    Args:
        networks: AFiRe networks by the names that the report shows. The study does not use the encoders that it is
            called with.
        num_clusters: clusters whose patches are shown: those that dominate most positions.
        num_patches: patches of each.
        context: patches around each, on every side.
        batch_size: images in a pass.
        progress: whether to show progress bars.

    Raises:
        ValueError: without a network, or for one that contrasts features.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> result = PrototypeStudy({"afire": network}, progress=False)({}, StudyImages(torch.rand(2, 1, 32, 32)))
        >>> float(result.table.loc["afire", "prototype_entropy"]) > 0.999  # not trained: all are uniform
        True
    """

    networks: Mapping[str, AFiRe]
    num_clusters: int = 8
    num_patches: int = 8
    context: int = 1

    def __post_init__(self) -> None:
        if not self.networks:
            raise ValueError(
                "no network with prototypes: leave this study out, or give an AFiRe network"
            )
        for name, network in self.networks.items():
            if network.contrast_space != "probabilities":
                raise ValueError(
                    f"{name!r} contrasts features, it has no clusters: leave it out of this study"
                )

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        summaries, details = {}, {}
        figures: dict[str, Figure] = {}
        mean = images.image.mean(0)
        for name, network in self.networks.items():
            prototypes, encoder = network.bank.prototypes, network.encoder
            shares = (
                None if images.masks is None else organ_shares(images.masks, encoder.patch_size)
            )
            atlas = prototype_atlas(prototypes, encoder.grid_size)
            summaries[name] = atlas_scores(prototypes, shares)
            details[f"Dominating cluster of each position, {name}"] = atlas
            figures[_ATLAS_CAPTION.format(name)] = atlas_figure(mean, atlas, name)
            clusters = largest_clusters(prototypes, self.num_clusters)
            patches = cluster_patches(
                network, images.image, clusters, self.num_patches, **self.encoding
            )
            windows = patch_windows(images.image, patches, encoder.patch_size, self.context)
            figures[_PATCHES_CAPTION.format(name)] = cluster_figure(
                windows, patches, self.context, name
            )
        table = pd.DataFrame.from_dict(summaries, orient="index")
        return StudyResult("Atlas of prototypes", _QUESTION, table, figures, details)
