# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Rendering of a radiograph: path lengths through tissue, air, vessels and bone, then what the X-ray detector sees."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates, uniform_filter

from monai_afire.data.phantom.anatomy import DEPTH, ChestAnatomy, Projection
from monai_afire.data.phantom.drawing import dome, fill_polygon, smooth_curve, splat_points
from monai_afire.data.phantom.skeleton import (
    Ribbon,
    clavicle_outline,
    draw_ribbons,
    skeleton,
)
from monai_afire.data.phantom.vessels import vessel_tree

LUNG_CONTRAST = 0.74  # water that a millimetre of lung lacks
BONE_CONTRAST = 2.6  # water that a millimetre of bone adds


def organ_masks(anatomy: ChestAnatomy, projection: Projection) -> dict[str, np.ndarray]:
    """Coverage (0..1) of the organs by name, and of ``cavity_right``, ``cavity_left`` and ``mediastinum``."""
    size = projection.image_size
    heart = projection.fill(anatomy.heart, DEPTH["heart"])
    mediastinum = projection.fill(anatomy.mediastinum, DEPTH["mediastinum"])
    masks = {"heart": heart, "mediastinum": mediastinum}
    for index, side in enumerate(("right", "left")):
        cavity = projection.fill(anatomy.cavities[index], DEPTH["lung"])
        masks[f"cavity_{side}"] = cavity
        masks[f"lung_{side}"] = cavity * (1.0 - np.maximum(heart, mediastinum))
        masks[f"clavicle_{side}"] = fill_polygon(
            clavicle_outline(anatomy, index, projection), size, size
        )
    return masks


@dataclass
class ThicknessMaps:
    """Path lengths in millimetres, each ``(size, size)``; lesions change them before the exposure."""

    tissue: np.ndarray
    air: np.ndarray
    vessels: np.ndarray
    bone: np.ndarray
    texture: np.ndarray

    def water(self) -> np.ndarray:
        """Equivalent thickness of water, mm."""
        lung = np.maximum(self.air, 0.0)
        return (
            np.maximum(self.tissue - LUNG_CONTRAST * lung, 0.0)
            + self.vessels
            + BONE_CONTRAST * self.bone
        )


def smooth_noise(rng: np.random.Generator, projection: Projection, grain: float) -> np.ndarray:
    """Noise of mean 0 and variance near 1, smooth over ``grain`` mm, tied to the anatomy and not to the pixels."""
    extent = 480.0
    count = int(extent / grain)
    lattice = rng.standard_normal((count, count), dtype=np.float32)
    x, y = projection.grid()
    rows = (y - projection.center[1] + 0.5 * extent) / grain
    columns = (x - projection.center[0] + 0.5 * extent) / grain
    return 1.5 * map_coordinates(lattice, [rows, columns], order=1, mode="grid-wrap")


def _body(anatomy: ChestAnatomy, projection: Projection) -> np.ndarray:
    """Thickness of trunk, neck and arms, mm."""
    patient = anatomy.patient
    edge, top, bottom = patient.half_width, anatomy.top, anatomy.bottom
    flank = edge + 30.0 + 16.0 * patient.fat
    neck = 52.0 + 8.0 * patient.fat
    half = smooth_curve(
        [
            (neck, top - 260), (neck, top - 75), (neck + 10, top - 52), (edge - 30, top - 30), (edge + 20, top - 16),
            (edge + 62, top + 2), (edge + 80, top + 40), (edge + 62, top + 85), (flank + 8, top + 125),
            (flank, top + 190), (flank + 4, bottom), (flank + 10, bottom + 140), (flank + 12, bottom + 400),
        ],
        120,
    )  # fmt: skip
    trunk = np.concatenate([half, (half * np.array([-1.0, 1.0]))[::-1]])
    _, y = projection.grid()
    levels = [top - 60, top - 25, top + 30, top + 90, bottom - 60, bottom + 80]
    depth = np.interp(y, levels, [0.60, 0.62, 0.70, 0.88, 1.0, 1.15]).astype(np.float32)
    radius = projection.pixels_per_mm * 80.0
    body = dome(projection.fill(trunk), radius) * depth * patient.thickness
    return np.maximum(body, _arms(anatomy, projection))


def _arms(anatomy: ChestAnatomy, projection: Projection) -> np.ndarray:
    """Thickness of the arms, mm."""
    patient, edge, top = anatomy.patient, anatomy.patient.half_width, anatomy.top
    lean = patient.arm_angle
    axis, across = np.array([np.sin(lean), np.cos(lean)]), np.array([np.cos(lean), -np.sin(lean)])
    width = 46.0 + 9.0 * patient.fat
    shoulder = np.array([edge + 47.0, top + 38.0])
    hand = shoulder + 400.0 * axis
    near, far = width * across, 0.8 * width * across
    corners = np.array([shoulder - near, shoulder + near, hand + far, hand - far])
    arms = [projection.fill(corners * np.array([side, 1.0])) for side in (-1.0, 1.0)]
    return np.maximum(*(dome(arm, projection.pixels_per_mm * width) * 2.3 * width for arm in arms))


def _lung_air(
    anatomy: ChestAnatomy, projection: Projection, masks: dict[str, np.ndarray]
) -> np.ndarray:
    """Depth of aerated lung, the parts behind the heart and behind the domes of the diaphragm included."""
    patient = anatomy.patient
    x, y = projection.grid()
    lateral = _lateral_profile(anatomy, x, y)
    full = lung_depth(anatomy, x, y)
    cavity = np.maximum(masks["cavity_right"], masks["cavity_left"])
    ppmm = projection.pixels_per_mm
    heart = dome(masks["heart"], 42.0 * ppmm) * 0.50 * patient.thickness
    vessels = 0.62 * full * masks["mediastinum"]
    air = np.maximum(full - np.maximum(heart, vessels), 0.12 * full) * cavity
    air -= _hilar_tissue(anatomy, projection) * cavity
    below = (
        np.clip((anatomy.bottom - y) / 50.0, 0.0, 1.0)
        * (y > 0.0)
        * (1.0 - cavity)
        * np.clip(lateral * 1.6, 0, 1)
    )
    sulcus = uniform_filter(cavity, max(int(26 * ppmm), 1)) * below * 0.30 * full
    return air + sulcus.astype(np.float32)


def _lateral_profile(anatomy: ChestAnatomy, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    across = np.abs(x) / np.maximum(anatomy.half_width_at(y), 20.0).astype(np.float32)
    return np.sqrt(np.clip(1.0 - across**3.0, 0.0, 1.0))


def lung_depth(anatomy: ChestAnatomy, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Depth of the chest's cavity from front to back at places ``x, y`` (mm) of the frontal plane, mm."""
    levels = [anatomy.top, anatomy.top + 30, anatomy.top + 90, anatomy.bottom - 110, anatomy.bottom]
    height = np.interp(y, levels, [0.36, 0.50, 0.80, 1.0, 0.72])
    # the lungs are deepest at their middle
    height = height * (1.0 - 0.12 * np.exp(-((x / 60.0) ** 2)))
    return (0.70 * anatomy.patient.thickness * _lateral_profile(anatomy, x, y) * height).astype(
        np.float32
    )


def _hilar_tissue(anatomy: ChestAnatomy, projection: Projection) -> np.ndarray:
    """Air that the vessels and nodes about the hila displace, mm."""
    x, y = projection.grid()
    unit = anatomy.patient.lung_height / 272.0
    total = np.zeros_like(x)
    for name in ("hilum_right", "hilum_left"):
        hilum_x, hilum_y, _ = anatomy.landmarks[name]
        distance = ((x - hilum_x) / (15.0 * unit)) ** 2 + ((y - hilum_y - 4.0) / (26.0 * unit)) ** 2
        total += 26.0 * np.exp(-distance)
    return total


def airways(anatomy: ChestAnatomy) -> list[Ribbon]:
    """The trachea and the main bronchi."""
    top = anatomy.top
    trachea = smooth_curve([(0, top - 120), (0.0, top - 30), (2, top + 40), (0, 2)], 40)
    right, left = anatomy.landmarks["hilum_right"], anatomy.landmarks["hilum_left"]
    return [
        Ribbon(trachea, DEPTH["mediastinum"], np.full(40, 8.5), 17.0, 0.0),
        Ribbon(
            smooth_curve([(0, -4), (-16, 10), (right[0] - 4, right[1] + 8)], 20),
            0.0,
            np.linspace(7.5, 5, 20),
            13,
            0,
        ),
        Ribbon(
            smooth_curve([(0, -4), (22, 12), (left[0] + 2, left[1] + 14)], 20),
            0.0,
            np.linspace(7, 4.5, 20),
            12,
            0,
        ),
    ]


def _bowel_gas(
    anatomy: ChestAnatomy, projection: Projection, rng: np.random.Generator
) -> np.ndarray:
    """Gas under the left dome of the diaphragm (stomach) and in the colon, mm."""
    size = projection.image_size
    gas = np.zeros((size, size), np.float32)
    dome_x, dome_y, _ = anatomy.landmarks["diaphragm_dome_left"]
    angle = np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)
    number = int(rng.integers(0, 4))
    for index in range(number):
        width, height = rng.uniform(10.0, 34.0), rng.uniform(7.0, 18.0)
        x = dome_x + rng.uniform(-25.0, 22.0)
        y = dome_y + 12.0 + height + (0.0 if index == 0 else rng.uniform(10.0, 55.0))
        wobble = 1.0 + 0.12 * np.sin(angle * rng.integers(2, 5) + rng.uniform(0.0, 6.0))
        outline = np.stack(
            [x + width * wobble * np.cos(angle), y + height * wobble * np.sin(angle)], axis=1
        )
        blob = projection.fill(outline)
        gas += dome(blob, projection.pixels_per_mm * height) * rng.uniform(20.0, 60.0)
    return gas


def _breasts(anatomy: ChestAnatomy, projection: Projection, rng: np.random.Generator) -> np.ndarray:
    """Thickness that breasts (or pectoral muscles) add in front of the lower (upper) lungs, mm."""
    patient, size = anatomy.patient, projection.image_size
    extra = np.zeros((size, size), np.float32)
    female = patient.sex == "F"
    radius = (62.0 + 16.0 * patient.fat) * (patient.half_width / 130.0) * (1.0 if female else 0.85)
    amount = (
        rng.uniform(8.0, 26.0) * (1.0 + 0.4 * patient.fat) if female else rng.uniform(4.0, 12.0)
    )
    level = anatomy.top + patient.lung_height * (rng.uniform(0.66, 0.84) if female else 0.42)
    angle = np.linspace(0.0, 2.0 * np.pi, 48, endpoint=False)
    _, y = projection.grid()
    # thin above, so that only the lower edge shows
    ramp = np.clip((y - level) / (1.6 * radius) + 0.7, 0.0, 1.0)
    for side in (-1.0, 1.0):
        x = side * patient.half_width * (0.66 if female else 0.72)
        # Flat above, round below: the lower edge is the one that a radiograph shows.
        dy = np.where(np.sin(angle) > 0, 0.95, 1.6) * radius * np.sin(angle)
        outline = np.stack(
            [x + 1.05 * radius * np.cos(angle), level + dy + rng.uniform(-4.0, 4.0)], axis=1
        )
        extra += dome(projection.fill(outline, 60.0), radius * projection.pixels_per_mm) * amount
    return extra * ramp


def _vessels(anatomy: ChestAnatomy, projection: Projection, rng: np.random.Generator) -> np.ndarray:
    """Thickness of the lung vessels, also where no lung is, mm of water."""
    size, ppmm = projection.image_size, projection.pixels_per_mm
    vessels = np.zeros((size, size), np.float32)
    trees = [vessel_tree(anatomy, side, rng) for side in (-1, 1)]
    points, radii, volumes = (np.concatenate(parts) for parts in zip(*trees, strict=True))
    points = projection.to_pixels(points)
    for low, high, sigma in ((0.0, 0.8, 0.3), (0.8, 1.6, 0.6), (1.6, 2.8, 1.1), (2.8, 99.0, 1.8)):
        chosen = (radii >= low) & (radii < high)
        part = splat_points(points[chosen], volumes[chosen] * ppmm**2, size, size)
        vessels += gaussian_filter(part, max(sigma * ppmm, 0.35))
    return 1.3 * LUNG_CONTRAST * vessels


def thickness_maps(
    anatomy: ChestAnatomy,
    projection: Projection,
    masks: dict[str, np.ndarray],
    rng: np.random.Generator,
) -> ThicknessMaps:
    """Path lengths through the healthy chest."""
    cavity = np.maximum(masks["cavity_right"], masks["cavity_left"])
    lungs = np.maximum(masks["lung_right"], masks["lung_left"])
    bone = draw_ribbons(skeleton(anatomy), projection)
    bone = gaussian_filter(bone, max(0.35, 0.45 * projection.pixels_per_mm))
    vessels = _vessels(anatomy, projection, rng)
    air = (
        _lung_air(anatomy, projection, masks)
        + draw_ribbons(airways(anatomy), projection) * (1.0 - 0.85 * lungs)
        + _bowel_gas(anatomy, projection, rng)
    )
    tissue = _body(anatomy, projection) + _breasts(anatomy, projection, rng)
    texture = smooth_noise(rng, projection, 3.0) + 1.5 * smooth_noise(rng, projection, 9.0)
    return ThicknessMaps(
        tissue=tissue,
        air=air,
        vessels=vessels * cavity * (1.0 - 0.6 * masks["heart"]),
        bone=bone,
        texture=texture,
    )


ATTENUATION = 0.021  # of water at the mean energy of a chest film, 1/mm


def sample_exposure(rng: np.random.Generator) -> SimpleNamespace:
    """Draws the settings of one exposure and of its processing."""
    border = np.where(rng.random(4) < 0.3, rng.uniform(0.005, 0.05, 4), 0.0)
    return SimpleNamespace(
        center=float(rng.uniform(0.50, 0.62)),
        width=float(rng.uniform(0.13, 0.20)),
        equalise=float(rng.uniform(0.0, 0.35)),
        sharpen=float(rng.uniform(0.1, 1.1)),
        scatter=float(rng.uniform(0.1, 0.4)),
        noise=float(rng.uniform(0.004, 0.018)),
        blur=float(rng.uniform(0.5, 1.0)),
        border=border.tolist(),
        border_angle=float(rng.normal(0.0, 0.012)),
        marker=bool(rng.random() < 0.7),
        marker_place=(float(rng.uniform(0.86, 0.93)), float(rng.uniform(0.05, 0.16))),
    )


def expose(
    maps: ThicknessMaps,
    anatomy: ChestAnatomy,
    projection: Projection,
    exposure: SimpleNamespace,
    rng: np.random.Generator,
) -> np.ndarray:
    """The displayed picture: transmitted intensity, scatter, quantum noise, logarithm, processing and window."""
    size, ppmm = projection.image_size, projection.pixels_per_mm
    water = maps.water() + 0.012 * np.clip(maps.air, 0.0, 120.0) * maps.texture
    primary = np.exp(-ATTENUATION * water)
    wide = max(int(30 * ppmm), 1)
    scattered = uniform_filter(uniform_filter(primary, wide), wide)
    signal = gaussian_filter(
        primary, max(exposure.blur * ppmm, 0.3)
    ) + exposure.scatter * np.minimum(scattered, 0.12)
    lung_signal = np.exp(-ATTENUATION * 0.5 * anatomy.patient.thickness)
    noise = (
        exposure.noise
        * np.sqrt(signal * lung_signal)
        * rng.standard_normal((size, size), dtype=np.float32)
    )
    depth = -np.log(np.maximum(signal + noise, 1e-4)) / ATTENUATION
    coarse = uniform_filter(uniform_filter(depth, int(60 * ppmm)), int(60 * ppmm))
    thickness = anatomy.patient.thickness
    depth = depth + exposure.sharpen * (depth - uniform_filter(depth, max(int(9 * ppmm), 1)))
    depth = depth - exposure.equalise * (coarse - 0.65 * thickness)
    center, width = exposure.center * thickness, exposure.width * thickness
    picture = 1.0 / (1.0 + np.exp(-(depth - center) / width))
    black = 1.0 / (1.0 + np.exp(center / width))
    picture = np.clip((picture - black) / (0.985 - black), 0.0, 1.0)
    return _frame(picture, exposure).astype(np.float32)


_LETTER_L = np.array([(0.0, 0.0), (0.26, 0.0), (0.26, 0.76), (0.7, 0.76), (0.7, 1.0), (0.0, 1.0)])


def _frame(picture: np.ndarray, exposure: SimpleNamespace) -> np.ndarray:
    """Adds the lead marker "L" at the patient's left and blackens the borders outside the collimator."""
    size = picture.shape[0]
    if exposure.marker:
        letter = fill_polygon(
            (_LETTER_L * 0.042 + np.array(exposure.marker_place)) * size, size, size
        )
        picture = picture + 0.9 * letter * (1.0 - picture)
    if not any(exposure.border):
        return picture
    # half a picture outside: a side without border must stay without when the frame is rotated
    left, top, right, bottom = (side if side > 0 else -0.5 for side in exposure.border)
    corners = (
        np.array([(left, top), (1 - right, top), (1 - right, 1 - bottom), (left, 1 - bottom)]) - 0.5
    )
    cos, sin = np.cos(exposure.border_angle), np.sin(exposure.border_angle)
    corners = corners @ np.array([[cos, sin], [-sin, cos]]) + 0.5
    return picture * fill_polygon(corners * size, size, size)
