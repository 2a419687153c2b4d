# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Scores as DICOM Structured Report, which an archive keeps beside the radiograph and other programs can read."""

from __future__ import annotations

import logging
import math
from hashlib import sha256
from typing import Any

from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import UID, generate_uid

from monai_afire.apps.worklist.secondary_capture import (
    NEEDED,
    PATIENT_AND_STUDY,
    study_elements,
    time_at,
)
from monai_afire.apps.worklist.source_header import whole_number
from monai_afire.networks.weights.description import Description
from monai_afire.transforms.radiograph_files import WRITER

_SCHEME = "99MONAIAFIRE"  # "99" begins private coding schemes (PS3.16, section 8.2)
_SCORE = Code("score", _SCHEME, "Anomaly score")
_P_VALUE = Code("p_value", _SCHEME, "Conformal p-value of the anomaly score")
_NOT_JUDGED = Code("not_judged", _SCHEME, "Not like the images that the detector knows")
_LONGEST_MEANING = 64  # characters of a Code Meaning
_SERIES_OFFSET = 2000  # behind the series of the Secondary Captures
_SIDES = {"right": codes.SCT.Right, "left": codes.SCT.Left}
_ZONES = {
    "upper": codes.SCT.UpperZoneOfLung,
    "middle": codes.SCT.MiddleZoneOfLung,
    "lower": codes.SCT.LowerZoneOfLung,
}
_SITES = {
    **{
        f"{side} lung, {zone} zone": (_ZONES[zone], _SIDES[side])
        for side in _SIDES
        for zone in _ZONES
    },
    "between the lungs": (codes.SCT.Mediastinum,),
    "outside the lungs": (codes.SCT.Chest,),
}


def highdicom_reports() -> Any:
    """
    The part of highdicom that writes reports.

    Returns:
        The module ``highdicom.sr``.

    Raises:
        ImportError: when highdicom is not installed, with the remedy.
    """
    try:
        from highdicom import sr
    except ImportError as error:
        raise ImportError(
            f"{error}; highdicom writes reports (SR): pip install 'monai-afire[sr]'"
        ) from error
    logging.getLogger("highdicom").setLevel(logging.WARNING)  # or each report logs what it copies
    return sr


def structured_report(
    source: Dataset,
    score: float,
    threshold: float,
    p_value: float,
    place: str,
    model: Description,
    not_judged: str = "",
) -> Dataset:
    """
    A score as Measurement Report (TID 1500 of PS3.16) in the study of its source, in a series of its own.

    It has the score, its threshold and its p-value as measurements, the place as finding site, and name, version and
    digest of the model as algorithm. It is unverified and preliminary. UIDs follow from those of the source and from
    the content, as those of :func:`monai_afire.apps.worklist.secondary_capture` do.

    Args:
        source: of :func:`monai_afire.apps.worklist.read_source`.
        score: fused score.
        threshold: of the score; NaN leaves it out.
        p_value: conformal p-value; NaN leaves it out.
        place: of :func:`monai_afire.apps.worklist.lung_zone`; "" leaves it out.
        model: name, version and digest of the detector, see :class:`monai_afire.networks.ModelFile`.
        not_judged: why the normal images say nothing about this one; an evaluation then says so.

    Returns:
        The data set, to be saved.

    Raises:
        ImportError: when highdicom is not installed.
        NoStudyError: when the source lacks a UID that the standard demands.

    Example:
        >>> source = Dataset()
        >>> source.StudyInstanceUID, source.SeriesInstanceUID, source.SOPInstanceUID = "1.2.1", "1.2.2", "1.2.3"
        >>> source.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
        >>> model = Description("anomaly detector", digest="sha256:0", version="1.0.0")
        >>> report = structured_report(source, 2.5, 2.0, 0.01, "right lung, upper zone", model)
        >>> report.StudyInstanceUID, report.Modality, report.VerificationFlag
        ('1.2.1', 'SR', 'UNVERIFIED')
    """
    sr, elements = highdicom_reports(), study_elements(source)
    numbers = {_SCORE: score, codes.DCM.ThresholdValue: threshold, _P_VALUE: p_value}
    measured = {
        name: float(f"{value:.6g}") for name, value in numbers.items() if math.isfinite(value)
    }
    content = repr((list(measured.values()), place, model.digest, not_judged))
    uid = _uid(source.SOPInstanceUID, sha256(content.encode()).hexdigest())
    image = sr.SourceImageForMeasurementGroup(source.SOPClassUID, source.SOPInstanceUID)
    group = sr.MeasurementsAndQualitativeEvaluations(
        sr.TrackingIdentifier(_uid("tracking", uid), "whole image"),
        algorithm_id=_algorithm(sr, model),
        finding_sites=[sr.FindingSite(*_SITES[place])] if place else [],
        measurements=[
            sr.Measurement(name, value, codes.UCUM.NoUnits) for name, value in measured.items()
        ],
        qualitative_evaluations=_evaluations(sr, not_judged),
        source_images=[image],
    )
    report = _report(sr, source, group, model, uid)
    report.update(elements)
    now = time_at(source)
    report.ContentDate = report.InstanceCreationDate = f"{now:%Y%m%d}"
    report.ContentTime = report.InstanceCreationTime = f"{now:%H%M%S}"
    return report


def _report(sr: Any, source: Dataset, group: Any, model: Description, uid: UID) -> Any:
    """The report of a group of measurements, which knows neither patient nor study yet."""
    observer = _observer(sr, model)
    return sr.ComprehensiveSR(
        [_evidence(source)],
        sr.MeasurementReport(observer, codes.LN.XRUnspecifiedBodyRegion, [group])[0],
        series_instance_uid=_uid(source.SeriesInstanceUID),
        series_number=whole_number(source, "SeriesNumber", 0, _SERIES_OFFSET),
        sop_instance_uid=uid,
        instance_number=whole_number(source, "InstanceNumber", 1),
        manufacturer=WRITER,
        manufacturer_model_name=model.task,
        software_versions=_version(model),
        series_description="Anomaly score, not for clinical use",
        is_complete=True,
    )


def _version(model: Description) -> str:
    return model.version or "unknown"


def _algorithm(sr: Any, model: Description) -> Any:
    """What measured."""
    return sr.AlgorithmIdentification(
        model.task,
        version=_version(model),
        parameters=[f"digest {model.digest or 'unknown'}"],
        manufacturer=WRITER,
    )


def _evaluations(sr: Any, not_judged: str) -> list[Any]:
    """Why the image is not judged, if it is not."""
    if not not_judged:
        return []
    reason = Code("reason", _SCHEME, not_judged[:_LONGEST_MEANING])
    return [sr.QualitativeEvaluation(_NOT_JUDGED, reason)]


def _observer(sr: Any, model: Description) -> Any:
    """That a device made the report."""
    device = sr.DeviceObserverIdentifyingAttributes(
        _uid("device", str(model.digest)), WRITER, WRITER, model.task
    )
    return sr.ObservationContext(
        observer_device_context=sr.ObserverContext(codes.DCM.Device, device)
    )


def _uid(*parts: str) -> UID:
    return generate_uid(entropy_srcs=["monai_afire report", *parts])


def _evidence(source: Dataset) -> Dataset:
    """What the report refers to, without the patient, whose elements are copied later as they are, valid or not."""
    evidence = Dataset()
    for keyword in (*NEEDED, *PATIENT_AND_STUDY):
        setattr(evidence, keyword, source[keyword].value if keyword in NEEDED else None)
    return evidence
