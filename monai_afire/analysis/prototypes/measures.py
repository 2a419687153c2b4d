# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The atlas of AFiRe's prototypes: the clusters of positions, what they tell of organs, and patches of clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.metrics.pretraining import prototype_entropy, prototype_information
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.utils.eval_mode import eval_mode

__all__ = [
    "atlas_scores",
    "cluster_patches",
    "largest_clusters",
    "organ_information",
    "organ_shares",
    "patch_windows",
    "prototype_atlas",
]

_PERMUTATIONS = 20


def prototype_atlas(prototypes: torch.Tensor, grid_size: Sequence[int]) -> pd.DataFrame:
    """
    What each position's prototype says.

    Args:
        prototypes: ``(L, K)`` probability vectors, ``network.bank.prototypes``.
        grid_size: positions along each axis; their product is L.

    Returns:
        A row per position, row-major: "row", "column" (in 3-D "slice" too), the dominating "cluster" with its
        "probability", and the "entropy" of the prototype as a share of the largest possible, log K.

    Raises:
        ValueError: for vectors that are no probabilities (AFiRe's ``contrast_space="features"``), or another grid.

    Example:
        >>> prototype_atlas(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), (1, 2)).to_dict("list")
        {'row': [0, 0], 'column': [0, 1], 'cluster': [0, 0], 'probability': [1.0, 0.5], 'entropy': [0.0, 1.0]}
    """
    rows = _checked(prototypes)
    if len(rows) != math.prod(grid_size):
        raise ValueError(f"{len(rows)} prototypes do not fill a grid of {tuple(grid_size)} positions")
    axes = torch.unravel_index(torch.arange(len(rows)), tuple(grid_size))
    probability, cluster = rows.max(1)
    columns = dict(zip(("row", "column", "slice"), (axis.numpy() for axis in axes), strict=False))
    entropy = torch.stack([prototype_entropy(row[None]) for row in rows])
    named = {"cluster": cluster, "probability": probability, "entropy": entropy}
    return pd.DataFrame({**columns, **{name: values.numpy() for name, values in named.items()}})


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
        permuted = [rows[torch.randperm(len(rows), generator=generator)] for _ in range(_PERMUTATIONS)]
        scores["organ_information"] = organ_information(rows, shares)
        scores["organ_information_chance"] = sum(organ_information(p, shares) for p in permuted) / _PERMUTATIONS
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
    What the cluster tells about the organ: their mutual information as a share of the organ's entropy.

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
        raise ValueError(f"{len(prototypes)} prototypes, but shares of {len(shares)} positions: give those of one grid")
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
    ranked = sorted(range(rows.shape[1]), key=lambda k: (-int(dominated[k]), -float(rows[:, k].sum()), k))
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
        num_patches: how many of each cluster; an image gives at most one to each, or neighbours would fill the list.
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
    images = convert_to_tensor(images, track_meta=False)
    network.encoder.check_images(images)
    if network.contrast_space != "probabilities":
        raise ValueError("this network contrasts features, it has no clusters: leave the atlas out")
    if any(not 0 <= cluster < network.bank.prototypes.shape[1] for cluster in clusters):
        raise ValueError(f"clusters are 0 to {network.bank.prototypes.shape[1] - 1}, got {list(clusters)}")
    best, places = [], []
    with (
        tqdm(total=len(images), disable=not progress, unit="image", desc="atlas") as bar,
        eval_mode(network),
        torch.no_grad(),
    ):
        for batch in images.split(batch_size):
            q = network.token_probabilities(network.encoder(batch.to(network.encoder.mean)))
            probability, place = q[..., list(clusters)].max(1)
            best.append(probability.cpu())
            places.append(place.cpu())
            bar.update(len(batch))
    probability, place = torch.cat(best), torch.cat(places)
    top, image = probability.topk(min(num_patches, len(images)), dim=0)
    number = len(top)
    return pd.DataFrame(
        {
            "cluster": [cluster for cluster in clusters for _ in range(number)],
            "rank": list(range(number)) * len(clusters),
            "image": image.T.flatten().numpy(),
            "position": place.gather(0, image).T.flatten().numpy(),
            "probability": top.T.flatten().numpy(),
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
    widths = [context * p for p in reversed(patch_size) for _ in range(2)]  # F.pad begins with the last axis
    windows = plain.new_empty(len(patches), plain.shape[1], *((2 * context + 1) * p for p in patch_size))
    for number, (image, position) in enumerate(zip(patches["image"], patches["position"], strict=True)):
        place = torch.unravel_index(torch.tensor(int(position)), tuple(grid))
        padded = F.pad(plain[int(image)][None], widths, mode="replicate") if context else plain[int(image)][None]
        first = zip(place, patch_size, strict=True)
        around = [slice(int(index) * p, (int(index) + 2 * context + 1) * p) for index, p in first]
        corner: tuple[slice, ...] = (slice(None), *around)
        windows[number] = padded[0][corner]
    return windows


def _checked(prototypes: torch.Tensor) -> torch.Tensor:
    rows = convert_to_tensor(prototypes, track_meta=False).detach().float().cpu()
    if rows.ndim != 2 or (rows < 0).any() or not torch.allclose(rows.sum(1), torch.ones(len(rows)), atol=1e-3):
        raise ValueError(
            f"prototypes {tuple(rows.shape)} are no probability vectors (L, K): a network that contrasts features has "
            "no clusters, leave the atlas out"
        )
    return rows
