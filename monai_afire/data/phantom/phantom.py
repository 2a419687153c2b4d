# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One procedurally drawn frontal chest radiograph with its ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monai_afire.data.phantom.anatomy import (
    LANDMARK_NAMES,
    ORGAN_NAMES,
    ChestAnatomy,
    Patient,
    Projection,
)
from monai_afire.data.phantom.lesions import (
    LESION_KINDS,
    Lesion,
    Scene,
    add_lesion,
    draw_anatomy,
)
from monai_afire.data.phantom.phantom_rendering import (
    expose,
    organ_masks,
    sample_exposure,
    thickness_maps,
)

_LEAST_SIZE = 32


@dataclass(frozen=True)
class ChestPhantom:
    """A drawn radiograph and everything that is known about it.

    Attributes:
        image: float32 ``(1, H, W)`` in [0, 1], bright = dense, upright; the heart lies at the right of the picture.
        organs: uint8 ``(5, H, W)`` of 0 and 1, in the order of ``ORGAN_NAMES``. The lungs are the visible lung fields
            of the anatomy: without heart and mediastinum, but with the parts that a lesion hides.
        landmarks: float32 ``(15, 2)``, ``(row, column)`` in pixels (0 is the center of the first pixel), in the
            order of ``LANDMARK_NAMES``.
        lesions: the lesions, in the order in which they were asked for.
        patient: the measures of the patient.
        pixel_size: side of a pixel in millimetres at the patient's mid plane.
    """

    image: np.ndarray
    organs: np.ndarray
    landmarks: np.ndarray
    lesions: tuple[Lesion, ...]
    patient: Patient
    pixel_size: float

    @property
    def label(self) -> np.ndarray:
        """float32 ``(5,)``, 1 where there is a lesion of that entry of ``LESION_KINDS``."""
        present = {lesion.kind for lesion in self.lesions}
        return np.array([kind in present for kind in LESION_KINDS], dtype=np.float32)

    @property
    def lesion_mask(self) -> np.ndarray:
        """uint8 ``(1, H, W)``, the union of the masks of all lesions."""
        masks = [np.zeros(self.image.shape[1:], dtype=bool), *(own.mask for own in self.lesions)]
        return np.any(masks, axis=0, keepdims=True).astype(np.uint8)

    @property
    def boxes(self) -> np.ndarray:
        """float32 ``(number of lesions, 4)``: ``(x, y, width, height)`` in pixels."""
        return np.array([lesion.box for lesion in self.lesions], dtype=np.float32).reshape(-1, 4)


def _sample_projection(
    anatomy: ChestAnatomy, rng: np.random.Generator, image_size: int
) -> Projection:
    """Position of the patient before the detector; lungs and landmarks stay inside the picture."""
    patient = anatomy.patient
    side = max(2.0 * patient.half_width / rng.uniform(0.62, 0.78), patient.lung_height / 0.80)
    shift = (float(rng.uniform(-0.025, 0.025)) * side, float(rng.uniform(-0.03, 0.04)) * side)
    return Projection(
        image_size=image_size,
        field_of_view=float(side),
        center=(shift[0], 0.5 * (anatomy.top + anatomy.bottom) + shift[1]),
        roll=float(np.clip(rng.normal(0.0, 0.022), -0.06, 0.06)),
        turn=patient.turn,
        tilt=patient.tilt,
    )


def _landmark_pixels(anatomy: ChestAnatomy, projection: Projection) -> np.ndarray:
    points = np.array([anatomy.landmarks[name] for name in LANDMARK_NAMES])
    pixels = projection.to_pixels(points[:, :2], points[:, 2]) - 0.5
    return np.ascontiguousarray(pixels[:, ::-1], dtype=np.float32)


def check_image_size(image_size: int) -> None:
    """Refuse a picture that is too small for the anatomy."""
    if image_size < _LEAST_SIZE:
        raise ValueError(
            f"image_size is {image_size}: too small for the anatomy. Use {_LEAST_SIZE} pixels or more."
        )


def draw_chest_phantom(
    seed_or_rng: int | np.random.SeedSequence | np.random.Generator,
    image_size: int = 224,
    lesions: Sequence[str] = (),
) -> ChestPhantom:
    """Draws one patient's frontal (PA) chest radiograph with organ masks, landmarks and lesions.

    The picture follows from path lengths through a parametric anatomy by Beer-Lambert's law, with scatter, quantum
    noise and the window of a digital detector. The same seed gives the same patient, exposure and noise with and
    without lesions: a pair of a diseased and a healthy picture of one patient. It also gives the same patient at every
    ``image_size`` (only the noise differs). The result does not depend on threads, and on another platform it differs
    by rounding only (less than 1e-3).

    Args:
        seed_or_rng: seed of the patient; a generator gives another patient at each call.
        image_size: rows and columns of the picture, 32 or more.
        lesions: kinds of ``LESION_KINDS`` to add, in this order; a kind may occur several times.

    Returns:
        The radiograph with its ground truth.

    Raises:
        ValueError: when ``image_size`` is too small or a kind of lesion is unknown.

    Example:
        >>> phantom = draw_chest_phantom(7, image_size=64, lesions=["nodule"])
        >>> phantom.image.shape, phantom.organs.shape, phantom.landmarks.shape
        ((1, 64, 64), (5, 64, 64), (15, 2))
        >>> phantom.label.tolist()
        [1.0, 0.0, 0.0, 0.0, 0.0]
    """
    check_image_size(image_size)
    anatomy, (for_pose, for_tissue, for_exposure, for_noise, for_lesions) = draw_anatomy(
        seed_or_rng, lesions
    )
    projection = _sample_projection(anatomy, for_pose, image_size)
    masks = organ_masks(anatomy, projection)
    maps = thickness_maps(anatomy, projection, masks, for_tissue)
    scene = Scene(anatomy, projection, masks, maps, for_lesions)
    drawn = tuple(add_lesion(kind, scene) for kind in lesions)
    image = expose(maps, anatomy, projection, sample_exposure(for_exposure), for_noise)
    return ChestPhantom(
        image=image[None],
        organs=np.stack([masks[name] > 0.5 for name in ORGAN_NAMES]).astype(np.uint8),
        landmarks=_landmark_pixels(anatomy, projection),
        lesions=drawn,
        patient=anatomy.patient,
        pixel_size=projection.field_of_view / image_size,
    )
