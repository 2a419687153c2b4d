# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Left and right: is a landmark's most similar landmark its partner on the other side of the body?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd
import torch

from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.studies.features import SAME_COSINE, l2_normalize, landmark_features
from monai_afire.apps.studies.figures import SHARE_LIMITS, dot_plot
from monai_afire.apps.studies.grouping import tsne_map
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.study import (
    NothingToCompareError,
    StudyResult,
    mean_by,
    metrics_table,
)
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels

Pairs = Sequence[Sequence[int]]

_QUESTION = (
    "Is a landmark's most similar other landmark of the same image its partner on the other side of the body? Features "
    "are mean tokens of windows around the landmarks, so their positions are unknown. partner_found compares the "
    "windows as they are, partner_found_mirrored each window with the mirrored others, as ACE does; chance is one over "
    "the number of candidates. cosine_margin: how much more similar the partner is than the others on average."
)
_MAP_CAPTION = "t-SNE of the right landmarks (full) and of the mirrored left ones (hollow), a color for each pair"
_TITLES = {True: "Partner found in the mirror", False: "Partner found without a mirror"}


def symmetry_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """
    Left and right of the body (ACE, appendix B.1, Fig. 11).

    Partners are landmarks whose names differ in "left" and "right" alone; without any the study is left out.
    """
    places, names = images.detailed_landmarks(), list(images.known("landmark_names"))
    pairs = symmetric_pairs(names)
    if not pairs:
        raise NothingToCompareError(f"no two of {names} differ in 'left' and 'right' alone")
    tables, maps, groups = {}, {}, {}
    for name, encoder in with_raw_pixels(encoders).items():
        features, mirrored = (
            landmark_features(
                encoder, images.detailed, places, mirrored=flip, batch_size=batch_size
            )
            for flip in (False, True)
        )
        tables[name] = landmark_symmetry(features, mirrored, pairs)
        sides, groups[name] = _right_and_mirrored_left(features, mirrored, names, pairs)
        maps[name] = tsne_map(sides, seed)
    figures = {_MAP_CAPTION: map_figure(maps, groups, paired=True)}
    paired = [index for pair in pairs for index in pair]
    for flag, title in _TITLES.items():
        own = {name: table[table["mirrored"] == flag] for name, table in tables.items()}
        shares = mean_by(own, "landmark", "correct", names).iloc[paired]
        figures[title] = dot_plot(shares, title, "share of images", SHARE_LIMITS)
    table = metrics_table({name: symmetry_summary(own) for name, own in tables.items()})
    return StudyResult("Left and right", _QUESTION, table, figures)


def symmetric_pairs(names: Sequence[str]) -> list[tuple[int, int]]:
    """Index of the right and of the left one of names that differ in these words alone, in any case."""
    words = [re.split(r"[\s_.\-]+", name.lower()) for name in names]
    mirrored = [["left" if word == "right" else word for word in own] for own in words]
    return [
        (number, words.index(other))
        for number, (own, other) in enumerate(zip(words, mirrored, strict=True))
        if other != own and other in words
    ]


@torch.no_grad()
def landmark_symmetry(features: torch.Tensor, mirrored: torch.Tensor, pairs: Pairs) -> pd.DataFrame:
    r"""
    Whether a landmark's most similar other landmark of the same image is its mirror partner.

    With the features :math:`f_k` of the landmarks of an image and :math:`\tilde{f}_k` of the same ones in the mirrored
    image, both ``(M, P, D)`` and NaN where a landmark is not known, landmark i of the pair (i, j) is compared with each
    other landmark of the image, twice:

    .. math:: \cos(f_i, f_k), \qquad \cos(f_i, \tilde{f}_k), \qquad k \ne i

    It is right when the largest is that of k = j. The first asks whether both sides look alike, the second, ACE's,
    whether one looks like the other in a mirror. The share that is right by chance is one over the number of k.

    Returns:
        A row per image, landmark of a pair known with its partner, and comparison: "image", "landmark", "partner",
        "mirrored" (bool), "found" (the most similar landmark, the first of equals), "correct" (1 or 0; of n equally
        similar ones with the partner among them 1 / n), "chance", "partner_cosine" and "others_cosine" (mean over all
        but the partner; NaN without any).
    """
    tables = []
    for is_mirrored, others in ((False, features), (True, mirrored)):
        cosine = l2_normalize(features) @ l2_normalize(others).transpose(1, 2)
        cosine.diagonal(dim1=1, dim2=2).fill_(torch.nan)  # no candidate
        for landmark, partner in [*pairs, *(tuple(reversed(pair)) for pair in pairs)]:
            image = cosine[:, landmark, partner].isfinite().nonzero()[:, 0]
            own = cosine[image, landmark]
            best = own >= own.nan_to_num(-torch.inf).amax(1, keepdim=True) - SAME_COSINE
            candidates, of_partner = own.isfinite().sum(1).double(), own[:, partner]
            columns = {
                "image": image,
                "landmark": landmark,
                "partner": partner,
                "mirrored": is_mirrored,
                "found": best.int().argmax(1),
                "correct": best[:, partner] / best.sum(1).double(),
                "chance": 1 / candidates,
                "partner_cosine": of_partner,
                "others_cosine": (own.nansum(1) - of_partner) / (candidates - 1),
            }
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def symmetry_summary(table: pd.DataFrame) -> dict[str, float]:
    """The metrics of a table of :func:`landmark_symmetry`; a margin is the partner's cosine less the others' mean."""
    margins = table.assign(margin=table["partner_cosine"] - table["others_cosine"])
    plain, mirror = margins[~table["mirrored"]], margins[table["mirrored"]]
    return {
        "partner_found": float(plain["correct"].mean()),
        "partner_found_mirrored": float(mirror["correct"].mean()),
        "chance": float(plain["chance"].mean()),
        "cosine_margin": float(plain["margin"].mean()),
        "cosine_margin_mirrored": float(mirror["margin"].mean()),
        "num_landmarks": len(plain),
    }


def _right_and_mirrored_left(
    features: torch.Tensor, mirrored: torch.Tensor, names: Sequence[str], pairs: Pairs
) -> tuple[torch.Tensor, list[str]]:
    """What should lie together in a map: one side as it is, the other one in the mirror; unknown ones left out."""
    sides: dict[str, torch.Tensor] = {}
    for right, left in pairs:
        sides |= {names[right]: features[:, right], f"{names[left]} mirrored": mirrored[:, left]}
    known = {name: side[side.isfinite().all(-1)] for name, side in sides.items()}
    groups = [name for name, side in known.items() for _ in side]
    return torch.cat([*known.values()]), groups
