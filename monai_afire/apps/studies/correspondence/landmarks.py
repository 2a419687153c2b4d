# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Correspondence: is a landmark of one image found in others by the most similar feature, with nothing trained?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from monai.utils import convert_to_tensor
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.results.pictures.draw import CLASS_COLORS, TRUTH_COLOR, landmark_picture
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.studies.dot_plot import dot_plot
from monai_afire.apps.studies.features.dense import FeatureMaps, finest_stride
from monai_afire.apps.studies.features.tokens import check_sources, token_features
from monai_afire.apps.studies.images.affine import (
    DEFAULT_PERTURBATIONS,
    WINDOW,
    Perturbation,
    with_perturbations,
)
from monai_afire.apps.studies.images.reading import native_size
from monai_afire.apps.studies.images.study_images import (
    StudyImages,
    names_or_numbers,
    reference_indices,
)
from monai_afire.apps.studies.study import SAME_PLACE, StudyResult, StudySettings, mean_by
from monai_afire.networks.blocks.feature_pyramid import resize_features
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.raw_pixels import with_raw_pixels

ACROSS = ("patients", "perturbations", "patients_and_perturbations")
"""What a pair of images may differ in, see :func:`label_pairs`."""

_AXES = ("row", "column")
_MAX_SIMILARITIES = 2**24  # so many similarities are held at a time, 64 MiB of float32


def landmark_correspondence(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor | NDArray,
    reference: Sequence[int] | int = 5,
    stride: int | None = None,
    progress: bool = True,
    remove_position: bool = False,
    batch_size: int = 32,
) -> pd.DataFrame:
    r"""
    Find the landmarks of reference images in all other images by the most similar feature (PEAC, Fig. 5).

    The feature :math:`f(x)` of landmark x is interpolated linearly between the cells of
    :func:`monai_afire.apps.studies.dense_features`. Its place in another image, of features :math:`g_j` at
    :math:`c_j`, is

    .. math:: \hat{x} = c_{j^*}, \qquad j^* = \arg\max_j \frac{f(x) \cdot g_j}{\lVert f(x) \rVert \lVert g_j \rVert}

    and its error the Euclidean distance from that image's own landmark. Nothing is trained. An encoder that knows
    nothing but positions reaches what copying the coordinates does, :func:`same_place_correspondence`: any method has
    to beat that. ``remove_position=True`` takes this way out: the mean feature map of all images is subtracted from
    every image's, which leaves nothing of a feature that depends on the position alone; such a feature counts as 0. It
    wants many images: of two, the one is the negative of the other afterwards. ACE's Fig. 7 encodes windows instead,
    see :func:`monai_afire.apps.studies.window_correspondence`.

    Images are encoded in chunks, the references twice; with ``remove_position`` all of them twice. Memory grows with
    the references' landmarks and ``batch_size``, not with the number of images.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size; at least two.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; the center of the first pixel is 0. NaN where a
            landmark is not known: those pairs are left out.
        reference: indices of the reference images, or how many to take, evenly spaced over all.
        stride: pixels between two places that are compared, a divisor of the patch; PEAC and ACE take 8. None for the
            patch itself.
        progress: whether to show a progress bar over the images.
        remove_position: whether to subtract the mean feature map.
        batch_size: copies of images in a pass of the encoder.

    Returns:
        A row per reference image, other image and landmark known in both, with "reference", "query" and "landmark"
        (indices), "error" in pixels, "error_fraction" (of the image's longest side), the found "row" and "column"
        and its "similarity", the cosine in [-1, 1]. Equally similar places: the first counts.

    Raises:
        ValueError: when shapes do not fit, for landmarks outside of the image, fewer than two images, or a reference
            that does not exist.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images, landmarks = torch.rand(3, 1, 32, 32), 31 * torch.rand(3, 5, 2)
        >>> table = landmark_correspondence(encoder, images, landmarks, reference=[0], stride=4, progress=False)
        >>> table.shape
        (10, 8)
    """
    encoder.check_images(images)
    places = checked_landmarks(landmarks, encoder.img_size, len(images))
    references = reference_indices(reference, len(images))
    total = len(images) + (len(images) if remove_position else len(references))
    with (
        tqdm(total=total, disable=not progress, unit="image", desc="correspondence") as bar,
        torch.no_grad(),
    ):
        maps = FeatureMaps(encoder, images, stride, batch_size, bar)
        if remove_position:
            maps.remove_mean()
        at_landmarks = [
            _at_landmarks(part, places[rows], maps.centers) for rows, part in maps(references)
        ]
        to_find = torch.cat(at_landmarks)
        found = [_most_similar(to_find, part, maps.centers) for _, part in maps(range(len(images)))]
    matches = [match for part in found for match in zip(*part, strict=True)]
    return correspondence_table(matches, places, references, encoder.img_size)


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
    copied = places[references].flatten(0, 1)
    matches = [(copied, torch.full(copied.shape[:1], torch.nan))] * len(places)
    return correspondence_table(matches, places, references, img_size)


def label_pairs(table: pd.DataFrame, num_images: int) -> pd.DataFrame:
    """
    Label each pair of images of a table by what the two differ in.

    Args:
        table: of :func:`landmark_correspondence` or :func:`same_place_correspondence`, on the images of
            :func:`monai_afire.apps.studies.with_perturbations`.
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


def checked_landmarks(
    landmarks: torch.Tensor | NDArray, img_size: Sequence[int], num_images: int
) -> torch.Tensor:
    """The landmarks as plain float32 on the CPU."""
    places = convert_to_tensor(
        landmarks, dtype=torch.float32, device=torch.device("cpu"), track_meta=False
    )
    if (
        num_images < 2
        or places.ndim != 3
        or len(places) != num_images
        or places.shape[2] != len(img_size)
    ):
        raise ValueError(
            f"expected landmarks (M, P, {len(img_size)}) of M >= 2 images, got {tuple(places.shape)}"
        )
    # no comparison with NaN is true
    outside = (places < -0.5) | (places > torch.tensor(img_size) - 0.5)
    if outside.any():
        image, landmark, _ = outside.nonzero()[0].tolist()
        at = f"landmark {landmark} of image {image} is at {places[image, landmark].tolist()}"
        raise ValueError(
            f"{at}, outside of an image of {tuple(img_size)} pixels: give (row, column), NaN for unknown"
        )
    return places


def _at_landmarks(
    features: torch.Tensor, places: torch.Tensor, centers: Sequence[torch.Tensor]
) -> torch.Tensor:
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
    to_find: torch.Tensor, features: torch.Tensor, centers: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Place (m, N, n) and cosine (m, N) of the best match of N features in each of m maps, on the CPU."""
    cells = features.shape[2:]
    maps = F.normalize(features, dim=1).flatten(2)
    rows = max(1, _MAX_SIMILARITIES // (maps.shape[0] * maps.shape[2]))
    places, cosines = [], []
    for part in F.normalize(to_find, dim=1).split(rows):
        cosine, best = (part @ maps).max(-1)
        index = torch.unravel_index(best, cells)
        places.append(
            torch.stack(
                [center[cell] for cell, center in zip(index, centers, strict=True)], dim=-1
            ).cpu()
        )
        cosines.append(cosine.cpu())
    return torch.cat(places, dim=1), torch.cat(cosines, dim=1)


def correspondence_table(
    matches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    places: torch.Tensor,
    references: Sequence[int],
    img_size: Sequence[int],
    measure: str = "similarity",
) -> pd.DataFrame:
    """The rows of matches, places (R P, n) and values (R P,) in each of M images, whose truth (M, P, n) is known."""
    shape = (len(places), len(references), places.shape[1])
    predicted = (
        torch.stack([place for place, _ in matches]).reshape(*shape, -1).transpose(0, 1).numpy()
    )
    values = torch.stack([value for _, value in matches]).reshape(shape).transpose(0, 1).numpy()
    truth = places.numpy()
    other = np.asarray(references)[:, None] != np.arange(len(truth))
    known = ~np.isnan(truth).any(-1)
    compared = np.nonzero(other[..., None] & known[references][:, None] & known)
    row, query, landmark = compared
    error = np.linalg.norm(predicted[compared].astype(np.float64) - truth[query, landmark], axis=-1)
    return pd.DataFrame(
        {
            "reference": np.asarray(references)[row],
            "query": query,
            "landmark": landmark,
            "error": error,
            "error_fraction": error / max(img_size),
            **dict(zip(_AXES, predicted[compared].T, strict=False)),
            measure: values[compared],
        }
    )


def correspondence_figure(
    tables: Mapping[str, pd.DataFrame], names: Sequence[str], title: str
) -> Figure:
    """
    The mean error of each landmark and encoder (ACE, Fig. 7 b).

    Args:
        tables: of :func:`monai_afire.apps.studies.landmark_correspondence`, by the encoders' names.
        names: of the landmarks.
        title: of the figure.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder or a landmark.

    Example:
        >>> table = pd.DataFrame({"landmark": [0, 0, 1], "error": [2.0, 4.0, 5.0]})
        >>> len(correspondence_figure({"mine": table}, ["carina", "hilum"], "Errors").axes)
        1
    """
    return dot_plot(mean_by(tables, "landmark", "error", names), title, "mean error in pixels")


def found_landmarks_figure(
    images: torch.Tensor,
    landmarks: torch.Tensor,
    tables: Mapping[str, pd.DataFrame],
    reference: int,
    queries: Mapping[str, int],
) -> Figure:
    """
    Where each encoder finds the landmarks of a reference image in others (PEAC, Fig. 5; ACE, Fig. 7 a).

    Args:
        images: ``(M, C, H, W)``.
        landmarks: ``(M, P, 2)`` in pixels, rows before columns.
        tables: of :func:`monai_afire.apps.studies.landmark_correspondence`, by the encoders' names.
        reference: index of the reference image.
        queries: indices of the other images, by what they are.

    Returns:
        The figure: a row per query, the reference at its left.

    Example:
        >>> table = pd.DataFrame({"reference": 0, "query": 1, "landmark": 0, "row": [3.0], "column": [4.0]}, index=[0])
        >>> images, landmarks = torch.rand(2, 1, 8, 8), torch.full((2, 1, 2), 4.0)
        >>> figure = found_landmarks_figure(images, landmarks, {"mine": table}, 0, {"another patient": 1})
        >>> [axis.get_title() for axis in figure.axes]
        ['reference', 'another patient\\nmine']
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
    legend = {"landmark of the image": TRUTH_COLOR, "found from the reference": CLASS_COLORS[0]}
    return image_grid(pictures, titles, None, legend, columns=1 + len(tables))


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


class _Copies(NamedTuple):
    """Images and, after them, their perturbed copies, all with landmarks; which of the images are references."""

    pictures: torch.Tensor
    landmarks: torch.Tensor
    references: list[int]
    num_images: int


@dataclass
class CorrespondenceStudy(StudySettings):
    """
    Landmark correspondence across patients and perturbations (PEAC, Fig. 5; ACE, Fig. 7) as a study of the report.

    Args:
        reference: indices of the reference images, or how many to take.
        stride: pixels between two places that are compared; PEAC and ACE take 8. Where it does not divide an encoder's
            patch, the next smaller that does.
        perturbations: synthetic ones of each image.
        windows: whether to add the errors by sliding windows, see
            :func:`monai_afire.apps.studies.window_correspondence`: a pass of the encoder for each place. Images are
            the native ones, where the size differs resized so that a window of the encoder's size is 448 / 1024 of the
            side, and the stride with them.
        max_images: the most images to use; a seeded sample of more.
        seed: of the sampling.
        batch_size: pictures in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = StudyImages(torch.rand(3, 1, 32, 32), landmarks=8 + 16 * torch.rand(3, 2, 2))
        >>> result = CorrespondenceStudy(reference=1, progress=False)({"untrained": encoder}, images)
        >>> list(result.table.index)
        ['untrained', 'raw pixels', 'same place']
    """

    needs = ("landmarks",)
    reference: Sequence[int] | int = 5
    stride: int = 8
    perturbations: Sequence[Perturbation] = DEFAULT_PERTURBATIONS
    windows: bool = False
    max_images: int = 50

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        sampled = images.sample(self.max_images, self.seed)
        assert sampled.landmarks is not None
        number = len(sampled.image)
        references = reference_indices(self.reference, number)
        perturbed = with_perturbations(sampled.image, sampled.landmarks, self.perturbations)
        copies = _Copies(*perturbed, references, number)
        tables: dict[str, pd.DataFrame] = {}
        metrics: dict[str, dict[str, Any]] = {}
        for name, encoder in with_raw_pixels(encoders).items():
            tables[name] = self._compared(encoder, copies)
            removed = self._compared(encoder, copies, remove_position=True)
            metrics[name] = {"stride": finest_stride(encoder, self.stride)}
            metrics[name] |= _errors(tables[name], "")
            metrics[name] |= _errors(removed, "_position_removed")
            if self.windows:
                metrics[name] |= _errors(self._windowed(encoder, sampled, references), "_windows")
        size = copies.pictures.shape[2:]
        copied = same_place_correspondence(copies.landmarks, size, references)
        tables[SAME_PLACE] = label_pairs(copied, number)
        metrics[SAME_PLACE] = _errors(tables[SAME_PLACE], "")
        table = pd.DataFrame.from_dict(metrics, orient="index")
        table = table[[*[column for column in table if column != "stride"], "stride"]]
        return self._result(table, tables, sampled, copies)

    def _compared(
        self, encoder: RadiographEncoder, copies: _Copies, remove_position: bool = False
    ) -> pd.DataFrame:
        """Errors of all pairs by dense features."""
        table = landmark_correspondence(
            encoder,
            copies.pictures,
            copies.landmarks,
            copies.references,
            finest_stride(encoder, self.stride),
            remove_position=remove_position,
            **self.encoding,
        )
        return label_pairs(table, copies.num_images)

    def _windowed(
        self, encoder: RadiographEncoder, images: StudyImages, references: Sequence[int]
    ) -> pd.DataFrame:
        """Errors of all pairs by windows in the native images."""
        native = with_perturbations(
            images.detailed, images.detailed_landmarks(), self.perturbations
        )
        table = _by_windows(encoder, *native, references, self.stride, self.encoding)
        return label_pairs(table, len(images.image))

    def _result(
        self,
        metrics: pd.DataFrame,
        tables: Mapping[str, pd.DataFrame],
        images: StudyImages,
        copies: _Copies,
    ) -> StudyResult:
        pictures, landmarks, references, number = copies
        names = names_or_numbers(images.landmark_names, landmarks.shape[1])
        figures, details = {}, {}
        for across in ACROSS:
            own = {name: table[table["across"] == across] for name, table in tables.items()}
            own = {name: table for name, table in own.items() if len(table)}
            if own:
                title = f"Across {across.replace('_', ' ')}"
                figures[f"{title}: error of each landmark"] = correspondence_figure(
                    own, names, title
                )
                details[f"{title}: error of each landmark in pixels"] = mean_by(
                    own, "landmark", "error", names
                )
        first = references[0]
        queries = {"another patient": int(first == 0)} if number > 1 else {}
        for perturbation in self.perturbations[:1]:
            queries[f"the same patient, {perturbation.name}"] = number + first
        if queries:
            encoders = {name: table for name, table in tables.items() if name != SAME_PLACE}
            figures[_FOUND_CAPTION] = found_landmarks_figure(
                pictures, landmarks, encoders, first, queries
            )
        question = _QUESTION.format(
            size=" x ".join(map(str, pictures.shape[2:])), same_place=SAME_PLACE
        )
        return StudyResult(
            "Landmarks across patients and perturbations", question, metrics, figures, details
        )


def _by_windows(
    encoder: RadiographEncoder,
    pictures: torch.Tensor,
    landmarks: torch.Tensor,
    references: Sequence[int],
    stride: int,
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Correspondences by windows of ACE's share of the pictures, errors in pixels of the encoder's images."""
    size = native_size(encoder.img_size)
    larger = resize_features(pictures, size)
    scale = torch.tensor([new / old for new, old in zip(size, pictures.shape[2:], strict=True)])
    places = ((landmarks + 0.5) * scale - 0.5).minimum(torch.tensor(size) - 0.5)
    table = window_correspondence(
        encoder, larger, places, references, max(1, round(stride / WINDOW)), **options
    )
    return table.assign(error=table["error"] * WINDOW)


def _errors(table: pd.DataFrame, suffix: str) -> dict[str, float]:
    """The mean error across each of :data:`ACROSS`, NaN without a pair."""
    means = table.groupby("across")["error"].mean()
    return {
        f"error_across_{across}{suffix}": float(means.get(across, float("nan")))
        for across in ACROSS
    }


def window_correspondence(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor | NDArray,
    reference: Sequence[int] | int = 5,
    stride: int = 8,
    progress: bool = True,
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
    :func:`monai_afire.apps.studies.landmark_correspondence`, features give no positions away, but for the zeros that
    those near the border see. The price is one pass for each place: :math:`(S / stride)^n` for each image.
    Any number of axes.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of any size, usually larger than the encoder's; at least two.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; the center of the first pixel is 0. NaN where a
            landmark is not known: those pairs are left out.
        reference: indices of the reference images, or how many to take, evenly spaced over all.
        stride: pixels between two windows.
        progress: whether to show a progress bar over the windows.
        batch_size: windows in a pass of the encoder.

    Returns:
        The columns of :func:`monai_afire.apps.studies.landmark_correspondence`, with the "distance" of the features
        instead of their similarity. Equally near windows: the first counts.

    Raises:
        ValueError: when channels or shapes do not fit, for landmarks outside of the image, fewer than two images, a
            reference that does not exist, or a stride below 1.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> images, landmarks = torch.rand(3, 1, 32, 32), 31 * torch.rand(3, 5, 2)
        >>> window_correspondence(encoder, images, landmarks, reference=[0], progress=False).shape
        (10, 8)
    """
    images = convert_to_tensor(images, track_meta=False)
    size, window = tuple(images.shape[2:]), encoder.img_size
    check_sources(encoder, images)
    if stride < 1:
        raise ValueError(f"stride must be at least 1 pixel, got {stride}")
    places = checked_landmarks(landmarks, size, len(images))
    references = reference_indices(reference, len(images))
    middle = torch.tensor([(w - 1) / 2 for w in window])
    at_landmarks = (places.nan_to_num() - middle).round().long()
    steps = [
        range(-((w - 1) // 2), s - (w - 1) // 2, stride) for s, w in zip(size, window, strict=True)
    ]
    sliding = torch.tensor(list(product(*steps)))
    number = len(references) * places.shape[1] + len(images) * len(sliding)
    with tqdm(total=number, disable=not progress, unit="window", desc="windows") as bar:
        to_find = torch.cat(
            [_features(encoder, images[i], at_landmarks[i], batch_size, bar) for i in references]
        )
        matches = [
            _nearest(to_find, _features(encoder, image, sliding, batch_size, bar))
            for image in images
        ]
    found = [((sliding + middle)[index], distance) for index, distance in matches]
    return correspondence_table(found, places, references, size, "distance")


def _features(
    encoder: RadiographEncoder,
    image: torch.Tensor,
    starts: torch.Tensor,
    batch_size: int,
    bar: tqdm,
) -> torch.Tensor:
    """Mean tokens (N, D) of the windows of an image (C, *S) that begin at starts (N, n), which may be outside of it."""
    window = encoder.img_size
    # a window around a pixel of the image reaches no further than its size beyond the border
    widths = [width for w in reversed(window) for width in (w, w)]
    padded = F.pad(image.to(encoder.mean), widths)

    def windows(rows: slice) -> torch.Tensor:
        parts = []
        for start in starts[rows].tolist():
            box = (
                slice(None),
                *(slice(a + w, a + 2 * w) for a, w in zip(start, window, strict=True)),
            )
            parts.append(padded[box])
        return torch.stack(parts) if parts else padded.new_empty((0, len(image), *window))

    return token_features(encoder, len(starts), windows, batch_size=batch_size, bar=bar)


def _nearest(to_find: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index and distance (N,) of the nearest of (M, D) features to each of (N, D), on the CPU."""
    # differences, not products: near features must not drown in rounding
    smallest, index = torch.cdist(
        to_find, features, compute_mode="donot_use_mm_for_euclid_dist"
    ).min(1)
    return index.cpu(), smallest.cpu()
