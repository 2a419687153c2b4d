# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which of many images count as abnormal, at a bounded share of false ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import false_discovery_control


def discoveries(p_values: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """
    Images that the procedure of Benjamini and Hochberg calls abnormal.

    On average, at most a share ``rate`` of them is normal. This holds for conformal p-values, too (Bates et al. 2023).

    Args:
        p_values: ``(M,)`` in [0, 1], or NaN for unknown.
        rate: false discovery rate in (0, 1).

    Returns:
        ``(M,)``.

    Raises:
        ValueError: for a rate out of range.

    Example:
        >>> discoveries([0.01, 0.02, 0.2, 0.9], rate=0.1).tolist()
        [True, True, False, False]
    """
    if not 0 < rate < 1:
        raise ValueError(f"the false discovery rate must be in (0, 1), got {rate}")
    values = np.asarray(p_values, dtype=float)
    found = np.zeros(values.shape, dtype=bool)
    known = np.isfinite(values)
    if known.any():
        found[known] = false_discovery_control(values[known]) <= rate
    return found
