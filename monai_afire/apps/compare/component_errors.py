# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What principal components of normal images leave of an image: the simplest detector of all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

_NORMAL_COMPONENTS = 32  # that restore a normal image


def pca_errors(normal: NDArray, scored: NDArray, strongest: float = 1.0) -> NDArray:
    """
    Squared error ``(M,)`` of rows of pixels that the principal components of normal ones restore.

    ``strongest`` is the share of the pixels that are averaged, those with the largest error.
    """
    components = PCA(
        min(_NORMAL_COMPONENTS, len(normal) - 1), svd_solver="randomized", random_state=0
    ).fit(normal)
    errors = (components.inverse_transform(components.transform(scored)) - scored) ** 2
    kept = max(1, round(strongest * errors.shape[1]))
    return np.partition(errors, -kept, axis=1)[:, -kept:].mean(1)
