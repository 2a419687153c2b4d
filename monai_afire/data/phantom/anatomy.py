# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anatomy of the chest phantom: the patient's measures, outlines of organs and landmarks, all in millimetres.

Coordinates: ``x`` to the right of the picture (the patient's left), ``y`` downwards, ``z`` towards the patient's
front; the origin is the carina. Nothing here knows of pixels, so that one patient looks alike at every picture size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monai_afire.data.phantom.drawing import fill_polygon, smooth_curve

ORGAN_NAMES = ("lung_right", "lung_left", "heart", "clavicle_right", "clavicle_left")

_LANDMARKS_OF_SIDES = (
    "lung_apex",
    "costophrenic_angle",
    "diaphragm_dome",
    "clavicle_head",
    "hilum",
)
LANDMARK_NAMES = (
    *(f"{name}_{side}" for name in _LANDMARKS_OF_SIDES for side in ("right", "left")),
    *("carina", "aortic_knob", "right_heart_border", "cardiac_apex", "trachea_top"),
)

# Depth (mm, towards the front) at which structures lie; turning the patient shifts them against one another.
DEPTH = {
    "spine": -75.0,
    "lung": 0.0,
    "mediastinum": 5.0,
    "heart": 25.0,
    "clavicle_head": 55.0,
    "clavicle_end": -30.0,
}


@dataclass(frozen=True)
class Patient:
    """Measures of one patient and one exposure.

    Attributes:
        sex: ``"F"`` or ``"M"``.
        half_width: half of the greatest width of the lungs, mm.
        lung_height: from the apices to the costophrenic angles, mm.
        barrel: how much of the lungs' width is kept at the top.
        dome: height of the diaphragm domes (right, left) above the costophrenic angles, as fraction of the lung height.
        cardiothoracic_ratio: width of the heart over the greatest width of the lungs.
        mediastinum: factor of the width of the mediastinum.
        knob: size of the aortic knob (0 small .. 1 large).
        fat: body fat, -1 (thin) .. 1 (obese).
        thickness: front-to-back diameter of the trunk, mm.
        rib_slope: how steeply the ribs fall.
        clavicle_rise: height of the lateral ends of the clavicles above their heads, mm.
        arm_angle: abduction of the arms, radians.
        spine_curve: sideways bow of the spine, mm.
        turn: rotation about the long axis, radians.
        tilt: lordotic tilt, radians.
    """

    sex: str
    half_width: float
    lung_height: float
    barrel: float
    dome: tuple[float, float]
    cardiothoracic_ratio: float
    mediastinum: float
    knob: float
    fat: float
    thickness: float
    rib_slope: float
    clavicle_rise: float
    arm_angle: float
    spine_curve: float
    turn: float
    tilt: float


def sample_patient(rng: np.random.Generator) -> Patient:
    """Draws a patient with a heart of normal size (cardiothoracic ratio 0.37 to 0.48)."""
    sex = "F" if rng.random() < 0.5 else "M"
    stature = float(np.clip(rng.normal(1.0 if sex == "M" else 0.92, 0.045), 0.8, 1.12))
    # -1 tall and narrow .. 1 short and broad
    habitus = float(np.clip(rng.normal(0.0, 0.5), -1.0, 1.0))
    fat = float(np.clip(rng.normal(0.0, 0.45), -1.0, 1.0))
    right_dome = float(rng.uniform(0.15, 0.27))
    return Patient(
        sex=sex,
        half_width=138.0 * stature * (1.0 + 0.07 * habitus),
        lung_height=262.0 * stature * (1.0 - 0.10 * habitus) * float(rng.uniform(0.90, 1.05)),
        barrel=float(rng.normal(0.0, 0.06)),
        dome=(right_dome, right_dome - float(rng.uniform(0.0, 0.06))),
        cardiothoracic_ratio=float(rng.uniform(0.37, 0.48)),
        mediastinum=stature * float(rng.uniform(0.85, 1.2)) * (1.0 + 0.1 * fat),
        knob=float(rng.random()),
        fat=fat,
        thickness=215.0 * stature * (1.0 + 0.16 * fat),
        rib_slope=float(rng.uniform(0.7, 1.25)),
        clavicle_rise=float(rng.normal(22.0, 10.0)),
        arm_angle=float(rng.uniform(0.15, 0.9)),
        spine_curve=float(rng.normal(0.0, 4.0)),
        turn=float(np.clip(rng.normal(0.0, 0.045), -0.11, 0.11)),
        tilt=float(np.clip(rng.normal(0.0, 0.04), -0.1, 0.1)),
    )


@dataclass(frozen=True)
class Projection:
    """Parallel projection of millimetres to pixels."""

    image_size: int
    field_of_view: float
    center: tuple[float, float]
    roll: float
    turn: float
    tilt: float

    @property
    def pixels_per_mm(self) -> float:
        """Pixels in one millimetre."""
        return self.image_size / self.field_of_view

    def to_pixels(self, points: np.ndarray, depth: float | np.ndarray = 0.0) -> np.ndarray:
        """Projects points ``(..., 2)`` at the given depth (mm) to ``(x, y)`` in pixels."""
        x = points[..., 0] + depth * np.sin(self.turn) - self.center[0]
        y = points[..., 1] + depth * np.sin(self.tilt) - self.center[1]
        cos, sin = np.cos(self.roll), np.sin(self.roll)
        half = 0.5 * self.image_size
        scale = self.pixels_per_mm
        return np.stack(
            [half + scale * (cos * x - sin * y), half + scale * (sin * x + cos * y)], axis=-1
        )

    def fill(self, outline: np.ndarray, depth: float | np.ndarray = 0.0) -> np.ndarray:
        """Coverage (0..1) of each pixel by an outline in millimetres at the given depth."""
        return fill_polygon(self.to_pixels(outline, depth), self.image_size, self.image_size)

    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Millimetre coordinates ``x, y`` (float32) of the pixel centers, at depth 0."""
        offset = (np.arange(self.image_size) + 0.5 - 0.5 * self.image_size) / self.pixels_per_mm
        x, y = offset[None, :], offset[:, None]
        cos, sin = np.cos(self.roll), np.sin(self.roll)
        return (
            (cos * x + sin * y + self.center[0]).astype(np.float32),
            (-sin * x + cos * y + self.center[1]).astype(np.float32),
        )


@dataclass(frozen=True)
class ChestAnatomy:
    """Outlines and landmarks of one patient in millimetres."""

    patient: Patient
    cavities: tuple[np.ndarray, np.ndarray]
    lateral_wall: np.ndarray
    heart: np.ndarray
    mediastinum: np.ndarray
    clavicles: tuple[np.ndarray, np.ndarray]
    clavicle_half_width: np.ndarray
    top: float
    bottom: float
    landmarks: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def half_width_at(self, y: np.ndarray | float) -> np.ndarray:
        """Half width (mm) of the cavities at the given heights."""
        return np.interp(y, self.lateral_wall[:, 0], self.lateral_wall[:, 1])

    def spine_at(self, y: np.ndarray | float) -> np.ndarray:
        """Sideways position (mm) of the spine at the given heights."""
        return self.patient.spine_curve * np.sin(
            (np.asarray(y) - self.top) / (self.bottom - self.top) * np.pi
        )


# Outer outline of a lung: (fraction of the half width, fraction of the height), from the mediastinum over the apex.
_OUTER = smooth_curve([
    (0.10, 0.22), (0.13, 0.10), (0.19, 0.03), (0.32, 0.0), (0.47, 0.018), (0.62, 0.075), (0.75, 0.17), (0.86, 0.31),
    (0.93, 0.47), (0.975, 0.65), (1.0, 0.84), (0.995, 0.95), (0.97, 1.0),
], 80)  # fmt: skip


def _cavity(patient: Patient, side: int, top: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outline of one cavity, its outer curve and its base, ``side`` -1 right, 1 left."""
    outer = _OUTER.copy()
    outer[:, 0] *= 1.0 + patient.barrel * (0.6 - outer[:, 1])
    outer[:, 0] /= outer[:, 0].max()
    height = patient.dome[0 if side < 0 else 1]
    corner = outer[-1]
    base = smooth_curve(
        [
            corner, (corner[0] - 0.055, 1.0 - 0.36 * height), (corner[0] - 0.17, 1.0 - 0.70 * height),
            (0.62, 1.0 - 0.96 * height), (0.46, 1.0 - height), (0.28, 1.0 - 0.93 * height), (0.08, 1.0 - 0.70 * height),
        ],
        50,
    )  # fmt: skip
    scale = np.array([side * patient.half_width, patient.lung_height])
    shift = np.array([0.0, top])
    outer, base = outer * scale + shift, base * scale + shift
    return np.concatenate([outer, base[1:]]), outer, base


# Outline of a heart in a box of any size, from its top along the right border.
_HEART = smooth_curve(
    [
        (0.32, 0.0), (0.13, 0.18), (0.02, 0.42), (0.0, 0.58), (0.05, 0.79), (0.19, 0.94), (0.45, 1.0), (0.74, 0.99),
        (0.93, 0.91), (1.0, 0.78), (0.96, 0.62), (0.84, 0.42), (0.70, 0.23), (0.57, 0.07), (0.45, 0.0),
    ],
    120,
    closed=True,
)  # fmt: skip


def _heart(patient: Patient, bottom: float) -> np.ndarray:
    """Outline of the heart, exactly as wide as the cardiothoracic ratio says."""
    low, high = _HEART.min(axis=0), _HEART.max(axis=0)
    outline = (_HEART - low) / (high - low)
    width = 2.0 * patient.half_width * patient.cardiothoracic_ratio
    start = 0.055 * patient.lung_height
    height = bottom - start - 0.62 * patient.dome[1] * patient.lung_height
    outline[:, 0] = (outline[:, 0] - 0.31) * width
    outline[:, 1] = start + outline[:, 1] * height
    return outline


def _mediastinum(patient: Patient, top: float, bottom: float) -> np.ndarray:
    """Outline of the great vessels and of what lies about the spine."""
    knob = 5.0 * patient.knob
    unit = patient.lung_height / 272.0
    right = [
        (-34, top - 90), (-26, top), (-24, -72), (-25, -45), (-25, -20), (-25, 8), (-24, 30), (-20, 70), (-17, 120),
    ]  # fmt: skip
    left = [
        (17, 120), (20, 80), (26, 55), (36, 34), (35 + knob / 3, 18), (31, 4), (29, -6), (30 + knob, -18),
        (30.5 + knob, -27), (27 + knob / 2, -40), (23, -52), (20, -75), (25, top), (34, top - 90),
    ]  # fmt: skip
    low = [(-18.0, bottom + 40.0), (18.0, bottom + 40.0)]

    def stretch(points: Sequence[tuple[float, float]]) -> np.ndarray:
        return np.array(
            [(x * patient.mediastinum, y * unit if top < y < bottom else y) for x, y in points]
        )

    return np.concatenate(
        [smooth_curve(stretch(right), 60), np.array(low), smooth_curve(stretch(left), 90)]
    )


def _clavicle(patient: Patient, side: int, top: float) -> np.ndarray:
    unit = patient.half_width / 138.0
    head = top + 0.16 * patient.lung_height
    rise = patient.clavicle_rise
    controls = [(20, 0), (36, -0.18 * rise - 3), (62, -0.62 * rise - 3), (95, -1.0 * rise), (130, -1.05 * rise + 2),
                (168, -0.85 * rise)]  # fmt: skip
    return np.array([(side * x * unit, head + y) for x, y in smooth_curve(controls, 60)])


def build_anatomy(patient: Patient) -> ChestAnatomy:
    """Outlines and landmarks that follow from a patient's measures."""
    top = -0.37 * patient.lung_height
    bottom = top + patient.lung_height
    right, right_outer, right_base = _cavity(patient, -1, top)
    left, left_outer, left_base = _cavity(patient, 1, top)
    heart = _heart(patient, bottom)
    mediastinum = _mediastinum(patient, top, bottom)
    clavicles = (_clavicle(patient, -1, top), _clavicle(patient, 1, top))
    position = np.linspace(0.0, 1.0, len(clavicles[0]))
    half_width = (
        5.2
        + 3.6 * np.exp(-((position / 0.13) ** 2))
        + 2.0 * np.clip(position - 0.75, 0.0, 1.0) / 0.25
    )
    wall = left_outer[np.argmin(left_outer[:, 1]) :]
    anatomy = ChestAnatomy(
        patient=patient,
        cavities=(right, left),
        lateral_wall=np.stack([wall[:, 1], wall[:, 0]], axis=1),
        heart=heart,
        mediastinum=mediastinum,
        clavicles=clavicles,
        clavicle_half_width=half_width * patient.half_width / 138.0,
        top=top,
        bottom=bottom,
    )
    anatomy.landmarks.update(
        _landmarks(anatomy, (right_outer, left_outer), (right_base, left_base))
    )
    return anatomy


def _beside_heart(points: np.ndarray, heart: np.ndarray) -> np.ndarray:
    """Which points the heart does not hide, however the patient is turned: bool ``(n,)``."""
    beside = np.abs(heart[None, :, 1] - points[:, None, 1]) < 5.0
    sideways = np.where(points[:, :1] < 0, -1.0, 1.0)
    border = np.where(beside, sideways * heart[None, :, 0], -np.inf).max(axis=1)
    return sideways[:, 0] * points[:, 0] > border + 6.0


def _landmarks(
    anatomy: ChestAnatomy, outer: tuple[np.ndarray, np.ndarray], base: tuple[np.ndarray, np.ndarray]
) -> dict[str, tuple[float, float, float]]:
    points: dict[str, tuple[float, float, float]] = {}

    def put(name: str, point: np.ndarray, depth: float) -> None:
        points[name] = (float(point[0]), float(point[1]), depth)

    for index, side in enumerate(("right", "left")):
        put(f"lung_apex_{side}", outer[index][np.argmin(outer[index][:, 1])], DEPTH["lung"])
        put(f"costophrenic_angle_{side}", outer[index][-1], DEPTH["lung"])
        visible = base[index][_beside_heart(base[index], anatomy.heart)]
        put(f"diaphragm_dome_{side}", visible[np.argmin(visible[:, 1])], DEPTH["lung"])
        put(f"clavicle_head_{side}", anatomy.clavicles[index][2], DEPTH["clavicle_head"])
    unit = anatomy.patient.lung_height / 272.0
    width = anatomy.patient.mediastinum
    put("hilum_right", np.array([-38.0 * width, 20.0 * unit]), DEPTH["lung"])
    put("hilum_left", np.array([44.0 * width, 10.0 * unit]), DEPTH["lung"])
    put("carina", np.array([0.0, 0.0]), DEPTH["mediastinum"])
    put("trachea_top", np.array([0.0, anatomy.top + 2.0]), DEPTH["mediastinum"])
    near_knob = anatomy.mediastinum[
        (anatomy.mediastinum[:, 1] > -35 * unit) & (anatomy.mediastinum[:, 1] < -10 * unit)
    ]
    put(
        "aortic_knob",
        near_knob[np.argmax(near_knob[:, 0])] - np.array([3.0, 0.0]),
        DEPTH["mediastinum"],
    )
    put("right_heart_border", anatomy.heart[np.argmin(anatomy.heart[:, 0])], DEPTH["heart"])
    put("cardiac_apex", anatomy.heart[np.argmax(anatomy.heart[:, 0])], DEPTH["heart"])
    return points
