# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weighted conformal p-values by the words of Tibshirani et al. (2019), with fractions in place of floats."""

from __future__ import annotations

from fractions import Fraction


def weighted_p_value(
    score: float, normal_scores: list[float], normal_weights: list[int], weight: int
) -> Fraction:
    """Probability that a point drawn by the weights, among the normal ones and the new one, is as high."""
    total = Fraction(weight)
    for each in normal_weights:
        total += each
    as_high = Fraction(weight)
    for normal, each in zip(normal_scores, normal_weights, strict=True):
        if normal >= score:
            as_high += each
    return as_high / total
