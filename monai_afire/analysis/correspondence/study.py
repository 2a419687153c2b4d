# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of landmark correspondence for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from monai_afire.analysis.correspondence.figures import correspondence_figure, found_landmarks_figure
from monai_afire.analysis.correspondence.measures import (
    ACROSS,
    label_pairs,
    landmark_correspondence,
    same_place_correspondence,
)
from monai_afire.analysis.correspondence.windows import window_correspondence
from monai_afire.analysis.features.dense import finest_stride
from monai_afire.analysis.features.raw_pixels import with_raw_pixels
from monai_afire.analysis.features.tokens import WINDOW
from monai_afire.analysis.images.affine import Perturbation, default_perturbations, with_perturbations
from monai_afire.analysis.images.study_images import StudyImages, names_or_numbers, reference_indices
from monai_afire.analysis.study import StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["CorrespondenceStudy"]

SAME_PLACE = "same place"

_QUESTION = (
    "Is a landmark of a reference image found in other images by the most similar feature, with nothing trained? "
    "Errors are mean distances from the true landmark in pixels of images of {size} pixels. They are taken across "
    "patients; across perturbations of the same image, which is moved, turned and enlarged as another exposure might; "
    "and across both. Copying the coordinates ('{same_place}') is the baseline that needs no encoder: it is hard to "
    "beat across patients, where anatomy is much in the same place, and fails across perturbations. In columns that "
    "end in position_removed the mean feature map of all images is subtracted first, which takes from an encoder what "
    "it knows of positions alone; columns that end in windows are by windows that slide over the image, each enlarged "
    "and encoded alone, which are not told its position (ACE, Fig. 7). The lower, the better; a "
    "place drawn at random is off by about half of the side."
)


class CorrespondenceStudy:
    """
    Landmark correspondence across patients and perturbations (PEAC, Fig. 5; ACE, Fig. 7) as a study of the report.

    Args:
        reference: indices of the reference images among those looked at, or how many to take.
        stride: pixels between two places that are compared; PEAC and ACE take 8. Where it does not divide an encoder's
            patch, the next smaller that does.
        perturbations: synthetic ones of each image; None for :func:`monai_afire.analysis.default_perturbations`.
        remove_position: whether to add the errors without the mean feature map.
        windows: whether to add the errors by sliding windows, see
            :func:`monai_afire.analysis.window_correspondence`: a pass of the encoder for each place. Images are
            enlarged so that a window of the encoder's size is 448 / 1024 of the side, and the stride with them.
        max_images: how many images to look at; a seeded sample where there are more.
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

    needs: Sequence[str] = ("landmarks",)

    def __init__(
        self,
        reference: Sequence[int] | int = 5,
        stride: int = 8,
        perturbations: Sequence[Perturbation] | None = None,
        remove_position: bool = True,
        windows: bool = False,
        max_images: int = 50,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        self.reference = reference
        self.stride = stride
        self.perturbations = perturbations
        self.variants = (False, True) if remove_position else (False,)
        self.windows = windows
        self.max_images = max_images
        self.seed = seed
        self.options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`."""
        sampled = images.sample(self.max_images, self.seed)
        assert sampled.landmarks is not None
        number = len(sampled.image)
        references = reference_indices(self.reference, number)
        perturbations = self._perturbations(sampled.image)
        pictures, landmarks = with_perturbations(sampled.image, sampled.landmarks, perturbations)
        tables: dict[str, pd.DataFrame] = {}
        metrics: dict[str, dict[str, Any]] = {}
        for name, encoder in with_raw_pixels(encoders).items():
            stride = finest_stride(encoder, self.stride)
            metrics[name] = {"stride": stride}
            for removed in self.variants:
                table = landmark_correspondence(
                    encoder, pictures, landmarks, references, stride, remove_position=removed, **self.options
                )
                table = label_pairs(table, number)
                metrics[name] |= _errors(table, "_position_removed" if removed else "")
                tables.setdefault(name, table)  # of the features as they are
            if self.windows:
                table = _by_windows(encoder, pictures, landmarks, references, self.stride, self.options)
                metrics[name] |= _errors(label_pairs(table, number), "_windows")
        copied = same_place_correspondence(landmarks, pictures.shape[2:], references)
        tables[SAME_PLACE] = label_pairs(copied, number)
        metrics[SAME_PLACE] = _errors(tables[SAME_PLACE], "")
        table = pd.DataFrame.from_dict(metrics, orient="index")
        table = table[[*[column for column in table if column != "stride"], "stride"]]
        return self._result(table, tables, sampled, (pictures, landmarks, references))

    def _perturbations(self, images: torch.Tensor) -> tuple[Perturbation, ...]:
        return default_perturbations(images.ndim - 2) if self.perturbations is None else tuple(self.perturbations)

    def _result(
        self, metrics: pd.DataFrame, tables: Mapping[str, pd.DataFrame], images: StudyImages, pairs: tuple
    ) -> StudyResult:
        pictures, landmarks, references = pairs
        names = names_or_numbers(images.landmark_names, landmarks.shape[1])
        figures, details = {}, {}
        for across in ACROSS:
            own = {name: table[table["across"] == across] for name, table in tables.items()}
            own = {name: table for name, table in own.items() if len(table)}
            if own:
                title = f"Across {across.replace('_', ' ')}"
                figures[f"{title}: error of each landmark"] = correspondence_figure(own, names, title)
                details[f"{title}: error of each landmark in pixels"] = _per_landmark(own, names)
        if pictures.ndim == 4:
            number = len(images.image)
            other = next((index for index in range(number) if index != references[0]), None)
            queries = {} if other is None else {"another patient": other}
            queries |= {
                f"the same patient, {perturbation.name}": (1 + index) * number + references[0]
                for index, perturbation in enumerate(self._perturbations(images.image)[:1])
            }
            encoders = {name: table for name, table in tables.items() if name != SAME_PLACE}
            if queries:
                figures["Landmarks of a reference image, found in other images"] = found_landmarks_figure(
                    pictures, landmarks, encoders, references[0], queries
                )
        size = " x ".join(str(side) for side in pictures.shape[2:])
        question = _QUESTION.format(size=size, same_place=SAME_PLACE)
        return StudyResult("Landmarks across patients and perturbations", question, metrics, figures, details)


def _by_windows(
    encoder: RadiographEncoder,
    pictures: torch.Tensor,
    landmarks: torch.Tensor,
    references: Sequence[int],
    stride: int,
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Correspondences by windows of ACE's share of the pictures, errors in pixels of these."""
    size = [round(side / WINDOW) for side in pictures.shape[2:]]
    larger = F.interpolate(pictures, size, mode=("linear", "bilinear", "trilinear")[len(size) - 1])
    scale = torch.tensor([new / old for new, old in zip(size, pictures.shape[2:], strict=True)])
    places = ((landmarks + 0.5) * scale - 0.5).minimum(torch.tensor(size) - 0.5)
    table = window_correspondence(encoder, larger, places, references, max(1, round(stride / WINDOW)), **options)
    return table.assign(error=table["error"] / float(scale.mean()))


def _errors(table: pd.DataFrame, suffix: str) -> dict[str, float]:
    """The mean error across each of :data:`ACROSS`, NaN without a pair."""
    means = table.groupby("across")["error"].mean()
    return {f"error_across_{across}{suffix}": float(means.get(across, float("nan"))) for across in ACROSS}


def _per_landmark(tables: Mapping[str, pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    means = pd.DataFrame({name: table.groupby("landmark")["error"].mean() for name, table in tables.items()})
    return means.reindex(range(len(names))).set_axis(list(names))
