# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic lesions by loops over pixels in plain Python numbers: slow, but each step can be read off the equations."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from monai_afire.transforms.lesion_synthesis.parameters import LesionParameters

__all__ = ["naive_interpolation", "naive_lesion_map", "naive_profile"]


def naive_profile(rho: float, gamma: float) -> float:
    """exp(-rho ** 2 / gamma), shifted and scaled to 1 at rho = 0 and 0 from rho = 1 on."""
    if rho >= 1:
        return 0.0
    edge = math.exp(-1 / gamma)
    return (math.exp(-(rho**2) / gamma) - edge) / (1 - edge)


def naive_interpolation(image: np.ndarray, point: list[float]) -> float:
    """Linear interpolation between pixel centers (at i + 0.5); beyond the last center its value goes on."""
    index = [min(max(p - 0.5, 0.0), side - 1.0) for p, side in zip(point, image.shape, strict=True)]
    value = 0.0
    for corner in product((0, 1), repeat=image.ndim):
        weight, position = 1.0, []
        for i, upper, side in zip(index, corner, image.shape, strict=True):
            lower = math.floor(i)
            weight *= (i - lower) if upper else 1 - (i - lower)
            position.append(min(lower + upper, side - 1))
        if weight:
            value += weight * float(image[tuple(position)])
    return value


def naive_lesion_map(image: np.ndarray, parameters: LesionParameters, b: int, n: int) -> np.ndarray:
    """The additive map M (*S) of variant n of image b, whose texture comes from ``image`` (*S)."""
    dims = range(image.ndim)
    result = np.zeros(image.shape)
    for r in range(parameters.active.shape[2]):
        if not bool(parameters.active[b, n, r]):
            continue
        center, size = parameters.center[b, n, r].tolist(), parameters.size[b, n, r].tolist()
        rotation, amplitude = (
            parameters.rotation[b, n, r].tolist(),
            float(parameters.amplitude[b, n, r]),
        )
        source, source_size = (
            parameters.texture_center[b, n, r].tolist(),
            parameters.texture_size[b, n, r].tolist(),
        )
        axes = parameters.harmonic_axis[b, n, r].tolist()
        strengths = parameters.harmonic_weight[b, n, r].tolist()
        for pixel in np.ndindex(*image.shape):
            offset = [i + 0.5 - c for i, c in zip(pixel, center, strict=True)]
            v = [2 / size[j] * sum(rotation[i][j] * offset[i] for i in dims) for j in dims]
            radius = math.sqrt(sum(x * x for x in v))
            lobes = 0.0
            for k, axis, strength in zip((3, 4), axes, strengths, strict=True):
                cosine = (
                    sum(a * x for a, x in zip(axis, v, strict=True)) / radius if radius else 0.0
                )
                lobes += (
                    strength * (1 + math.cos(k * math.acos(min(1.0, max(-1.0, cosine))))) / 2 / 2
                )
            profile = naive_profile(
                radius * (1 + parameters.irregularity * lobes), parameters.gamma
            )
            if profile > 0:
                point = [
                    s + x * length / 2 for s, x, length in zip(source, v, source_size, strict=True)
                ]
                result[pixel] += amplitude * profile * naive_interpolation(image, point)
    return result
