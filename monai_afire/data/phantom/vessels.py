# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lung vessels of the chest phantom, as points in millimetres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monai_afire.data.phantom.anatomy import ChestAnatomy

_NUM_ROOTS = 18  # vessels of a lung at its hilum
# of each generation: points along a vessel, and vessels of the generation that branches off
_GENERATIONS = ((72, 64), (48, 150), (36, 240), (24, 0))


@dataclass(frozen=True)
class _Vessels:
    """
    The N vessels of a generation where they begin.

    Args:
        start: (N, 2), in mm.
        heading: (N,), direction in radians: 0 sideways, positive downwards.
        length: (N,), in mm.
        radius: (N,), in mm.
    """

    start: np.ndarray
    heading: np.ndarray
    length: np.ndarray
    radius: np.ndarray


@dataclass(frozen=True)
class _Courses:
    """
    The same N vessels along their ways, at P points each.

    Args:
        position: (P,), share of the length, 0 to 1.
        points: (N, P, 2), in mm.
        heading: (N, P), in radians.
        radius: (N, P), in mm.
        volume: (N, P), of the piece of a vessel that a point stands for, in mm3.
    """

    position: np.ndarray
    points: np.ndarray
    heading: np.ndarray
    radius: np.ndarray
    volume: np.ndarray


def vessel_tree(
    anatomy: ChestAnatomy, side: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Pulmonary vessels that branch from the hilum into one lung, four generations grown side by side.

    Returns:
        Points ``(M, 2)`` in mm, the radius of the vessel there in mm, and the volume that each stands for in mm3.
    """
    vessels = _vessels_at_hilum(anatomy, side, rng)
    grown = []
    for num_points, num_branches in _GENERATIONS:
        courses = _grow(vessels, side, num_points, rng)
        grown.append(courses)
        vessels = _branch(vessels, courses, num_branches, rng)
    points = [courses.points.reshape(-1, 2) for courses in grown]
    radii = [courses.radius.reshape(-1) for courses in grown]
    volumes = [courses.volume.reshape(-1) for courses in grown]
    return np.concatenate(points), np.concatenate(radii), np.concatenate(volumes)


def _vessels_at_hilum(anatomy: ChestAnatomy, side: int, rng: np.random.Generator) -> _Vessels:
    """The first generation, a fan; those that go down are longer and wider."""
    fan = np.linspace(-1.35, 1.45, _NUM_ROOTS)
    heading = fan + rng.normal(0.0, 0.09, _NUM_ROOTS)
    length = anatomy.patient.lung_height * np.interp(
        heading, [-1.4, -0.4, 0.3, 0.9, 1.5], [0.36, 0.36, 0.42, 0.58, 0.55]
    )
    length *= rng.uniform(0.75, 1.1, _NUM_ROOTS)
    radius = np.interp(heading, [-1.4, 0.0, 1.0, 1.5], [2.9, 3.2, 4.2, 4.4])
    radius *= rng.uniform(0.75, 1.25, _NUM_ROOTS)
    hilum = np.array(anatomy.landmarks["hilum_right" if side < 0 else "hilum_left"][:2])
    spread = rng.normal(0.0, (2.5, 6.0), (_NUM_ROOTS, 2))
    below = np.stack([np.zeros(_NUM_ROOTS), 12.0 * heading], axis=1)
    return _Vessels(hilum + spread + below, heading, length, radius)


def _grow(vessels: _Vessels, side: int, num_points: int, rng: np.random.Generator) -> _Courses:
    """Vessels that bend, wind and taper."""
    number = len(vessels.start)
    position = np.linspace(0.0, 1.0, num_points)
    bend = rng.normal(0.0, 0.28, number) + 0.12
    frequency, phase = rng.uniform(3.0, 9.0, (number, 1)), rng.uniform(0.0, 6.0, (number, 1))
    winding = 0.10 * np.sin(position * frequency + phase)
    heading = vessels.heading[:, None] + bend[:, None] * position + winding
    step = (vessels.length / (num_points - 1))[:, None]
    direction = np.stack([side * np.cos(heading), np.sin(heading)], axis=-1)
    points = vessels.start[:, None] + np.cumsum(step[..., None] * direction, axis=1)
    radius = vessels.radius[:, None] * (1.0 - 0.72 * position)
    return _Courses(position, points, heading, radius, volume=np.pi * radius**2 * step)


def _branch(
    vessels: _Vessels, courses: _Courses, number: int, rng: np.random.Generator
) -> _Vessels:
    """The next generation: each vessel begins at a random point of a random parent, and turns away from it."""
    num_points = len(courses.position)
    parent = rng.integers(0, len(vessels.start), number)
    place = rng.integers(num_points // 7, num_points - num_points // 10, number)
    side = rng.choice([-1.0, 1.0], number)
    turn = side * rng.uniform(0.35, 0.95, number)
    left = 1.0 - courses.position[place]
    length = vessels.length[parent] * (0.25 + 0.6 * left) * rng.uniform(0.5, 1.0, number)
    radius = courses.radius[parent, place] * rng.uniform(0.5, 0.8, number)
    return _Vessels(
        start=courses.points[parent, place],
        heading=courses.heading[parent, place] + turn,
        length=np.maximum(length, 8.0),
        radius=np.maximum(radius, 0.45),
    )
