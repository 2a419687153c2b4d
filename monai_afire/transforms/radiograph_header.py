# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Facts of a DICOM file's header: view, what contradicts a frontal chest, sex, age and scanner."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection
from datetime import datetime

import pydicom
from pydicom.dataset import Dataset
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
    XRayRadiofluoroscopicImageStorage,
)

from monai_afire.transforms.radiograph_files import HEAD_BYTES, identify_content
from monai_afire.utils.text import harmless

SCANNER_ELEMENTS = ("Manufacturer", "ManufacturerModelName")
GROUP_ELEMENTS = ("PatientSex", "PatientAge", "ViewPosition", *SCANNER_ELEMENTS)
_VIEW_ELEMENTS = ("SOPClassUID", "BodyPartExamined", "ViewPosition", "PatientOrientation")
_FACTS = (*GROUP_ELEMENTS, *_VIEW_ELEMENTS, "PatientBirthDate", "StudyDate")
_UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError)
_YEARS = {"D": 1 / 365.25, "W": 7 / 365.25, "M": 1 / 12, "Y": 1.0}
_RADIOGRAPHS = (
    "",
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
    XRayRadiofluoroscopicImageStorage,
)


def _pattern(beginnings: str, words: str) -> re.Pattern[str]:
    """Any of the beginnings of words, or of the whole words."""
    starts, whole = ("|".join(each.split()) for each in (beginnings, words))
    return re.compile(rf"\b(?:{starts})|\b(?:{whole})\b")


# Header words have the language of the hospital. One that is not known says nothing against a frontal chest, so only
# what is known to be another part or view does.
_CHEST = re.compile(r"\b(?:CHEST|THORA|TORA|LUNG|PULM|BRUSTKORB|POUMON)")
_OTHER_PART = _pattern(
    """
    ABDOM ADDOM ANKLE BACINO BASSIN BAUCH BECKEN BLADDER BRAIN BREAST CADERA CALCAN CAVIGLIA
    CHEVILLE CLAV COCCYX CODO COLON COLONN COLUMNA COLUNA COTOVELO COUDE CRAN CSPINE CTSPINE
    ELBOW ELLENBOGEN EPAULE EXTREM FEET FEMUR FINGER FOOT FOREARM FUSS GENOU GINOCCHIO
    GOMITO HANCHE HAND HEAD HOMBRO HUEFT HUFT HUMERUS JOELHO KIDNEY KNEE KNIE LENDEN LSPINE
    LSSPINE MAMM MANDIB MANO MAXILLA MUNECA NECK OMBRO ORBIT PATELLA PELV PIED POIGNET POLSO
    PUNHO QUADRIL RACHIS RIB RODILLA SCAPULA SCHADEL SCHAEDEL SCHULTER SHOULDER SINUS SKULL
    SPALLA SPINE SSPINE STERNUM TEETH THIGH THUMB TIBIA TLSPINE TOBILLO TORNOZELO TSPINE
    WIRBEL WRIST
    """,
    "ARM BWS EYE HIP HWS JAW LEG LWS TOE",
)
_OTHER_VIEW = _pattern(
    "AXIAL DECUB LATER OBLI PERFIL PROFIL SCHRAG SEIT TANGENT",
    """
    CC LAO LAT LATS LL LLD LLO LM LMO LPO ML MLO OBL RAO RL RLD RLO RPO XTL XTR
    """,
)
_FRONTAL = re.compile("AP|PA|FRONT|FRENTE|FACE|ANTERO|POSTERO")
_DIRECTIONS = re.compile("[LRAPHF]{2}")


class NotDICOMError(ValueError):
    """A file that has no DICOM header."""


def read_header(path: str | os.PathLike, keywords: Collection[str]) -> Dataset:
    """
    Read those elements that a DICOM file has of the given ones, without its pixels.

    Raises:
        NotDICOMError: when it is no DICOM file.
    """
    if os.path.isdir(path):
        raise NotDICOMError(f"{path} is a folder, which has no header")
    with open(path, "rb") as file:
        if identify_content(file.read(HEAD_BYTES)) != "DICOM":
            raise NotDICOMError(f"{path} is no DICOM file")
        file.seek(0)
        header = pydicom.dcmread(
            file, force=True, stop_before_pixels=True, specific_tags=list(keywords)
        )
    header.filename = os.fspath(path)
    return header


def header_of(path: str, keywords: Collection[str] = ()) -> Dataset:
    """Elements that the functions below read, and further ones; none of another kind of file or a broken header."""
    try:
        return read_header(path, [*_FACTS, *keywords])
    except _UNREADABLE:  # the pixels were read, so this is no reason to stop
        return Dataset()


def header_groups(header: Dataset) -> dict[str, str]:
    """Sex, age in years, view, manufacturer and scanner as texts that a table can show, "" for unknown."""
    sex, age, view, maker, _ = (harmless(_text(header, name)) for name in GROUP_ELEMENTS)
    years = re.fullmatch(r"(\d{1,3})Y", age)
    shown = {"sex": sex, "age": str(int(years[1])) if years else "", "view": view}
    return {**shown, "manufacturer": maker, "scanner": scanner_of(header)}


def scanner_of(header: Dataset) -> str:
    """Manufacturer and model, "" for unknown."""
    return harmless(" ".join(_text(header, name) for name in SCANNER_ELEMENTS).strip())


def age_in_years(header: Dataset) -> float | None:
    """Age of the patient by PatientAge, or by the dates of birth and of the study; None if it has neither."""
    found = re.fullmatch(r"(\d{1,3})([DWMY])", _text(header, "PatientAge"))
    if found and int(found[1]):  # de-identified files have 000Y
        return int(found[1]) * _YEARS[found[2]]
    try:
        birth, study = (
            datetime.strptime(_text(header, name), "%Y%m%d")
            for name in ("PatientBirthDate", "StudyDate")
        )
    except ValueError:
        return None
    return (study - birth).days / 365.25 if birth <= study else None


def frontal_view(header: Dataset) -> str:
    """View of a frontal radiograph by ViewPosition: "PA" or "AP", "" for another or an unknown one."""
    found = re.match("(PA|POSTERO)|AP|ANTERO", _words(_text(header, "ViewPosition")))
    if not found:
        return ""
    return "PA" if found[1] else "AP"


def other_than_frontal_chest(header: Dataset) -> str:
    """Name the elements that contradict a frontal chest radiograph, such as "ViewPosition LL"; "" where none does."""
    sop_class, part, view = (header.get(keyword) or "" for keyword in _VIEW_ELEMENTS[:3])
    found = [] if sop_class in _RADIOGRAPHS else [getattr(sop_class, "name", str(sop_class))]
    words = _words(part)
    if _OTHER_PART.search(words) and not _CHEST.search(words):
        found.append(f"BodyPartExamined {part}")
    words = _words(view)
    if _OTHER_VIEW.search(words) and not _FRONTAL.match(words):
        found.append(f"ViewPosition {view}")
    # the rows run to the patient's left, the columns to the feet
    orientation = [str(direction) for direction in header.get("PatientOrientation") or ()]
    directions = "".join(direction[:1] for direction in orientation)
    if _DIRECTIONS.fullmatch(directions) and directions != "LF":
        found.append(f"PatientOrientation {'/'.join(orientation)}")
    return ", ".join(found)


def _words(value: object) -> str:
    """Words of an element in capitals, without accents and signs between letters that stand for one word (P-A)."""
    plain = unicodedata.normalize("NFKD", str(value).upper().replace("ß", "SS"))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = re.sub(r"\b([A-Z])[-./ ]?([A-Z])\b[.]?", r"\1\2", plain)
    return " ".join(re.findall(r"[^\W\d_]+", plain))


def _text(header: Dataset, keyword: str) -> str:
    return str(header.get(keyword) or "").strip()
