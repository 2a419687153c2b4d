# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Left and right: is a landmark's most similar landmark its partner on the other side of the body?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.studies.dot_plot import dot_plot
from monai_afire.apps.studies.features.similarity import SAME_COSINE, l2_normalize
from monai_afire.apps.studies.features.tokens import WINDOW, landmark_features
from monai_afire.apps.studies.grouping import tsne_map
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.apps.studies.study import StudyResult, StudySettings, mean_by
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels


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
    mirrored = [tuple("left" if part == "right" else part for part in parts) for parts in words]
    pairs = enumerate(zip(words, mirrored, strict=True))
    return [
        (number, index[other])
        for number, (parts, other) in pairs
        if other != parts and other in index
    ]


@torch.no_grad()
def landmark_symmetry(
    features: torch.Tensor, mirrored: torch.Tensor, pairs: Sequence[tuple[int, int]]
) -> pd.DataFrame:
    r"""
    Whether a landmark's most similar other landmark of the same image is its mirror partner.

    With the features :math:`f_k` of the landmarks of an image and :math:`\tilde{f}_k` of the same ones in the mirrored
    image, landmark i of the pair (i, j) is compared with each other landmark of the image, twice:

    .. math:: \cos(f_i, f_k), \qquad \cos(f_i, \tilde{f}_k), \qquad k \ne i

    It is right when the largest is that of k = j. The first asks whether both sides look alike, the second, ACE's,
    whether one looks like the other in a mirror. The share that is right by chance is one over the number of k.

    Args:
        features: ``(M, P, D)``, e.g. of :func:`monai_afire.apps.studies.landmark_features`; NaN where a landmark is not
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
    if features.ndim != 3 or features.shape != mirrored.shape:
        raise ValueError(
            f"expected features (M, P, D) twice, got {tuple(features.shape)} and {tuple(mirrored.shape)}"
        )
    landmarks = range(features.shape[1])
    wrong = [pair for pair in pairs if pair[0] == pair[1] or not set(pair) <= set(landmarks)]
    if wrong or not pairs:
        raise ValueError(
            f"give pairs of two different of {len(landmarks)} landmarks, got {wrong or list(pairs)}"
        )
    points, tables = l2_normalize(features), []
    for is_mirrored, others in ((False, points), (True, l2_normalize(mirrored))):
        similarity = torch.einsum("mid,mkd->mik", points, others).cpu().numpy().astype(np.float64)
        similarity[:, landmarks, landmarks] = np.nan
        for landmark, partner in [*pairs, *[pair[::-1] for pair in pairs]]:
            tables.append(
                _rows(similarity[:, landmark], landmark, partner).assign(mirrored=is_mirrored)
            )
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
            "found": best.argmax(1),
            "correct": np.where(best[:, partner], 1 / best.sum(1).clip(1), 0.0),
            "chance": 1 / candidates,
            "partner_cosine": of_partner,
            "others_cosine": others,
        }
    )


def partner_figure(
    tables: Mapping[str, pd.DataFrame],
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    title: str,
) -> Figure:
    """
    How often the most similar other landmark is the partner, for each landmark and encoder.

    Args:
        tables: of :func:`monai_afire.apps.studies.landmark_symmetry`, by the encoders' names.
        names: of the landmarks.
        pairs: indices of the partners.
        title: of the figure.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder or a pair.

    Example:
        >>> table = pd.DataFrame({"landmark": [0, 1], "correct": [1.0, 0.0]})
        >>> len(partner_figure({"mine": table}, ["hilum_right", "hilum_left"], [(0, 1)], "Partners").axes)
        1
    """
    paired = [index for pair in pairs for index in pair]
    values = mean_by(tables, "landmark", "correct", names).iloc[paired]
    return dot_plot(values, title, "share of images", limits=(-0.03, 1.03))


_QUESTION = (
    "Is a landmark's most similar other landmark of the same image its partner on the other side of the body? Features "
    "are mean tokens of windows around the landmarks, so their positions are unknown. partner_found compares the "
    "windows as they are, partner_found_mirrored each window with the mirrored others, as ACE does; chance is one over "
    "the number of candidates. cosine_margin: how much more similar the partner is than the others on average."
)
_MAP_CAPTION = "t-SNE of the right landmarks (full) and of the mirrored left ones (hollow), a color for each pair"


@dataclass
class SymmetryStudy(StudySettings):
    """
    Left and right of the body (ACE, appendix B.1, Fig. 11) as a study of the report.

    Args:
        pairs: indices of landmarks that are partners, the right one first; None for those whose names differ in "left"
            and "right" alone.
        window: side of the windows around landmarks as a fraction of the image's; ACE takes 448 of 1024 pixels.
        max_images: the most images to use; a seeded sample of more.
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

    needs = ("landmarks", "landmark_names")
    pairs: Sequence[tuple[int, int]] | None = None
    window: float = WINDOW
    max_images: int = 100

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """
        Make the study, see :class:`monai_afire.apps.studies.Study`.

        Raises:
            ValueError: when no landmark has a partner.
        """
        sampled = images.sample(self.max_images, self.seed)
        assert sampled.landmarks is not None
        assert sampled.landmark_names is not None
        names = list(sampled.landmark_names)
        pairs = self._partners(names)
        tables, maps, groups = {}, {}, {}
        for name, encoder in with_raw_pixels(encoders).items():
            features = self._features(encoder, sampled, flip=False)
            mirrored = self._features(encoder, sampled, flip=True)
            tables[name] = landmark_symmetry(features, mirrored, pairs)
            sides, groups[name] = _right_and_mirrored_left(features, mirrored, names, pairs)
            maps[name] = tsne_map(sides, self.seed)
        in_mirror = {name: table[table["mirrored"]] for name, table in tables.items()}
        as_they_are = {name: table[~table["mirrored"]] for name, table in tables.items()}
        figures = {_MAP_CAPTION: map_figure(maps, groups, paired=True)}
        for title, own in (
            ("Partner found in the mirror", in_mirror),
            ("Partner found without a mirror", as_they_are),
        ):
            figures[title] = partner_figure(own, names, pairs, title)
        metrics = {name: symmetry_summary(table) for name, table in tables.items()}
        return StudyResult(
            "Left and right", _QUESTION, pd.DataFrame.from_dict(metrics, orient="index"), figures
        )

    def _partners(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Indices of the landmarks that are partners."""
        if self.pairs is None:
            pairs = symmetric_pairs(names)
        else:
            pairs = [(int(right), int(left)) for right, left in self.pairs]
        if not pairs:
            raise ValueError(
                f"no two of the landmarks {names} differ in 'left' and 'right' alone: give pairs"
            )
        return pairs

    def _features(
        self, encoder: RadiographEncoder, images: StudyImages, flip: bool
    ) -> torch.Tensor:
        """Features of the windows around the landmarks of native images."""
        return landmark_features(
            encoder,
            images.detailed,
            images.detailed_landmarks(),
            self.window,
            flip,
            **self.encoding,
        )


def _right_and_mirrored_left(
    features: torch.Tensor,
    mirrored: torch.Tensor,
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
) -> tuple[torch.Tensor, list[str]]:
    """What should lie together in a map: one side as it is, the other one in the mirror; unknown ones left out."""
    sides, groups = [], []
    for right, left in pairs:
        for side, index, label in (
            (features, right, names[right]),
            (mirrored, left, f"{names[left]} mirrored"),
        ):
            known = side[:, index][side[:, index].isfinite().all(-1)]
            sides.append(known)
            groups += [label] * len(known)
    return torch.cat(sides), groups
