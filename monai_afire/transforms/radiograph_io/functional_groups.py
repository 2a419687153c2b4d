# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Functional groups of enhanced DICOM objects (PS3.3, C.7.6.16): they hold what other objects have on top."""

from __future__ import annotations

import pydicom

_TRANSFORMATION = ("RescaleSlope", "RescaleIntercept", "RescaleType")
_WINDOW = ("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence")
# Macro of the functional groups -> elements in it that say how the one frame is shown, or how large its pixels are.
_MACROS = {
    "PixelValueTransformationSequence": _TRANSFORMATION,
    "FrameVOILUTSequence": _WINDOW,
    "PixelMeasuresSequence": ("PixelSpacing",),
    "FramePixelDataPropertiesSequence": ("ImagerPixelSpacing",),
}


def lift_functional_groups(dataset: pydicom.Dataset) -> None:
    """
    Copy what the functional groups of a file with one frame say to where other objects say it.

    A group of the frame comes before one that all frames share, and both before what stands on top: the standard
    keeps these elements in the groups alone, so one on top is a leftover.
    """
    for name in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        groups = dataset.get(name)
        if not groups:
            continue
        for macro, keywords in _MACROS.items():
            items = groups[0].get(macro)
            if items:
                _lift(items[0], keywords, dataset)


def _lift(item: pydicom.Dataset, keywords: tuple[str, ...], dataset: pydicom.Dataset) -> None:
    """Copy the elements of a macro; what it lacks of a window is no part of another window."""
    for keyword in keywords:
        tag = pydicom.tag.Tag(keyword)
        if tag in item:
            dataset[tag] = item.get_item(tag)  # unparsed: what is not needed may be invalid
        elif keywords is _WINDOW and tag in dataset:
            del dataset[tag]
