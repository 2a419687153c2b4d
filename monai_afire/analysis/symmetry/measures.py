# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Symmetry of landmarks: whether the most similar one is the mirror partner (ACE, appendix B.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from monai_afire.analysis.features.similarity import SAME_COSINE, l2_normalize

__all__ = ["landmark_symmetry", "similarity_matrix", "symmetric_pairs", "symmetry_summary"]


def symmetric_pairs(names: Sequence[str]) -> list[tuple[int, int]]:
    """
    Which names differ in "left" and "right" alone.

    Args:
        names: e.g. of landmarks; the words count in any case, between underscores, hyphens, dots or spaces.

    Returns:
        For each pair the index of the right and of the left one; what has no partner is in none.

    Example:
        >>> symmetric_pairs(["hilum_right", "carina", "Hilum_left", "right_heart_border"])
        [(0, 2)]
    """
    words = [tuple(re.split(r"[\s_.\-]+", name.lower())) for name in names]
    index = {parts: number for number, parts in reversed(list(enumerate(words)))}
    pairs = []
    for number, parts in enumerate(words):
        other = tuple("left" if part == "right" else part for part in parts)
        if other != parts and other in index:
            pairs.append((number, index[other]))
    return pairs


@torch.no_grad()
def landmark_symmetry(features: torch.Tensor, mirrored: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> pd.DataFrame:
    r"""
    Whether a landmark's most similar other landmark of the same image is its mirror partner.

    With the features :math:`f_k` of the landmarks of an image and :math:`\tilde{f}_k` of the same ones in the mirrored
    image, landmark i of the pair (i, j) is compared with each other landmark of the image, twice:

    .. math:: \cos(f_i, f_k), \qquad \cos(f_i, \tilde{f}_k), \qquad k \ne i

    It is right when the largest is that of k = j. The first asks whether both sides look alike, the second, ACE's,
    whether one looks like the other in a mirror. The share that is right by chance is one over the number of k.

    Args:
        features: ``(M, P, D)``, e.g. of :func:`monai_afire.analysis.landmark_features`; NaN where a landmark is not
            known.
        mirrored: the same of the mirrored windows.
        pairs: indices of the partners, e.g. of :func:`symmetric_pairs`.

    Returns:
        A row per image, landmark of a pair known with its partner, and comparison: "image", "landmark", "partner",
        "mirrored" (bool), "found" (the most similar landmark, the first of equals), "correct" (1 or 0; of n equally
        similar ones with the partner among them 1 / n), "chance", "partner_cosine" and "others_cosine" (mean over all
        but the partner; NaN without any).

    Raises:
        ValueError: for shapes that do not fit, or pairs of landmarks that do not exist or are the same.

    Example:
        >>> features = torch.tensor([[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]])
        >>> table = landmark_symmetry(features, features, [(0, 1)])
        >>> table["correct"].tolist(), table["chance"].tolist()
        ([1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5])
    """
    _check(features, mirrored, pairs)
    points = l2_normalize(features)
    tables = []
    for is_mirrored, others in ((False, points), (True, l2_normalize(mirrored))):
        similarity = torch.einsum("mid,mkd->mik", points, others).cpu().numpy().astype(np.float64)
        similarity[:, np.arange(similarity.shape[1]), np.arange(similarity.shape[1])] = np.nan
        for landmark, partner in [*pairs, *[pair[::-1] for pair in pairs]]:
            tables.append(_rows(similarity[:, landmark], landmark, partner).assign(mirrored=is_mirrored))
    columns = ["image", "landmark", "partner", "mirrored", "found", "correct", "chance"]
    return pd.concat(tables, ignore_index=True)[[*columns, "partner_cosine", "others_cosine"]]


def symmetry_summary(table: pd.DataFrame) -> dict[str, float | int]:
    """
    The metrics of a table of symmetry.

    Args:
        table: of :func:`landmark_symmetry`.

    Returns:
        "partner_found" and "partner_found_mirrored", shares in [0, 1], "chance", and for each comparison
        "cosine_margin" (and "..._mirrored"), how much more similar the partner is than the others on average;
        "num_landmarks", how many were compared.

    Example:
        >>> features = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
        >>> summary = symmetry_summary(landmark_symmetry(features, features, [(0, 1)]))
        >>> summary["partner_found"], summary["cosine_margin"], summary["num_landmarks"]
        (1.0, 1.0, 2)
    """
    plain, mirror = table[~table["mirrored"]], table[table["mirrored"]]
    return {
        "partner_found": float(plain["correct"].mean()),
        "partner_found_mirrored": float(mirror["correct"].mean()),
        "chance": float(plain["chance"].mean()),
        "cosine_margin": float((plain["partner_cosine"] - plain["others_cosine"]).mean()),
        "cosine_margin_mirrored": float((mirror["partner_cosine"] - mirror["others_cosine"]).mean()),
        "num_landmarks": len(plain),
    }


@torch.no_grad()
def similarity_matrix(features: torch.Tensor, others: torch.Tensor) -> NDArray[np.float64]:
    """
    Mean cosine of each landmark with each of the same image, over the images that know both.

    Args:
        features: ``(M, P, D)``; NaN where a landmark is not known.
        others: the same, e.g. of the mirrored image.

    Returns:
        ``(P, P)`` in [-1, 1]; NaN where no image knows both.

    Example:
        >>> similarity_matrix(torch.eye(2)[None], torch.eye(2)[None])
        array([[1., 0.], [0., 1.]])
    """
    similarity = torch.einsum("mid,mkd->mik", l2_normalize(features), l2_normalize(others))
    return similarity.nanmean(0).cpu().numpy()


def _rows(similarity: NDArray, landmark: int, partner: int) -> pd.DataFrame:
    """Rows of one landmark from its similarity (M, P) with all; NaN is no candidate."""
    images = np.nonzero(~np.isnan(similarity[:, partner]))[0]
    known = similarity[images]
    candidates = (~np.isnan(known)).sum(1)
    largest = np.nan_to_num(known, nan=-np.inf).max(1, initial=-np.inf)
    best = known >= largest[:, None] - SAME_COSINE
    of_partner = known[:, partner]
    with np.errstate(invalid="ignore"):
        others = (np.nansum(known, axis=1) - of_partner) / (candidates - 1)
    return pd.DataFrame(
        {
            "image": images,
            "landmark": landmark,
            "partner": partner,
            "found": best.argmax(1) if len(images) else np.zeros(0, dtype=np.int64),
            "correct": np.where(best[:, partner], 1 / best.sum(1).clip(1), 0.0),
            "chance": 1 / candidates,
            "partner_cosine": of_partner,
            "others_cosine": others,
        }
    )


def _check(features: torch.Tensor, mirrored: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    if features.ndim != 3 or features.shape != mirrored.shape:
        raise ValueError(
            f"expected features (M, P, D) of the images and of the mirrored images, got {tuple(features.shape)} and "
            f"{tuple(mirrored.shape)}"
        )
    number = features.shape[1]
    wrong = [pair for pair in pairs if pair[0] == pair[1] or not all(0 <= index < number for index in pair)]
    if wrong or not pairs:
        raise ValueError(
            f"pairs must be of two different of the {number} landmarks, at least one, got {wrong or list(pairs)}"
        )
