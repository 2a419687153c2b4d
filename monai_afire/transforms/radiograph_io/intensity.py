# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Scaling of a file's numbers to [0, 1], so that versions of one picture in different formats agree."""

from __future__ import annotations

import math

import numpy as np

from monai_afire.transforms.radiograph_io.common import RadiographPixels, refuse, warn_about

_WIDEST_SPAN = 2.0**64  # of the numbers of a file: what the widest integers hold


def repaired(path: str, values: np.ndarray) -> np.ndarray:
    """Replace NaN and -Inf by the smallest finite number, +Inf by the largest, with a warning that counts them."""
    if values.dtype.kind != "f":
        return values
    finite = np.isfinite(values)
    bad = int(values.size - np.count_nonzero(finite))
    if bad == 0:
        return values
    if bad == values.size:
        raise refuse(path, f"has no finite pixel: all {bad} are NaN or infinite", "export it again")
    low, high = values[finite].min(), values[finite].max()
    found = f"has {bad} pixels that are NaN or infinite"
    warn_about(path, f"{found}, replaced by its smallest and largest finite number")
    return np.nan_to_num(values, nan=low, neginf=low, posinf=high)


def check_span(path: str, values: np.ndarray) -> None:
    """Refuse finite numbers so far apart that all others would become one gray level, or the difference infinite."""
    if values.dtype.kind != "f":
        return
    low, high = float(values.min()), float(values.max())
    if not high - low <= _WIDEST_SPAN:
        reason = f"holds numbers from {low:.3g} to {high:.3g}, which no detector gives and may mean missing pixels"
        raise refuse(path, reason, "replace those by NaN, or export it again")


def depth_range(values: np.ndarray, floor: float | None = None) -> tuple[float, float]:
    """Range of the detector behind a picture."""
    low, high = float(values.min()), float(values.max())
    fractions = values.dtype.kind == "f"
    if fractions:
        if low < 0 and -low <= 0.01 * high:  # overshoot of an interpolation is not a signed picture
            low = 0.0
        if low >= 0 and high <= 1:
            return 0.0, 1.0
        if (low < 0 or high < 128) and not np.array_equal(values, np.rint(values)):
            return low, high
    start = min(0.0, low) if floor is None else floor
    span = (high - start) / (1.01 if fractions else 1.0)
    bits = max(8, math.ceil(math.log2(span + 1)))
    return start, start + 2.0**bits - 1.0


def scale_to_unit(pixels: RadiographPixels, scaling: str) -> tuple[np.ndarray, tuple[float, float]]:
    """Scale a decoded picture to [0, 1], bright where the file means bright."""
    values = pixels.values
    is_whole = values.dtype.kind in "iu"
    if is_whole and values.dtype != np.uint64 and (pixels.inverted or values.dtype.itemsize > 2):
        # signed and wide enough to be mirrored; whole numbers stay whole, and nothing signed holds those of 64 bits
        values = values.astype(np.int32 if values.dtype.itemsize <= 2 else np.int64)
    inside = values if pixels.padding is None else values[~pixels.padding]
    declared = pixels.declared_range
    mirror: float | None = None
    if pixels.inverted and scaling == "depth" and declared and _fills(inside, declared):
        # Mirroring within the declared range gives the numbers of the MONOCHROME2 twin, scaled by the same rule.
        mirror = int(sum(declared)) if is_whole else sum(declared)
        values, inside = mirror - values, mirror - inside
    low, high = float(inside.min()), float(inside.max())
    if scaling == "depth":
        low, high = depth_range(inside, pixels.floor)
    unit = values.astype(np.float64 if values.dtype.itemsize > 4 else np.float32)
    unit -= low  # in place: a new picture for each step takes longer than the step
    unit /= max(high - low, 1e-30)
    unit = np.clip(unit, 0.0, 1.0, out=unit).astype(np.float32, copy=False)
    if pixels.inverted and mirror is None:
        unit, low, high = np.float32(1.0) - unit, high, low
    if mirror is not None:
        low, high = mirror - low, mirror - high
    factor, summand = pixels.slope
    return unit, (factor * low + summand, factor * high + summand)


def _fills(values: np.ndarray, declared: tuple[float, float]) -> bool:
    """Whether a picture fills more than a quarter of the declared range, which else is only the container's."""
    return float(values.max()) - float(values.min()) > (declared[1] - declared[0]) / 4


def window_to_unit(
    values: np.ndarray, center: float, width: float, function: str = "LINEAR"
) -> np.ndarray:
    """Apply a DICOM window (PS3.3 C.11.2.1.2) with output range [0, 1]."""
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise ValueError(f"unknown VOI LUT function {function!r}")
    is_wide = width >= 1 if function == "LINEAR" else width > 0
    if not (math.isfinite(center) and math.isfinite(width) and is_wide):
        raise ValueError(f"center {center:g} and width {width:g} are no window")
    if function == "SIGMOID":
        return 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - center) / width, -700.0, 700.0)))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1.0
        if width == 0:
            return (values > center).astype(np.float64)
    unit = values - center
    unit /= width  # in place: a new picture for each step takes longer than the step
    unit += 0.5
    return np.clip(unit, 0.0, 1.0, out=unit)
