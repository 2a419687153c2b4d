# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures that show the same: a perceptual hash finds candidates, correlation confirms them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn

_FREQUENCIES = 12
_BANDS, _BITS = 8, 16
_FEW = 200  # pictures; the mean of fewer says little of what chests have in common
_NEIGHBORS = 64
_CHUNK = 4096  # pairs; bounds the memory


def near_duplicates(
    pictures: NDArray[np.floating], threshold: float
) -> list[tuple[int, int, float]]:
    r"""
    Find pairs of pictures that are equal but for compression, size, brightness and contrast.

    A picture's hash has 128 bits: whether its coefficients of the cosine transform are above their means. Pictures
    that agree in one of eight bands of 16 bits are compared by the correlation of their pixels. Memory is linear in the
    number of pictures; of a very large group with one band, each picture meets its 64 neighbors by the whole hash.

    Args:
        pictures: ``(N, H, W)``, at least 12 x 12 pixels.
        threshold: smallest correlation.

    Returns:
        First and second index, and correlation, sorted; the first is the smaller one.

    Example:
        >>> pictures = np.random.default_rng(0).random((50, 32, 32))
        >>> near_duplicates(np.concatenate([pictures, 0.5 * pictures[7:8] + 0.1]), 0.99)
        [(7, 50, 1.0)]
    """
    if len(pictures) < 2:
        return []
    vectors = pictures.reshape(len(pictures), -1).astype(np.float32)
    vectors = vectors - vectors.mean(1, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-6)
    bands = _hash_bands(vectors.reshape(pictures.shape))
    found: dict[tuple[int, int], float] = {}
    for band in bands.T:
        order = np.lexsort([*bands.T, band])
        for step in range(1, min(_NEIGHBORS, len(order) - 1) + 1):
            pairs = np.stack([order[:-step], order[step:]], 1)
            pairs = pairs[band[pairs[:, 0]] == band[pairs[:, 1]]]
            if not len(pairs):
                break
            for start in range(0, len(pairs), _CHUNK):
                chunk = np.sort(pairs[start : start + _CHUNK], 1)
                correlations = np.einsum("nd,nd->n", vectors[chunk[:, 0]], vectors[chunk[:, 1]])
                for place in np.flatnonzero(correlations >= threshold):
                    found[tuple(chunk[place].tolist())] = round(float(correlations[place]), 4)
    return sorted((first, second, correlation) for (first, second), correlation in found.items())


def _hash_bands(pictures: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Hashes ``(N, 8)`` of pictures, coarse and fine frequencies in every band."""
    lowest = dctn(pictures, axes=(1, 2))[:, :_FREQUENCIES, :_FREQUENCIES]
    spectrum = lowest.reshape(len(pictures), -1)[:, 1 : 1 + _BANDS * _BITS]
    above = spectrum > (spectrum.mean(0) if len(pictures) >= _FEW else 0)
    bits = above.reshape(-1, _BITS, _BANDS).swapaxes(1, 2)
    return np.packbits(bits, axis=2).view(np.uint16)[..., 0]
