# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the values of two or more options must have to do with one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RELATIONS", "Relation"]


@dataclass(frozen=True)
class Relation:
    """
    A condition on options that a config reads together.

    Args:
        names: of the options.
        holds: called with their values, in this order.
        condition: what is wrong and what to do, with the values to be filled in.
        without: an option whose presence says that the condition is of another bundle.
        nulls: whether the condition speaks of null as of any other value; else it holds where one of them is null.

    Example:
        >>> heads = Relation(("num_heads", "hidden_size"), lambda n, d: d % n == 0, "{0} does not divide {1}")
        >>> heads.violated_by({"num_heads": 5, "hidden_size": 192})
        '5 does not divide 192'
        >>> heads.violated_by({"num_heads": 5}) is None
        True
    """

    names: tuple[str, ...]
    holds: Callable[..., bool]
    condition: str
    without: str | None = None
    nulls: bool = False

    def violated_by(self, values: Mapping[str, Any]) -> str | None:
        """The condition in words if these values violate it; None if they do not, or one is not among them."""
        if self.without in values or not all(name in values for name in self.names):
            return None
        found = [values[name] for name in self.names]
        if None in found and not self.nulls:
            return None
        return None if self.holds(*found) else self.condition.format(*found)


def _divides(divisor: int | list[int], number: int | list[int]) -> bool:
    return all(whole % part == 0 for part, whole in _per_axis(divisor, number))


def _per_axis(*values: int | list[int]) -> list[tuple[int, ...]]:
    """The values along each axis, of which some have one for all."""
    axes = max((len(value) for value in values if isinstance(value, list)), default=1)
    return list(zip(*(value if isinstance(value, list) else [value] * axes for value in values), strict=True))


def _is_one(_: Any, *sides: int | list[int]) -> bool:
    return not any(isinstance(side, list) for side in sides)


def _fits_axes(dims: int, *sides: int | list[int]) -> bool:
    return all(not isinstance(side, list) or len(side) == dims for side in sides)


_CUBES = "image_size {1} and patch_size {2}: this method's crops have one size along all axes; give a number each"

RELATIONS = (
    Relation(
        ("spatial_dims", "image_size", "patch_size"),
        _fits_axes,
        "image_size {1} and patch_size {2} are not one number each, or one for each of spatial_dims {0} axes",
    ),
    Relation(
        ("spatial_dims", "spacing"),
        _fits_axes,
        "spacing {1} is not one number, or one for each of spatial_dims {0} axes",
    ),
    Relation(
        ("spatial_dims", "spacing"),
        lambda dims, _: dims == 3,
        "spacing {1} is for volumes, and spatial_dims is {0}; leave it out",
    ),
    Relation(
        ("spatial_dims", "saved"),
        lambda dims, kinds: dims == 2 or "dicom" not in kinds,
        "saved {1} has dicom, a Secondary Capture of a picture, but spatial_dims is {0}; take maps, which are NIfTI",
    ),
    Relation(
        ("spatial_dims", "augmentation"),
        lambda dims, name: dims == 2 or name != "AnatPaste",
        "augmentation {1} looks for lungs in a projection, but spatial_dims is {0}; take SynthLesionMask or CutPaste",
    ),
    Relation(
        ("spatial_dims", "field_of_view"),
        lambda dims, field: dims == 2 or field == "image",
        "field_of_view {1} is for frontal radiographs, and spatial_dims is {0}; leave it out",
    ),
    Relation(
        ("cover_volume", "spacing"),
        lambda cover, spacing: not cover or spacing is not None,
        "cover_volume is {0} and spacing {1}: windows of one size need voxels of one size; give spacing in millimetres",
        nulls=True,
    ),
    Relation(
        ("spatial_dims", "intensity_window"),
        lambda dims, _: dims == 3,
        "intensity_window {1} is for volumes, and spatial_dims is {0}; leave it out",
    ),
    Relation(
        ("spatial_dims", "channels"),
        lambda dims, channels: channels == 1 or (dims == 2 and channels == 3),
        "channels is {1} with spatial_dims {0}: pictures have 1 or 3, volumes 1",
    ),
    Relation(("grid", "image_size", "patch_size"), _is_one, _CUBES),
    Relation(("num_local_crops", "image_size", "patch_size"), _is_one, _CUBES),
    Relation(("mask_ratio", "image_size", "patch_size"), _is_one, _CUBES),
    Relation(
        ("num_heads", "hidden_size"),
        _divides,
        "num_heads {0} does not divide hidden_size {1}, of which every head gets the same share; change either",
    ),
    Relation(
        ("decoder_heads", "decoder_dim"),
        _divides,
        "decoder_heads {0} does not divide decoder_dim {1}, of which every head gets the same share; change either",
    ),
    Relation(
        ("decoder_dim",),
        lambda width: width % 4 == 0,
        "decoder_dim {0} is no multiple of 4, as sine and cosine of row and column need; round it",
    ),
    Relation(
        ("patch_size", "image_size"),
        _divides,
        "patch_size {0} does not divide image_size {1}, which whole patches must fill; change either",
    ),
    Relation(
        ("patch_size", "local_size"),
        _divides,
        "patch_size {0} does not divide local_size {1}, which whole patches must fill; change either",
    ),
    Relation(
        ("stride", "patch_size"),
        _divides,
        "stride {0} does not divide patch_size {1}; give a divisor",
    ),
    Relation(
        ("grid", "image_size", "patch_size"),
        lambda grid, image, patch: all(grid * p >= side for side, p in _per_axis(image, patch)),
        "grid {0} has fewer cells on a side than a crop has patches (image_size {1} / patch_size {2}); enlarge it",
        without="cell",
    ),
    Relation(
        ("grid", "image_size", "patch_size", "cell"),
        lambda grid, image, patch, _: all(grid * p >= 2 * side for side, p in _per_axis(image, patch)),
        "grid {0} has fewer cells on a side than the larger crop has (2 * image_size {1} / patch_size {2}); enlarge it",
    ),
    Relation(
        ("hidden_size", "cell"),
        lambda width, _: width % 4 == 0,
        "hidden_size {0} is no multiple of 4, but a token is divided among the four parts of its patch; round it",
    ),
    Relation(
        ("network_def::contrast_space", "loss::similarity"),
        lambda space, similarity: space != "features" or similarity == "cosine",
        "contrast_space {0} with loss::similarity {1}: features are no probabilities; give --loss::similarity cosine",
        nulls=True,
    ),
    Relation(
        ("window",),
        lambda side: side % 2 == 1,
        "window {0} is even, but the landmark is in the middle; give an odd number",
    ),
    Relation(
        ("fold", "num_folds"),
        lambda fold, number: fold < number,
        "fold {0} does not exist, num_folds {1} are counted from 0; give a smaller number",
    ),
)
