# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bones of the chest phantom, as ribbons in millimetres."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from monai_afire.data.phantom.anatomy import DEPTH, ChestAnatomy, Projection
from monai_afire.data.phantom.drawing import (
    ribbon_outline,
    ribbon_points,
    smooth_curve,
    splat_points,
    tube_profile,
)


@dataclass(frozen=True)
class Ribbon:
    """A bone seen from the front: a tube along a line."""

    center: np.ndarray
    depth: np.ndarray | float
    half_width: np.ndarray
    solid: float
    shell: float
    strength: np.ndarray | float = 1.0


def draw_ribbons(ribbons: list[Ribbon], projection: Projection) -> np.ndarray:
    """Sum of the path lengths (mm of bone) of all ribbons, ``(size, size)``."""
    drawn = [
        ribbon_points(
            projection.to_pixels(ribbon.center, ribbon.depth),
            ribbon.half_width * projection.pixels_per_mm,
            tube_profile(ribbon.solid, ribbon.shell),
            ribbon.strength,
        )
        for ribbon in ribbons
    ]
    points, weights = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    return splat_points(points, weights, projection.image_size, projection.image_size)


def _rib(anatomy: ChestAnatomy, side: int, number: int) -> Ribbon:
    """One rib from the spine (back) round the side to its front end."""
    patient = anatomy.patient
    height = patient.lung_height
    level = anatomy.top - 0.075 * height + 0.0865 * height * number
    drop = patient.rib_slope * (14.0 + 4.2 * min(number, 8))
    front_drop = patient.rib_slope * (24.0 + 5.0 * min(number, 7))
    least = (0.47, 0.68, 0.82)[number] if number < 3 else 0.9
    wall = max(float(anatomy.half_width_at(level + drop)) + 3.5, least * patient.half_width)
    if number > 8:
        wall *= 1.0 - 0.045 * (number - 8)
    front_end = wall * (0.42 if number < 7 else 0.42 + 0.13 * (number - 6))
    start = 17.0
    last = 0.92 if number < 7 else 0.92 - 0.08 * (number - 6)
    angle = np.linspace(0.02, last, 90) * np.pi
    back = angle < 0.5 * np.pi
    reach = np.sin(np.minimum(angle, np.pi)) ** np.where(back, 0.72, 0.85)
    x = np.where(back, start + (wall - start) * reach, front_end + (wall - front_end) * reach)
    front = np.clip(angle / (0.5 * np.pi) - 1.0, 0.0, 1.0)
    y = level + np.where(
        back, drop * reach**1.7 - 6.0 * np.sin(np.pi * reach), drop + front_drop * front**0.8
    )
    fade = np.where(back, 1.1 - 0.25 * reach, 0.65 - 0.35 * front)
    return Ribbon(
        center=np.stack([side * x + anatomy.spine_at(level) * (1.0 - reach) * back, y], axis=1),
        depth=-75.0 * np.cos(angle),
        half_width=np.interp(angle / np.pi, [0.0, 0.1, 0.5, 0.8, 1.0], [4.6, 5.4, 5.2, 6.2, 7.0])
        * height
        / 272.0,
        solid=3.0,
        shell=3.8,
        strength=fade,
    )


def _spine(anatomy: ChestAnatomy) -> list[Ribbon]:
    height = anatomy.patient.lung_height
    pitch = 0.0865 * height
    first = anatomy.top - 0.10 * height
    y = np.linspace(first - 6 * pitch, first + 26 * pitch, 500)
    phase = (y - first) / pitch
    x = anatomy.spine_at(y)
    growth = np.interp(y, [first - 6 * pitch, first, first + 16 * pitch], [0.8, 0.9, 1.25])
    body = 0.75 + 0.25 * np.clip(2.2 * np.cos(2 * np.pi * phase) + 1.4, -0.6, 1.0)
    bones = [Ribbon(np.stack([x, y], axis=1), DEPTH["spine"], 17.0 * growth, 4.6, 1.6, body)]
    angle = np.linspace(0.0, 2.0 * np.pi, 14)
    pedicle = np.stack([3.2 * np.cos(angle), 4.4 * np.sin(angle)], axis=1)
    wings = np.array(
        [(-29.0, -3.0), (-12.0, 0.0), (-10.0, 0.0), (10.0, 0.0), (12.0, 0.0), (29.0, -3.0)]
    )
    wing_strength = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    for number in range(-2, 12):
        center = np.array([float(anatomy.spine_at(first + number * pitch)), first + number * pitch])
        for side in (-1.0, 1.0):
            ring = center + np.array([10.5 * side, -3.0]) + pedicle
            bones.append(Ribbon(ring, DEPTH["spine"] - 20.0, np.full(len(ring), 1.3), 2.4, 0.0))
        bones.append(
            Ribbon(center + wings, DEPTH["spine"] - 25.0, np.full(6, 3.8), 2.0, 0.8, wing_strength)
        )
        process = center + np.array([(0.0, 2.0), (0.5, 15.0)])
        bones.append(Ribbon(process, DEPTH["spine"] - 40.0, np.array([1.8, 3.4]), 3.0, 1.2))
    return bones


# Shoulder blade, as seen from the lung's edge (mm outwards) and apex (mm downwards).
_SCAPULA = tuple(
    Ribbon(smooth_curve(controls, 30), depth, np.linspace(*widths, 30), solid, shell)
    for controls, depth, widths, solid, shell in (
        (np.array([(4, 28), (2, 60), (0, 105), (-3, 150)]), -70.0, (24.0, 7.0), 1.7, 0.6),  # body
        (
            np.array([(24, 52), (14, 90), (3, 128), (-4, 158)]),
            -65.0,
            (5.0, 3.2),
            3.2,
            1.2,
        ),  # lateral border
        (
            np.array([(-28, 14), (-20, 60), (-12, 115), (-5, 158)]),
            -80.0,
            (1.6, 1.6),
            2.6,
            0.0,
        ),  # medial border
        (
            np.array([(-24, 42), (2, 26), (26, 10), (46, 4)]),
            -70.0,
            (2.5, 7.5),
            3.4,
            2.0,
        ),  # spine and acromion
        (np.array([(24, 22), (27, 38), (24, 55)]), -40.0, (4.0, 4.0), 4.0, 1.2),  # glenoid
        (np.array([(6, 18), (10, 27), (14, 36)]), -20.0, (6.0, 6.0), 4.0, 1.5),  # coracoid
    )
)


def _shoulder(anatomy: ChestAnatomy, side: int) -> list[Ribbon]:
    """Shoulder blade and upper arm."""
    origin, flip = np.array([side * anatomy.patient.half_width, anatomy.top]), np.array([side, 1.0])
    bones = [replace(bone, center=origin + flip * bone.center) for bone in _SCAPULA]
    lean = anatomy.patient.arm_angle
    axis = np.array([np.sin(lean), np.cos(lean)])
    distance = np.linspace(-22.0, 230.0, 90)
    center = np.array([47.0, 38.0]) + distance[:, None] * axis
    ball = np.sqrt(np.clip(23.0**2 - np.minimum(distance, 0.0) ** 2, 4.0, None))
    half = np.where(
        distance < 0,
        ball,
        np.interp(distance, [0, 15, 45, 80, 230], [23.0, 21.0, 13.5, 11.5, 11.0]),
    )
    bones.append(Ribbon(origin + flip * center, -30.0, half, 9.0, 5.0))
    return bones


def skeleton(anatomy: ChestAnatomy) -> list[Ribbon]:
    """All bones of the chest as ribbons."""
    bones = _spine(anatomy)
    for index, side in enumerate((-1, 1)):
        bones.extend(_rib(anatomy, side, number) for number in range(12))
        bones.extend(_shoulder(anatomy, side))
        bones.append(clavicle(anatomy, index))
    return bones


def clavicle(anatomy: ChestAnatomy, index: int) -> Ribbon:
    """The clavicle, ``index`` 0 right, 1 left."""
    return Ribbon(
        anatomy.clavicles[index], _clavicle_depth(anatomy), anatomy.clavicle_half_width, 5.0, 4.5
    )


def _clavicle_depth(anatomy: ChestAnatomy) -> np.ndarray:
    return np.linspace(
        DEPTH["clavicle_head"], DEPTH["clavicle_end"], len(anatomy.clavicle_half_width)
    )


def clavicle_outline(anatomy: ChestAnatomy, index: int, projection: Projection) -> np.ndarray:
    """Outline in pixels of the clavicle, ``index`` 0 right, 1 left."""
    center = projection.to_pixels(anatomy.clavicles[index], _clavicle_depth(anatomy))
    return ribbon_outline(center, anatomy.clavicle_half_width * projection.pixels_per_mm)
