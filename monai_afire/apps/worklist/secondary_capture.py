# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of results as DICOM Secondary Capture, to be opened beside the radiograph that they were made of."""

from __future__ import annotations

import os
from collections.abc import Collection
from copy import deepcopy
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

from monai_afire.apps.intake.dicom_header import NotDICOMError, read_header
from monai_afire.apps.worklist.source_header import make_copyable, whole_number
from monai_afire.transforms.radiograph_files import WRITER

NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPClassUID", "SOPInstanceUID")
# Type 2 of the modules Patient and General Study: present, though they may be empty
PATIENT_AND_STUDY = (
    "PatientName",
    "PatientID",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "ReferringPhysicianName",
    "StudyID",
    "AccessionNumber",
)
_IF_PRESENT = (
    "SpecificCharacterSet",
    "TimezoneOffsetFromUTC",
    "IssuerOfPatientID",
    "PatientIdentityRemoved",
    "DeidentificationMethod",
    "DeidentificationMethodCodeSequence",
    "StudyDescription",
    "IssuerOfAccessionNumberSequence",
    "PatientAge",
    "PatientSize",
    "PatientWeight",
)
_OF_THE_IMAGE = (
    "PatientOrientation",  # rows and columns of both halves run as those of the source
    "BodyPartExamined",
    "Laterality",
    "LossyImageCompression",  # what was lost once stays lost
    "LossyImageCompressionRatio",
    "LossyImageCompressionMethod",
)
_SERIES_OFFSET = 1000  # behind the series of the examination in a viewer's list


class NoStudyError(ValueError):
    """A file that belongs to no DICOM study, or does not say to which."""


def read_source(
    path: str | os.PathLike, keywords: Collection[str] = (*NEEDED, *PATIENT_AND_STUDY)
) -> Dataset:
    """
    Read the header of a DICOM file without its pixels.

    Args:
        path: the file.
        keywords: elements to read at least; what a result copies by default.

    Returns:
        The elements that the file has; texts in another character set than it states are Unicode, and said to be.

    Raises:
        NoStudyError: when it is no DICOM file.
    """
    tags = [
        *keywords,
        *_IF_PRESENT,
        *_OF_THE_IMAGE,
        "SeriesNumber",
        "InstanceNumber",
        "BurnedInAnnotation",
    ]
    try:
        header = read_header(path, tags)
    except NotDICOMError as error:
        raise NoStudyError(f"{error}: it belongs to no study") from error
    make_copyable(header)
    return header


def secondary_capture(picture: NDArray[np.uint8], source: Dataset, derivation: str) -> Dataset:
    """
    A picture of results as Secondary Capture Image (PS3.3, A.8.1) in the study of its source, in a series of its own.

    UIDs follow from those of the source and from the picture: the same picture is the same instance whenever it is
    made, another one is another instance. Only Content Date and Time depend on when that was.

    Args:
        picture: ``(rows, columns, 3)``, the colors red, green and blue.
        source: of :func:`read_source`.
        derivation: what the picture says, for Derivation Description.

    Returns:
        The data set, to be saved.

    Raises:
        NoStudyError: when the source lacks a UID that the standard demands.

    Example:
        >>> source = Dataset()
        >>> source.StudyInstanceUID, source.SeriesInstanceUID, source.SOPInstanceUID = "1.2.1", "1.2.2", "1.2.3"
        >>> source.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
        >>> capture = secondary_capture(np.zeros((4, 4, 3), np.uint8), source, "score 1.0")
        >>> capture.StudyInstanceUID, capture.SourceImageSequence[0].ReferencedSOPInstanceUID
        ('1.2.1', '1.2.3')
    """
    capture = study_elements(source)
    capture.PatientOrientation = ""  # type 2 of General Image
    for keyword in _OF_THE_IMAGE:
        if keyword in source:
            capture[keyword] = deepcopy(source[keyword])
    _add_instance(capture, source, sha256(picture.tobytes()).hexdigest())
    _add_derivation(capture, source, derivation)
    capture.set_pixel_data(np.ascontiguousarray(picture), "RGB", 8, generate_instance_uid=False)
    return capture


def study_elements(source: Dataset) -> Dataset:
    """
    What a result of an image shares with it: the elements of patient and study.

    Args:
        source: of :func:`read_source`.

    Returns:
        A new data set; what the source lacks and the standard demands is empty.

    Raises:
        NoStudyError: when the source lacks a UID that the standard demands.
    """
    missing = [keyword for keyword in NEEDED if not source.get(keyword)]
    if missing:
        name = source.get("filename") or "the DICOM file"
        raise NoStudyError(
            f"{name} has no {', '.join(missing)}: it says not where it belongs; export it again"
        )
    elements = Dataset()
    elements.StudyInstanceUID = source.StudyInstanceUID
    for keyword in (*PATIENT_AND_STUDY, *_IF_PRESENT):
        if keyword in source:
            elements[keyword] = deepcopy(source[keyword])
        elif keyword in PATIENT_AND_STUDY:
            setattr(elements, keyword, "")
    return elements


def time_at(source: Dataset) -> datetime:
    """The time in the source's time zone, which a result copies; the local one where it names none."""
    offset = source.get("TimezoneOffsetFromUTC")
    return datetime.now(datetime.strptime(offset, "%z").tzinfo if offset else None)


def _add_instance(capture: Dataset, source: Dataset, content: str) -> None:
    """Which study, series and instance it is, and what made it."""
    capture.SeriesInstanceUID = generate_uid(
        entropy_srcs=["monai_afire anomaly", source.SeriesInstanceUID]
    )
    capture.SOPInstanceUID = generate_uid(
        entropy_srcs=["monai_afire anomaly", source.SOPInstanceUID, content]
    )
    capture.SOPClassUID = SecondaryCaptureImageStorage
    capture.Modality = "OT"
    now = time_at(source)
    capture.ContentDate, capture.ContentTime = f"{now:%Y%m%d}", f"{now:%H%M%S}"
    capture.SeriesNumber = whole_number(source, "SeriesNumber", 0, _SERIES_OFFSET)
    capture.InstanceNumber = whole_number(source, "InstanceNumber", 1)
    capture.SeriesDescription = "Anomaly heat map, not for clinical use"
    capture.SecondaryCaptureDeviceManufacturer = WRITER
    capture.SecondaryCaptureDeviceSoftwareVersions = version("monai_afire")
    capture.file_meta = FileMetaDataset()
    capture.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    capture.file_meta.MediaStorageSOPClassUID = capture.SOPClassUID
    capture.file_meta.MediaStorageSOPInstanceUID = capture.SOPInstanceUID


def _add_derivation(capture: Dataset, source: Dataset, derivation: str) -> None:
    """What it was made of, and that it can be no substitute for it."""
    purpose = Dataset()
    purpose.CodeValue, purpose.CodingSchemeDesignator = "121322", "DCM"
    purpose.CodeMeaning = "Source image for image processing operation"
    origin = Dataset()
    origin.ReferencedSOPClassUID, origin.ReferencedSOPInstanceUID = (
        source.SOPClassUID,
        source.SOPInstanceUID,
    )
    origin.PurposeOfReferenceCodeSequence = [purpose]
    capture.SourceImageSequence = [origin]
    capture.ImageType = ["DERIVED", "SECONDARY"]
    capture.ConversionType = "WSD"  # workstation
    capture.DerivationDescription = (
        f"Radiograph reduced to 8 bits, beside it with anomaly heat map: {derivation}"
    )
    # what was burned into the source can be read here too; a source that does not say so may have something
    capture.BurnedInAnnotation = "NO" if source.get("BurnedInAnnotation") == "NO" else "YES"
