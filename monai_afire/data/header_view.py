# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a DICOM header says against a file being a frontal radiograph of the chest."""

from __future__ import annotations

from pydicom.dataset import Dataset
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
    XRayRadiofluoroscopicImageStorage,
)

VIEW_ELEMENTS = ("SOPClassUID", "BodyPartExamined", "ViewPosition", "PatientOrientation")
_RADIOGRAPHS = (
    "",
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
    XRayRadiofluoroscopicImageStorage,
)
_CHEST = ("CHEST", "THORAX", "LUNG")
_FRONTAL = ("AP", "PA", "FRONT")


def other_than_frontal_chest(header: Dataset) -> str:
    """
    Name the elements of a header that contradict a frontal chest radiograph.

    Args:
        header: with those of ``VIEW_ELEMENTS`` that the file has; an absent or empty one says nothing.

    Returns:
        The elements and their values, "" where nothing contradicts.

    Example:
        >>> header = Dataset()
        >>> header.ViewPosition, header.BodyPartExamined = "LL", "CHEST"
        >>> other_than_frontal_chest(header)
        'ViewPosition LL'
    """
    sop_class, part, view = (header.get(keyword) or "" for keyword in VIEW_ELEMENTS[:3])
    orientation = [str(direction) for direction in header.get("PatientOrientation") or ()]
    found = [] if sop_class in _RADIOGRAPHS else [getattr(sop_class, "name", str(sop_class))]
    if part and not any(word in str(part).upper() for word in _CHEST):
        found.append(f"BodyPartExamined {part}")
    if view and not str(view).upper().startswith(_FRONTAL):
        found.append(f"ViewPosition {view}")
    # the rows run to the patient's left, the columns to the feet
    if len(orientation) == 2 and [direction[:1] for direction in orientation] != ["L", "F"]:
        found.append(f"PatientOrientation {'/'.join(orientation)}")
    return ", ".join(found)
