# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Zero-shot landmark correspondence, its errors, and the baseline that copies coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from monai.utils import convert_to_tensor
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.analysis.features.dense import FeatureMaps
from monai_afire.analysis.images.study_images import reference_indices
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = [
    "ACROSS",
    "checked_landmarks",
    "correspondence_summary",
    "correspondence_table",
    "label_pairs",
    "landmark_correspondence",
    "same_place_correspondence",
]

ACROSS = ("patients", "perturbations", "patients_and_perturbations")
"""What a pair of images may differ in, see :func:`label_pairs`."""

_AXES = ("row", "column", "slice")
_MAX_SIMILARITIES = 2**24  # so many similarities are held at a time, 64 MiB of float32


def landmark_correspondence(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor | NDArray,
    reference: Sequence[int] | int = 5,
    stride: Sequence[int] | int | None = None,
    progress: bool = True,
    remove_position: bool = False,
    refine: bool = False,
    batch_size: int = 32,
) -> pd.DataFrame:
    r"""
    Find the landmarks of reference images in all other images by the most similar feature (PEAC, Fig. 5).

    The feature :math:`f(x)` of landmark x is interpolated linearly between the cells of
    :func:`monai_afire.analysis.dense_features`. Its place in another image, of features :math:`g_j` at :math:`c_j`, is

    .. math:: \hat{x} = c_{j^*}, \qquad j^* = \arg\max_j \frac{f(x) \cdot g_j}{\lVert f(x) \rVert \lVert g_j \rVert}

    and its error the Euclidean distance from that image's own landmark. Nothing is trained. An encoder that knows
    nothing but positions reaches what copying the coordinates does, :func:`same_place_correspondence`: any method has
    to beat that. ``remove_position=True`` takes this way out: the mean feature map of all images is subtracted from
    every image's, which leaves nothing of a feature that depends on the position alone; such a feature counts as 0. It
    wants many images: of two, the one is the negative of the other afterwards. ACE's Fig. 7 encodes windows instead,
    see :func:`monai_afire.analysis.window_correspondence`.

    Images are encoded in chunks, the references twice; with ``remove_position`` all of them twice. Memory grows with
    the references' landmarks and ``batch_size``, not with the number of images.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size; at least two.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; the centre of the first pixel is 0. NaN where a
            landmark is not known: those pairs are left out.
        reference: indices of the reference images, or how many to take, evenly spaced over all.
        stride: pixels between two places that are compared, a divisor of the patch; PEAC and ACE take 8. None for the
            patch itself.
        progress: whether to show a progress bar over the images.
        remove_position: whether to subtract the mean feature map.
        refine: whether to move the place between the cells to the peak of a parabola through the similarities of the
            best cell and its two neighbours along each axis.
        batch_size: copies of images in a pass of the encoder.

    Returns:
        A row per reference image, other image and landmark known in both, with "reference", "query" and "landmark"
        (indices), "error" in pixels, "error_fraction" (of the image's longest side), the found "row" and "column" (in
        3-D "slice" too) and its "similarity", the cosine in [-1, 1]. Equally similar places: the first counts.

    Raises:
        ValueError: when shapes do not fit, for landmarks outside of the image, fewer than two images, or a reference
            that does not exist.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images, landmarks = torch.rand(3, 1, 32, 32), 31 * torch.rand(3, 5, 2)
        >>> table = landmark_correspondence(encoder, images, landmarks, reference=[0], stride=4, progress=False)
        >>> table.shape, sorted(correspondence_summary(table))[:2]
        ((10, 8), ['mean_error', 'mean_error_fraction'])
    """
    encoder.check_images(images)
    places = checked_landmarks(landmarks, encoder.img_size, len(images))
    references = reference_indices(reference, len(images))
    total = len(images) + (len(images) if remove_position else len(references))
    with tqdm(total=total, disable=not progress, unit="image", desc="correspondence") as bar, torch.no_grad():
        maps = FeatureMaps(encoder, images, stride, batch_size, bar)
        if remove_position:
            maps.remove_mean()
        at_landmarks = [_at_landmarks(part, places[rows], maps.centers) for rows, part in maps(references)]
        to_find = torch.cat(at_landmarks)
        matches = [_most_similar(to_find, part, maps.centers, refine) for _, part in maps(range(len(images)))]
    shape = (len(images), len(references), places.shape[1])
    predicted = torch.cat([place for place, _ in matches]).reshape(*shape, -1).transpose(0, 1)
    similarity = torch.cat([cosine for _, cosine in matches]).reshape(shape).transpose(0, 1)
    return correspondence_table(predicted.numpy(), places.numpy(), references, encoder.img_size, similarity.numpy())


def same_place_correspondence(
    landmarks: torch.Tensor | NDArray, img_size: Sequence[int], reference: Sequence[int] | int = 5
) -> pd.DataFrame:
    """
    The baseline without any image: a landmark is where it was in the reference image.

    Args:
        landmarks: as in :func:`landmark_correspondence`.
        img_size: spatial size of the images in pixels.
        reference: as in :func:`landmark_correspondence`; the same ones for a comparison.

    Returns:
        The columns of :func:`landmark_correspondence`, "similarity" NaN.

    Raises:
        ValueError: as there.

    Example:
        >>> landmarks = torch.tensor([[[10.0, 10.0]], [[13.0, 14.0]]])
        >>> same_place_correspondence(landmarks, (32, 32), reference=1)["error"].tolist()
        [5.0]
    """
    places = checked_landmarks(landmarks, tuple(img_size), len(landmarks))
    references = reference_indices(reference, len(places))
    copied = places[references].unsqueeze(1).expand(-1, len(places), -1, -1)
    unknown = np.full(copied.shape[:-1], np.nan, dtype=np.float32)
    return correspondence_table(copied.numpy(), places.numpy(), references, img_size, unknown)


def correspondence_summary(table: pd.DataFrame, names: Sequence[str] | None = None) -> dict[str, Any]:
    """
    The metrics of a table of correspondences.

    Args:
        table: of :func:`landmark_correspondence` or :func:`same_place_correspondence`.
        names: of the landmarks, in order; their indices if None.

    Returns:
        "mean_error" and "median_error" in pixels, "mean_error_fraction" of the image's longest side,
        "mean_error_per_landmark", a dictionary of pixels, and "num_pairs", the rows of the table.

    Raises:
        ValueError: when a landmark of the table has no name.

    Example:
        >>> landmarks = torch.tensor([[[10.0, 10.0]], [[13.0, 14.0]]])
        >>> summary = correspondence_summary(same_place_correspondence(landmarks, (50, 50), 1), ["carina"])
        >>> summary["mean_error_fraction"], summary["mean_error_per_landmark"]
        (0.1, {'carina': 5.0})
    """
    if names is not None and len(table) and table["landmark"].max() >= len(names):
        raise ValueError(f"{len(names)} names for landmarks up to number {table['landmark'].max()}: name each of them")
    per_landmark = table.groupby("landmark")["error"].mean()
    return {
        "mean_error": float(table["error"].mean()),
        "median_error": float(table["error"].median()),
        "mean_error_fraction": float(table["error_fraction"].mean()),
        "mean_error_per_landmark": {
            str(index if names is None else names[index]): float(error) for index, error in per_landmark.items()
        },
        "num_pairs": len(table),
    }


def label_pairs(table: pd.DataFrame, num_images: int) -> pd.DataFrame:
    """
    Label each pair of images of a table by what the two differ in.

    Args:
        table: of :func:`landmark_correspondence` or :func:`same_place_correspondence`, on the images of
            :func:`monai_afire.analysis.with_perturbations`.
        num_images: M, of the images before perturbations were added.

    Returns:
        The table with "across": "patients" (two patients in the same perturbation), "perturbations" (the same patient
        in two of them) or "patients_and_perturbations".

    Example:
        >>> table = pd.DataFrame({"reference": [0, 0, 0], "query": [1, 2, 3]})
        >>> label_pairs(table, num_images=2)["across"].tolist()
        ['patients', 'perturbations', 'patients_and_perturbations']
    """
    same_patient = table["reference"] % num_images == table["query"] % num_images
    same_perturbation = table["reference"] // num_images == table["query"] // num_images
    return table.assign(across=np.select([same_perturbation, same_patient], ACROSS[:2], ACROSS[2]))


def checked_landmarks(landmarks: torch.Tensor | NDArray, img_size: Sequence[int], num_images: int) -> torch.Tensor:
    """The landmarks as plain float32 on the CPU."""
    places = convert_to_tensor(landmarks, dtype=torch.float32, device=torch.device("cpu"), track_meta=False)
    if num_images < 2 or places.ndim != 3 or len(places) != num_images or places.shape[2] != len(img_size):
        raise ValueError(
            f"expected landmarks (M, P, {len(img_size)}) of M >= 2 images, got {tuple(places.shape)} for {num_images} "
            "images"
        )
    outside = (places < -0.5) | (places > torch.tensor(img_size) - 0.5)  # no comparison with NaN is true
    if outside.any():
        image, landmark, _ = outside.nonzero()[0].tolist()
        raise ValueError(
            f"landmark {landmark} of image {image} is at {places[image, landmark].tolist()}, outside of an image of "
            f"{tuple(img_size)} pixels: give rows before columns in pixels of the resized image, and NaN for what the "
            "image does not show"
        )
    return places


def _at_landmarks(features: torch.Tensor, places: torch.Tensor, centers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Features (m, D, *cells) at places (m, P, n), linear between cells and constant beyond the last: (m P, D)."""
    scaled = []
    for axis, center in enumerate(centers):
        step = center[1] - center[0] if len(center) > 1 else 1.0
        cell = (places[..., axis].to(center) - center[0]) / step
        scaled.append((2 * cell + 1) / len(center) - 1)  # grid_sample's -1 ... 1 from edge to edge
    points = torch.stack(scaled[::-1], dim=-1).nan_to_num()
    points = points.to(features).reshape(len(places), -1, *[1] * (len(centers) - 1), len(centers))
    sampled = F.grid_sample(features, points, padding_mode="border", align_corners=False)
    return sampled.flatten(2).transpose(1, 2).flatten(0, 1)


def _most_similar(
    to_find: torch.Tensor, features: torch.Tensor, centers: Sequence[torch.Tensor], refine: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Place (m, N, n) and cosine (m, N) of the best match of N features in each of m maps, on the CPU."""
    cells = features.shape[2:]
    maps = F.normalize(features, dim=1).flatten(2)
    rows = max(1, _MAX_SIMILARITIES // (maps.shape[0] * maps.shape[2]))
    places, cosines = [], []
    for part in F.normalize(to_find, dim=1).split(rows):
        similarity = part @ maps
        cosine, best = similarity.max(-1)
        index = torch.stack(torch.unravel_index(best, cells), dim=-1)
        place = torch.stack([center[index[..., axis]] for axis, center in enumerate(centers)], dim=-1)
        if refine:
            place = place + _peak_offset(similarity.unflatten(-1, cells), index, centers)
        places.append(place.cpu())
        cosines.append(cosine.cpu())
    return torch.cat(places, dim=1), torch.cat(cosines, dim=1)


def _peak_offset(similarity: torch.Tensor, index: torch.Tensor, centers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Peak (m, N, n) of parabolas through the best cell and its neighbours, pixels from the best; 0 at the border."""
    offsets = []
    for axis, center in enumerate(centers):
        last = len(center) - 1
        line = similarity
        for other in reversed(range(len(centers))):  # keep the best cell's line along this axis
            if other != axis:
                position = index[..., other].reshape(*index.shape[:2], *[1] * (line.ndim - 2))
                line = torch.take_along_dim(line, position, dim=2 + other).squeeze(2 + other)
        at = index[..., axis, None]
        before, best, after = (line.gather(2, (at + step).clamp(0, last))[..., 0] for step in (-1, 0, 1))
        bend = 2 * best - before - after
        cell = torch.where(bend > 0, (after - before) / (2 * bend).clamp_min(1e-12), 0.0)  # in [-0.5, 0.5]
        inside = (index[..., axis] > 0) & (index[..., axis] < last)
        offsets.append(torch.where(inside, cell, 0.0) * (center[1] - center[0] if last else 1.0))
    return torch.stack(offsets, dim=-1)


def correspondence_table(
    predicted: NDArray, places: NDArray, references: Sequence[int], img_size: Sequence[int], similarity: NDArray
) -> pd.DataFrame:
    """The rows of predictions (R, M, P, n) that can be compared with the truth (M, P, n)."""
    error = np.sqrt(((predicted.astype(np.float64) - places) ** 2).sum(-1))
    other = np.asarray(references)[:, None] != np.arange(len(places))
    known = ~np.isnan(places).any(-1)
    row, query, landmark = np.nonzero(other[..., None] & known[references][:, None] & known)
    compared = (row, query, landmark)
    return pd.DataFrame(
        {
            "reference": np.asarray(references)[row],
            "query": query,
            "landmark": landmark,
            "error": error[compared],
            "error_fraction": error[compared] / max(img_size),
            **{name: predicted[compared][:, axis] for axis, name in enumerate(_AXES[: len(img_size)])},
            "similarity": similarity[compared],
        }
    )
