# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Simple alternatives to an encoder: principal components of the pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

_FEATURE_COMPONENTS = 100  # that a probe learns from


def pixel_components(pixels: NDArray, training: NDArray, seed: int = 0) -> NDArray:
    """Principal components ``(M, C)`` of rows of pixels ``(M, P)``, by the training rows: at most 100."""
    known = pixels[training]
    # centered, N images span N - 1 axes: a further component would be rounding, which standardization makes a feature
    rank = max(1, min(len(known) - 1, known.shape[1]))
    components = PCA(min(_FEATURE_COMPONENTS, rank), svd_solver="randomized", random_state=seed)
    with np.errstate(invalid="ignore"):
        # one image has no variance, of which scikit-learn takes shares
        return components.fit(known).transform(pixels)
