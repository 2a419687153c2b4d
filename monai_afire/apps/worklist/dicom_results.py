# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Results as DICOM in the study of their source, by highdicom: pictures (Secondary Capture) and scores (report)."""

from __future__ import annotations

import logging
import math
import os
import re
from copy import deepcopy
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import UID, generate_uid

from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.networks.weights.description import Description
from monai_afire.transforms.radiograph_files import WRITER
from monai_afire.transforms.radiograph_header import NotDICOMError, read_header

_NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPClassUID", "SOPInstanceUID")
# type 2 of the modules Patient and General Study: present, though they may be empty
_PATIENT_AND_STUDY = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime"),
    *("ReferringPhysicianName", "StudyID", "AccessionNumber"),
)
_IF_PRESENT = (
    *("SpecificCharacterSet", "TimezoneOffsetFromUTC", "IssuerOfPatientID"),
    *("PatientIdentityRemoved", "DeidentificationMethod", "DeidentificationMethodCodeSequence"),
    *("StudyDescription", "IssuerOfAccessionNumberSequence"),
    *("PatientAge", "PatientSize", "PatientWeight"),
)
# rows and columns of both halves run as those of the source, and what was lost once stays lost
_OF_THE_IMAGE = (
    *("PatientOrientation", "BodyPartExamined", "Laterality"),
    *("LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod"),
)
_OTHERS = ("SeriesNumber", "InstanceNumber", "BurnedInAnnotation")
# offsets that put the series behind those of the examination in a viewer's list
_CAPTURES, _REPORTS = 1000, 2000
_UNICODE = "ISO_IR 192"
_SCHEME = "99MONAIAFIRE"  # "99" begins private coding schemes (PS3.16, section 8.2)
_SCORE = Code("score", _SCHEME, "Anomaly score")
_P_VALUE = Code("p_value", _SCHEME, "Conformal p-value of the anomaly score")
_NOT_JUDGED = Code("not_judged", _SCHEME, "Not like the images that the detector knows")
_LONGEST_MEANING = 64  # characters of a Code Meaning
_SIDES = {"right": codes.SCT.Right, "left": codes.SCT.Left}
_ZONES = {
    "upper": codes.SCT.UpperZoneOfLung,
    "middle": codes.SCT.MiddleZoneOfLung,
    "lower": codes.SCT.LowerZoneOfLung,
}
_LUNG_SITES = {
    f"{side} lung, {zone} zone": (_ZONES[zone], _SIDES[side]) for side in _SIDES for zone in _ZONES
}
_SITES = {
    **_LUNG_SITES,
    "between the lungs": (codes.SCT.Mediastinum,),
    "outside the lungs": (codes.SCT.Chest,),
}


class NoStudyError(ValueError):
    """A file that belongs to no DICOM study, or does not say to which."""


def highdicom() -> Any:
    """The library that writes DICOM results; ImportError names the remedy."""
    try:
        import highdicom as library
        import highdicom.sc
        import highdicom.sr
    except ImportError as error:
        remedy = "DICOM results need highdicom: pip install 'monai-afire[dicom]'"
        raise ImportError(f"{error}; {remedy}") from error
    logging.getLogger("highdicom").setLevel(logging.ERROR)  # or each result logs what it copies
    return library


def read_source(path: str | os.PathLike) -> Dataset:
    """
    Read what results copy of a DICOM file's header; a file of another kind raises ``NoStudyError``.

    Texts without a stated character set are taken for UTF-8 where they can be.
    """
    keywords = (*_NEEDED, *_PATIENT_AND_STUDY, *_IF_PRESENT, *_OF_THE_IMAGE, *_OTHERS)
    try:
        header = read_header(path, keywords)
    except NotDICOMError as error:
        raise NoStudyError(f"{error}: it belongs to no study") from error
    if not header.get("SpecificCharacterSet") and _is_utf8(header):
        is_implicit, is_little_endian = header.original_encoding
        header.set_original_encoding(is_implicit, is_little_endian, "utf8")
        header.SpecificCharacterSet = _UNICODE
    header.decode()  # items of sequences, too, before the result states Unicode
    return header


def _is_utf8(header: Dataset) -> bool:
    """Whether the bytes of a header's patient and study, which were not decoded yet, are UTF-8."""
    elements = [header.get_item(keyword) for keyword in _PATIENT_AND_STUDY]
    values = [each.value or b"" for each in elements if isinstance(each, RawDataElement)]
    try:
        b" ".join(values).decode("utf-8")
    except UnicodeError:
        return False
    return True


def secondary_capture(picture: NDArray[np.uint8], source: Dataset, derivation: str) -> Dataset:
    """
    A picture of results as Secondary Capture Image (PS3.3, A.8.1) in the study of its source, in a series of its own.

    UIDs follow from those of the source and from the picture: the same picture is the same instance whenever it is
    made, another one is another instance. Only dates and times depend on when that was. The picture is ``(rows,
    columns, 3)``; ``derivation`` says what it shows. A source without a UID that the standard demands is refused.
    """
    capture = highdicom().sc.SCImage(
        np.ascontiguousarray(picture),
        "RGB",
        8,
        "PATIENT",
        patient_orientation=("L", "F"),  # until that of the source is copied
        study_instance_uid=source.get("StudyInstanceUID"),
        series_description="Anomaly heat map, not for clinical use",
        **_instance(source, _CAPTURES, sha256(picture.tobytes()).hexdigest()),
    )
    capture.PatientOrientation = ""
    _copy_patient_and_study(capture, source)
    for keyword in _OF_THE_IMAGE:
        if keyword in source:
            capture[keyword] = deepcopy(source[keyword])
    _add_derivation(capture, source, derivation)
    return capture


def _add_derivation(capture: Dataset, source: Dataset, derivation: str) -> None:
    """What it was made of and by, and that it can be no substitute for it."""
    origin = Dataset()
    origin.ReferencedSOPClassUID = source.SOPClassUID
    origin.ReferencedSOPInstanceUID = source.SOPInstanceUID
    purpose = codes.DCM.SourceImageForImageProcessingOperation
    origin.PurposeOfReferenceCodeSequence = [highdicom().sr.CodedConcept.from_code(purpose)]
    capture.SourceImageSequence = [origin]
    capture.ImageType = ["DERIVED", "SECONDARY"]
    capture.ConversionType = "WSD"  # workstation
    capture.SecondaryCaptureDeviceManufacturer = WRITER  # by which readers know it again
    capture.SecondaryCaptureDeviceSoftwareVersions = version("monai_afire")
    panels = "Radiograph reduced to 8 bits, beside it with anomaly heat map"
    capture.DerivationDescription = f"{panels}: {derivation}"
    # what was burned into the source can be read here too; a source that does not say so may have something
    capture.BurnedInAnnotation = "NO" if source.get("BurnedInAnnotation") == "NO" else "YES"


def structured_report(
    source: Dataset, score: float, judgment: Judgment, place: str, model: Description
) -> Dataset:
    """
    A score as Measurement Report (TID 1500 of PS3.16) in the study of its source, in a series of its own.

    It has the score, its threshold and its p-value as measurements, the place as finding site, and name, version and
    digest of the model as algorithm; NaN and "" are left out. It is unverified and preliminary. UIDs are as of
    :func:`secondary_capture`.
    """
    measured = _measured(score, judgment)
    content = repr((list(measured.values()), place, model.digest, judgment.not_judged))
    instance = _instance(source, _REPORTS, sha256(content.encode()).hexdigest())
    sr, tracking = highdicom().sr, _uid("tracking", instance["sop_instance_uid"])
    group = sr.MeasurementsAndQualitativeEvaluations(
        sr.TrackingIdentifier(tracking, "whole image"),
        algorithm_id=_algorithm(model),
        finding_sites=[sr.FindingSite(*_SITES[place])] if place else [],
        measurements=[
            sr.Measurement(name, value, codes.UCUM.NoUnits) for name, value in measured.items()
        ],
        qualitative_evaluations=_evaluations(judgment.not_judged),
        source_images=[
            sr.SourceImageForMeasurementGroup(source.SOPClassUID, source.SOPInstanceUID)
        ],
    )
    region = codes.LN.XRUnspecifiedBodyRegion
    report = sr.ComprehensiveSR(
        [_evidence(source)],
        sr.MeasurementReport(_observer(model), region, [group])[0],
        manufacturer_model_name=model.task,
        software_versions=_version(model),
        is_complete=True,
        series_description="Anomaly score, not for clinical use",
        **instance,
    )
    _copy_patient_and_study(report, source)
    return report


def _version(model: Description) -> str:
    return model.version or "unknown"


def _algorithm(model: Description) -> Any:
    """What measured."""
    parameters = [f"digest {model.digest or 'unknown'}"]
    identify = highdicom().sr.AlgorithmIdentification
    return identify(model.task, _version(model), parameters=parameters, manufacturer=WRITER)


def _measured(score: float, judgment: Judgment) -> dict[Code, float]:
    """What is known of score, threshold and p-value, to six digits."""
    numbers = {_SCORE: score, codes.DCM.ThresholdValue: judgment.threshold}
    numbers[_P_VALUE] = judgment.p_value
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {name: float(f"{value:.6g}") for name, value in known.items()}


def _evaluations(not_judged: str) -> list[Any]:
    """Why the image is not judged, if it is not."""
    if not not_judged:
        return []
    reason = Code("reason", _SCHEME, not_judged[:_LONGEST_MEANING])
    return [highdicom().sr.QualitativeEvaluation(_NOT_JUDGED, reason)]


def _observer(model: Description) -> Any:
    """That a device made the report."""
    sr, uid = highdicom().sr, _uid("device", str(model.digest))
    device = sr.DeviceObserverIdentifyingAttributes(uid, WRITER, WRITER, model.task)
    return sr.ObservationContext(
        observer_device_context=sr.ObserverContext(codes.DCM.Device, device)
    )


def _evidence(source: Dataset) -> Dataset:
    """What the report refers to, without the patient, who is copied later as the header has it, valid or not."""
    evidence = Dataset()
    for keyword in _NEEDED:
        evidence[keyword] = source[keyword]
    for keyword in _PATIENT_AND_STUDY:
        setattr(evidence, keyword, None)
    return evidence


def _instance(source: Dataset, offset: int, content: str) -> dict[str, Any]:
    """UIDs that follow from the source and the content, and numbers behind those of the source."""
    missing = [keyword for keyword in _NEEDED if not source.get(keyword)]
    if missing:
        name = source.get("filename") or "the DICOM file"
        raise NoStudyError(f"{name} has no {', '.join(missing)}: export it again")
    return {
        "series_instance_uid": _uid(str(offset), source.SeriesInstanceUID),
        "sop_instance_uid": _uid(str(offset), source.SOPInstanceUID, content),
        "series_number": offset + _number(source, "SeriesNumber", 0),
        "instance_number": max(1, _number(source, "InstanceNumber", 1)),
        "manufacturer": WRITER,
    }


def _copy_patient_and_study(made: Dataset, source: Dataset) -> None:
    """Give a result the patient and the study of its source, and the time in the source's time zone."""
    for keyword in (*_PATIENT_AND_STUDY, *_IF_PRESENT):
        if keyword in source:
            made[keyword] = deepcopy(source[keyword])
    made.SpecificCharacterSet = _UNICODE  # whatever the source had
    offset = str(source.get("TimezoneOffsetFromUTC") or "")
    is_zone = re.fullmatch(r"[+-]\d{4}", offset)
    if offset and not is_zone:
        del made.TimezoneOffsetFromUTC
    now = datetime.now(datetime.strptime(offset, "%z").tzinfo if is_zone else None)
    made.ContentDate = made.InstanceCreationDate = f"{now:%Y%m%d}"
    made.ContentTime = made.InstanceCreationTime = f"{now:%H%M%S}"


def _number(source: Dataset, keyword: str, default: int) -> int:
    """A number of the header to which an offset can be added; the default for none, or one out of range."""
    try:
        number = int(source.get(keyword))
    except (TypeError, ValueError):
        return default
    return number if 0 <= number < 2**31 - _REPORTS else default


def _uid(*parts: str) -> UID:
    return generate_uid(entropy_srcs=["monai_afire result", *parts])
