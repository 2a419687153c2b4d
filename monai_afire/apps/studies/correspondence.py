# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Correspondence: is a landmark of one image found in others by the most similar feature, with nothing trained?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from monai.utils import convert_to_tensor

from monai_afire.apps.results.pictures.draw import TRUTH_COLOR, class_color, landmark_picture
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.studies.features import FeatureMaps, finest_stride, token_features
from monai_afire.apps.studies.figures import dot_plot
from monai_afire.apps.studies.images import (
    StudyImages,
    evenly_spaced,
    names_or_numbers,
    native_size,
)
from monai_afire.apps.studies.regions import PERTURBATIONS, WINDOW, with_perturbations
from monai_afire.apps.studies.study import SAME_PLACE, StudyResult, mean_by, metrics_table
from monai_afire.networks.blocks.feature_pyramid import resize_features
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels

Encoders = Mapping[str, RadiographEncoder]
Match = tuple[torch.Tensor, torch.Tensor]  # places (N, 2) and how good they are (N,), of one image

ACROSS = ("patients", "perturbations", "patients_and_perturbations")
"""What a pair of images may differ in, see :func:`label_pairs`."""

_QUESTION = (
    "Is a landmark of a reference image found in other images by the most similar feature, with nothing trained? "
    "Errors are mean distances from the true landmark in pixels of images of {size} pixels: across patients; across "
    "perturbations of the same image, which is moved, turned and enlarged as another exposure might; and across both. "
    "The baseline '{same_place}' copies the coordinates: it is hard to beat across patients and fails across "
    "perturbations. For columns that end in position_removed, the mean feature map of all images is subtracted first, "
    "which removes what an encoder knows of positions alone. Columns that end in windows are by windows that slide "
    "over the image, each encoded alone (ACE, Fig. 7). Lower is better; a random place is off by half of the side."
)
_FOUND_CAPTION = "Landmarks of a reference image, found in other images"


def correspondence_study(
    encoders: Encoders,
    images: StudyImages,
    reference: int = 5,
    stride: int = 8,
    windows: bool = False,
    batch_size: int = 32,
) -> StudyResult:
    """
    Landmark correspondence across patients and perturbations (PEAC, Fig. 5; ACE, Fig. 7).

    Args:
        reference: how many images are references, evenly spaced over all.
        stride: pixels between two places that are compared; PEAC and ACE take 8. Where it does not divide an encoder's
            patch, the next smaller that does.
        windows: whether to add the errors by sliding windows, see :func:`window_correspondence`: a pass of the encoder
            for each place. Images are the native ones, where the size differs resized so that a window of the encoder's
            size is 448 / 1024 of the side, and the stride with them.
    """
    number = len(images.image)
    references = evenly_spaced(reference, number)
    pictures, landmarks = with_perturbations(images.image, images.known("landmarks"))
    tables: dict[str, pd.DataFrame] = {}
    metrics: dict[str, dict[str, float]] = {}
    for name, encoder in with_raw_pixels(encoders).items():
        step = finest_stride(encoder, stride)
        found, removed = (
            landmark_correspondence(
                encoder, pictures, landmarks, references, step, remove, batch_size
            )
            for remove in (False, True)
        )
        tables[name] = label_pairs(found, number)
        metrics[name] = _errors(tables[name])
        metrics[name] |= _errors(label_pairs(removed, number), "_position_removed")
        if windows:
            found = _by_windows(encoder, images, references, stride, batch_size)
            metrics[name] |= _errors(label_pairs(found, number), "_windows")
        metrics[name]["stride"] = step
    queries = {"another patient": 1, f"the same patient, {PERTURBATIONS[0].name}": number}
    picture = found_landmarks_figure(pictures, landmarks, tables, references[0], queries)
    size = pictures.shape[2:]
    copied = same_place_correspondence(landmarks, size, references)
    tables[SAME_PLACE] = label_pairs(copied, number)
    metrics[SAME_PLACE] = _errors(tables[SAME_PLACE])
    figures, details = {}, {}
    names = names_or_numbers(images.landmark_names, landmarks.shape[1])
    for title, errors in _landmark_errors(tables, names).items():
        caption = f"{title}: error of each landmark"
        figures[caption] = dot_plot(errors, title, "mean error in pixels")
        details[f"{caption} in pixels"] = errors
    figures[_FOUND_CAPTION] = picture
    question = _QUESTION.format(size=" x ".join(map(str, size)), same_place=SAME_PLACE)
    title = "Landmarks across patients and perturbations"
    return StudyResult(title, question, metrics_table(metrics), figures, details)


def landmark_correspondence(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor,
    references: Sequence[int],
    stride: int | None = None,
    remove_position: bool = False,
    batch_size: int = 32,
) -> pd.DataFrame:
    r"""
    Find the landmarks of reference images in all other images by the most similar feature (PEAC, Fig. 5).

    The feature :math:`f(x)` of landmark x is interpolated linearly between the cells of dense features. Its place in
    another image, of features :math:`g_j` at :math:`c_j`, is

    .. math:: \hat{x} = c_{j^*}, \qquad j^* = \arg\max_j \frac{f(x) \cdot g_j}{\lVert f(x) \rVert \lVert g_j \rVert}

    and its error the Euclidean distance from that image's own landmark. An encoder that knows nothing but positions
    reaches what copying the coordinates does, :func:`same_place_correspondence`: any method has to beat that.
    ``remove_position=True`` takes this way out: the mean feature map of all images is subtracted from every image's; a
    feature that depends on the position alone counts as 0. It wants many images: of two, the one is the negative of
    the other afterwards. Memory does not grow with the number of images.

    Images ``(M, C, H, W)`` in [0, 1] have the encoder's size. Landmarks ``(M, P, 2)`` are in pixels, rows before
    columns, the center of the first pixel is 0; NaN where one is not known. ``references`` are indices of images, and
    ``stride`` the pixels between two places that are compared, a divisor of the patch; None for the patch itself.

    Returns:
        A row per reference image, other image and landmark known in both, with "reference", "query" and "landmark"
        (indices), "error" in pixels, "error_fraction" (of the image's longest side), the found "row" and "column"
        and its "similarity", the cosine in [-1, 1]. Equally similar places: the first counts.

    Raises:
        ValueError: for landmarks outside of the image.
    """
    encoder.check_images(images)
    places = _checked(landmarks, encoder.img_size)
    with torch.no_grad():
        maps = FeatureMaps(encoder, images, stride, remove_position, batch_size)
        of_references = zip(maps(references), places[references].split(maps.chunk), strict=True)
        to_find = torch.cat([_at_landmarks(part, own, maps.centers) for part, own in of_references])
        matches = [
            match
            for part in maps(range(len(images)))
            for match in zip(*_most_similar(to_find, part, maps.centers), strict=True)
        ]
    return _table(matches, places, references, encoder.img_size, "similarity")


def same_place_correspondence(
    landmarks: torch.Tensor, img_size: Sequence[int], references: Sequence[int]
) -> pd.DataFrame:
    """
    The baseline without any image: a landmark is where it was in the reference image.

    The arguments and columns are those of :func:`landmark_correspondence`, with "similarity" NaN.
    """
    places = _checked(landmarks, img_size)
    copied = places[references].flatten(0, 1)
    matches = [(copied, torch.full(copied.shape[:1], torch.nan))] * len(places)
    return _table(matches, places, references, img_size, "similarity")


def window_correspondence(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor,
    references: Sequence[int],
    stride: int = 8,
    batch_size: int = 32,
) -> pd.DataFrame:
    r"""
    Find the landmarks of reference images in all other images by the window with the nearest feature (ACE, Fig. 7).

    The feature :math:`f(x)` is the mean token of the window of the encoder's own size around x, cut out of a larger
    image without any resampling, zeros beyond the border. A landmark x of a reference image is in another one at

    .. math:: \hat x = c_{j^*}, \qquad j^* = \arg\min_j \lVert f(x) - f(c_j) \rVert_2

    with :math:`c_j` the centers of windows that slide by ``stride`` pixels from border to border. The paper has images
    of 1024 pixels, windows of 448 and a stride of 8.

    The encoder does not know where in the image a window lies, so that, unlike the tokens of
    :func:`landmark_correspondence`, features give no positions away, but for the zeros that those near the border see.
    The price is one pass for each place. Images have any size; the other arguments and the columns are those of
    :func:`landmark_correspondence`, with the "distance" of the features instead of their similarity.
    """
    images = convert_to_tensor(images, track_meta=False)
    size, window = tuple(images.shape[2:]), encoder.img_size
    places = _checked(landmarks, size)
    middle = torch.tensor([(w - 1) / 2 for w in window])
    at_landmarks = (places.nan_to_num() - middle).round().long()
    sides = zip(size, window, strict=True)
    steps = [range(-((w - 1) // 2), s - (w - 1) // 2, stride) for s, w in sides]
    sliding = torch.tensor(list(product(*steps)))
    to_find = torch.cat(
        [_window_features(encoder, images[i], at_landmarks[i], batch_size) for i in references]
    )
    matches = []
    for image in images:
        features = _window_features(encoder, image, sliding, batch_size)
        # differences, not products: near features must not drown in rounding
        distances = torch.cdist(to_find, features, compute_mode="donot_use_mm_for_euclid_dist")
        smallest, index = distances.min(1)
        matches.append(((sliding + middle)[index.cpu()], smallest.cpu()))
    return _table(matches, places, references, size, "distance")


def label_pairs(table: pd.DataFrame, num_images: int) -> pd.DataFrame:
    """The table with "across", what two images differ in, among M images and their perturbed copies."""
    same_patient = table["reference"] % num_images == table["query"] % num_images
    same_perturbation = table["reference"] // num_images == table["query"] // num_images
    return table.assign(across=np.select([same_perturbation, same_patient], ACROSS[:2], ACROSS[2]))


def found_landmarks_figure(
    images: torch.Tensor,
    landmarks: torch.Tensor,
    tables: Mapping[str, pd.DataFrame],
    reference: int,
    queries: Mapping[str, int],
) -> Figure:
    """
    Where each encoder finds the landmarks of a reference image in others (PEAC, Fig. 5; ACE, Fig. 7 a).

    Images ``(M, C, H, W)``, landmarks ``(M, P, 2)`` and the encoders' tables are those of
    :func:`landmark_correspondence`; ``queries`` are indices of other images by what they are, a row each.
    """
    gray = images.float().mean(1).cpu().numpy()
    places = landmarks.float().cpu().numpy()
    nowhere = np.full_like(places[reference], np.nan)
    pictures, titles = [], []
    for query_name, query in queries.items():
        pictures.append(landmark_picture(gray[reference], nowhere, places[reference]))
        titles.append("reference")
        for name, table in tables.items():
            found = nowhere.copy()
            rows = table[(table["reference"] == reference) & (table["query"] == query)]
            found[rows["landmark"]] = rows[["row", "column"]]
            pictures.append(landmark_picture(gray[query], found, places[query]))
            titles.append(f"{query_name}\n{name}")
    legend = {"landmark of the image": TRUTH_COLOR, "found from the reference": class_color(0)}
    return image_grid(pictures, titles, None, legend, columns=1 + len(tables))


def _checked(landmarks: torch.Tensor, img_size: Sequence[int]) -> torch.Tensor:
    """The landmarks as plain float32 on the CPU; columns before rows are found out where an image is not square."""
    places = convert_to_tensor(landmarks, dtype=torch.float32, track_meta=False).cpu()
    # no comparison with NaN is true
    outside = (places < -0.5) | (places > torch.tensor(img_size) - 0.5)
    if outside.any():
        image, landmark, _ = outside.nonzero()[0].tolist()
        at = f"landmark {landmark} of image {image} is at {places[image, landmark].tolist()}"
        remedy = "give (row, column), NaN for unknown"
        raise ValueError(f"{at}, outside of an image of {tuple(img_size)} pixels: {remedy}")
    return places


def _at_landmarks(
    features: torch.Tensor, places: torch.Tensor, centers: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Features (m, D, *cells) at places (m, P, 2), linear between cells and constant beyond the last: (m P, D)."""
    scaled = []
    for axis, center in enumerate(centers):
        step = center[1] - center[0] if len(center) > 1 else 1.0
        cell = (places[..., axis].to(center) - center[0]) / step
        scaled.append((2 * cell + 1) / len(center) - 1)  # grid_sample's -1 ... 1 from edge to edge
    points = torch.stack(scaled[::-1], dim=-1).nan_to_num().to(features).unsqueeze(2)
    sampled = F.grid_sample(features, points, padding_mode="border", align_corners=False)
    return sampled.flatten(2).transpose(1, 2).flatten(0, 1)


def _most_similar(
    to_find: torch.Tensor, features: torch.Tensor, centers: Sequence[torch.Tensor]
) -> Match:
    """Place (m, N, 2) and cosine (m, N) of the best match of N features in each of m maps, on the CPU."""
    maps = F.normalize(features, dim=1).flatten(2)
    cosine, best = (F.normalize(to_find, dim=1) @ maps).max(-1)
    index = torch.unravel_index(best, features.shape[2:])
    found = [center[cell] for cell, center in zip(index, centers, strict=True)]
    return torch.stack(found, dim=-1).cpu(), cosine.cpu()


def _window_features(
    encoder: RadiographEncoder, image: torch.Tensor, starts: torch.Tensor, batch_size: int
) -> torch.Tensor:
    """Mean tokens (N, D) of the windows of an image (C, H, W) that begin at starts (N, 2), perhaps outside of it."""
    height, width = encoder.img_size
    # a window around a pixel of the image reaches no further than its size beyond the border
    padded = F.pad(image.to(encoder.mean), (width, width, height, height))

    def windows(rows: slice) -> torch.Tensor:
        cut = [
            padded[:, row + height : row + 2 * height, column + width : column + 2 * width]
            for row, column in starts[rows].tolist()
        ]
        return torch.stack(cut)

    return token_features(encoder, len(starts), windows, batch_size=batch_size)


def _by_windows(
    encoder: RadiographEncoder,
    images: StudyImages,
    references: Sequence[int],
    stride: int,
    batch_size: int,
) -> pd.DataFrame:
    """Correspondences by windows of ACE's share of the pictures, errors in pixels of the encoder's images."""
    pictures, landmarks = with_perturbations(images.detailed, images.detailed_landmarks())
    size = native_size(encoder.img_size)
    larger = resize_features(pictures, size)
    scale = torch.tensor([new / old for new, old in zip(size, pictures.shape[2:], strict=True)])
    places = ((landmarks + 0.5) * scale - 0.5).minimum(torch.tensor(size) - 0.5)
    step = max(1, round(stride / WINDOW))
    table = window_correspondence(encoder, larger, places, references, step, batch_size)
    return table.assign(error=table["error"] * WINDOW)


def _table(
    matches: Sequence[Match],
    places: torch.Tensor,
    references: Sequence[int],
    img_size: Sequence[int],
    measure: str,
) -> pd.DataFrame:
    """The rows of matches, places (R P, 2) and values (R P,) in each of M images, whose truth (M, P, 2) is known."""
    shape = (len(places), len(references), places.shape[1])
    predicted, values = (
        torch.stack(part).unflatten(1, shape[1:]).transpose(0, 1).numpy()
        for part in zip(*matches, strict=True)
    )
    truth = places.numpy()
    other = np.asarray(references)[:, None] != np.arange(len(truth))
    known = ~np.isnan(truth).any(-1)
    compared = np.nonzero(other[..., None] & known[references][:, None] & known)
    reference, query, landmark = compared
    found = predicted[compared].astype(np.float64)
    error = np.linalg.norm(found - truth[query, landmark], axis=-1)
    columns = {
        "reference": np.asarray(references)[reference],
        "query": query,
        "landmark": landmark,
        "error": error,
        "error_fraction": error / max(img_size),
        "row": found[:, 0],
        "column": found[:, 1],
        measure: values[compared],
    }
    return pd.DataFrame(columns)


def _errors(table: pd.DataFrame, suffix: str = "") -> dict[str, float]:
    """The mean error across each of :data:`ACROSS`, NaN without a pair."""
    means = table.groupby("across")["error"].mean().reindex(ACROSS)
    return {f"error_across_{across}{suffix}": float(mean) for across, mean in means.items()}


def _landmark_errors(
    tables: Mapping[str, pd.DataFrame], names: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """The mean error of each landmark and encoder across each of :data:`ACROSS` for which there are pairs."""
    errors = {}
    for across in ACROSS:
        own = {name: table[table["across"] == across] for name, table in tables.items()}
        if any(len(table) for table in own.values()):
            title = f"Across {across.replace('_', ' ')}"
            errors[title] = mean_by(own, "landmark", "error", names)
    return errors
