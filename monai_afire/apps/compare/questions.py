# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What all encoders and baselines are asked: to classify from few labels, and to tell abnormal images from normal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from monai_afire.apps.compare.cohort import CHOOSE, EVALUATE, LEARN, Cohort
from monai_afire.data.datalist.subsets import label_subset
from monai_afire.detection import AnomalyDetector
from monai_afire.metrics import fit_linear_probe, knn_predict
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.transforms.controlled_lesions import controlled_lesion_items

PIXELS, CONTROLS = "pixels", ("darkness", "sharpness", "view alone")
PROBE, NEIGHBORS = "Linear probe", "Nearest neighbors"
DETECTION, NODULES = "Detection", "Painted nodules"
_FRACTIONS, _DRAWS = (0.01, 0.1, 1.0), 3  # of the patients to learn from
_LEAST_LEARNED = 10  # patients: from fewer, nothing is learned but chance
_SIZES, _CONTRASTS = (0.1, 0.2), (0.2, 0.4)  # of nodules
_OWN_NORMALS = "own normal images"
_STRONGEST = 0.03  # share of an image that tells of a nodule
_MAX_NORMALS, _BATCH = 1024, 64
_NORMAL_COMPONENTS = 32  # that restore a normal image

Answer = tuple[str, str, str, NDArray]
"""Question, setting, name of an encoder or a baseline, and its scores ``(draws, M, K)`` of the evaluated images."""


class StoredTokens(RadiographEncoder):
    """An encoder of images that are tokens already, for a detector."""

    def __init__(self, grid: tuple[int, ...], width: int) -> None:
        super().__init__(width, grid, (1, 1), hidden_size=width, mean=0.0, std=1.0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """``(B, L, D)`` to the same."""
        return tokens


def truth(cohort: Cohort, question: str) -> tuple[NDArray, NDArray]:
    """Labels ``(M, K)`` and patients ``(M,)`` of the images that a question is asked of."""
    patients, evaluated = cohort.table["patient"].to_numpy(), cohort.rows(EVALUATE)
    if question == NODULES:
        painted = cohort.painted_rows()
        return np.repeat([[0.0], [1.0]], len(painted), axis=0), patients[np.tile(painted, 2)]
    labels = cohort.table[["abnormal"]].to_numpy() if question == DETECTION else cohort.labels
    return labels[evaluated], patients[evaluated]


def classification(cohort: Cohort, name: str, features: NDArray) -> Iterator[Answer]:
    """Linear probe and nearest neighbors on features ``(N, D)`` with 1, 10 and 100 % of the labels, if they suffice."""
    choosing, evaluated, labels = cohort.rows(CHOOSE), cohort.rows(EVALUATE), cohort.labels
    learning = [{**cohort.items[row], "row": row} for row in cohort.rows(LEARN)]
    for fraction in asked_fractions(cohort):
        probed, voted = [], []
        for seed in range(_DRAWS if fraction < 1 else 1):
            # drawn as the bundles draw them
            rows = [item["row"] for item in label_subset(learning, fraction, seed)]
            probe = fit_linear_probe(
                features[rows], labels[rows], features[choosing], labels[choosing]
            )
            # else all directions are nearly the same
            centered = torch.from_numpy(features - features[rows].mean(0))
            votes = knn_predict(centered[rows], torch.from_numpy(labels[rows]), centered[evaluated])
            probed.append(probe.logits(features[evaluated]))
            voted.append(votes.nan_to_num(0.0).numpy())
        setting = _setting(fraction)
        yield PROBE, setting, name, np.stack(probed)
        yield NEIGHBORS, setting, name, np.stack(voted)


def asked_fractions(cohort: Cohort) -> list[float]:
    """Shares of the patients to learn from that are patients enough, all of them in any case."""
    patients = cohort.table["patient"].iloc[cohort.rows(LEARN)].nunique()
    return [each for each in _FRACTIONS if each == 1 or each * patients >= _LEAST_LEARNED]


def unasked_settings(cohort: Cohort) -> list[str]:
    """Settings with too few patients to learn from, for the page."""
    asked = asked_fractions(cohort)
    return [_setting(each) for each in _FRACTIONS if each not in asked]


def _setting(fraction: float) -> str:
    return f"{100 * fraction:g} % of the labels"


def nodule_items(cohort: Cohort) -> list[dict[str, Any]]:
    """Items of normal evaluated images with a nodule of each size and contrast, image by image."""
    items = [{"image": cohort.items[row]["image"]} for row in cohort.painted_rows()]
    return [
        item
        for item in controlled_lesion_items(items, ["SoftNodule"], _CONTRASTS, _SIZES)
        if item["lesion"]
    ]


def detection(
    cohort: Cohort, name: str, grid: tuple[int, ...], tokens: NDArray, painted: NDArray
) -> Iterator[Answer]:
    """Evaluated images, and nodules, by how unlike normal images to learn from they are."""
    normal = cohort.rows(LEARN, CHOOSE, abnormal=0)
    normal = normal[:: -(-len(normal) // _MAX_NORMALS)]
    if name == PIXELS:
        pixels = np.concatenate([tokens, painted])[:, 0].astype(np.float32)
        spread, focal = (pca_errors(pixels[normal], pixels, share) for share in (1.0, _STRONGEST))
    else:
        spread, focal = _detector_scores(grid, tokens, painted, normal)
    yield DETECTION, _OWN_NORMALS, name, spread[None, cohort.rows(EVALUATE), None]
    originals, copies = focal[cohort.painted_rows()], focal[len(tokens) :]
    kinds = list(product(_SIZES, _CONTRASTS))
    for number, (size, contrast) in enumerate(kinds):
        scores = np.concatenate([originals, copies[number :: len(kinds)]])
        yield NODULES, f"size {size:g}, contrast {contrast:g}", name, scores[None, :, None]


def _detector_scores(
    grid: tuple[int, ...], tokens: NDArray, painted: NDArray, normal: NDArray
) -> tuple[NDArray, NDArray]:
    """A detector's scores "fused" and "focal" of images and painted images, from their tokens ``(N, L, D)``."""
    encoded = StoredTokens(grid, tokens.shape[-1])
    detector = AnomalyDetector(encoded, k_fraction=_STRONGEST).eval()
    detector.fit(torch.from_numpy(tokens[normal]).float().split(_BATCH))
    batches = [
        batch for part in (tokens, painted) for batch in torch.from_numpy(part).split(_BATCH)
    ]
    scores = torch.cat([detector(batch.float())["scores"] for batch in batches]).numpy()
    fused, focal = (detector.score_names.index(kind) for kind in ("fused", "focal"))
    return scores[:, fused], scores[:, focal]


def pca_errors(normal: NDArray, scored: NDArray, strongest: float = 1.0) -> NDArray:
    """
    Squared error ``(M,)`` of rows of pixels that the principal components of normal ones restore: a simple detector.

    ``strongest`` is the share of the pixels that are averaged, those with the largest error.
    """
    number = min(_NORMAL_COMPONENTS, len(normal) - 1)
    components = PCA(number, svd_solver="randomized", random_state=0).fit(normal)
    errors = (components.inverse_transform(components.transform(scored)) - scored) ** 2
    kept = max(1, round(strongest * errors.shape[1]))
    return np.partition(errors, -kept, axis=1)[:, -kept:].mean(1)


def controls(cohort: Cohort, pictures: NDArray) -> Iterator[Answer]:
    """What exposure (pictures ``(N, H, W)``) or view alone tell, turned as the images to learn from say."""
    table = cohort.table
    known = table["abnormal"].notna() & (table["role"] != EVALUATE)
    rates = table[known].groupby("view")["abnormal"].mean()
    view = table["view"].map(rates).fillna(rates.mean()).to_numpy()
    exposure = -pictures.mean((1, 2)), np.abs(np.diff(pictures)).mean((1, 2))
    for name, scores in zip(CONTROLS, (*exposure, view), strict=True):
        sign = -1 if roc_auc(table["abnormal"][known], scores[known]) < 0.5 else 1
        yield DETECTION, _OWN_NORMALS, name, sign * scores[None, cohort.rows(EVALUATE), None]
