# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a DICOM header says against a file being a frontal radiograph of the chest."""

from __future__ import annotations

import re
import unicodedata

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
# Beginnings of words, without accents. Header words have the language of the hospital: one that is not known says
# nothing against a frontal chest, so only what is known to be another part or view does.
_CHEST = ("CHEST", "THORA", "TORA", "LUNG", "PULM", "BRUSTKORB", "POUMON")
_OTHER_WORDS = """
    ABDOM ADDOM ANKLE BACINO BASSIN BAUCH BECKEN BLADDER BRAIN BREAST CADERA CALCAN CAVIGLIA
    CHEVILLE CLAV COCCYX CODO COLON COLONN COLUMNA COLUNA COTOVELO COUDE CRAN CSPINE CTSPINE
    ELBOW ELLENBOGEN EPAULE EXTREM FEET FEMUR FINGER FOOT FOREARM FUSS GENOU GINOCCHIO
    GOMITO HANCHE HAND HEAD HOMBRO HUEFT HUFT HUMERUS JOELHO KIDNEY KNEE KNIE LENDEN LSPINE
    LSSPINE MAMM MANDIB MANO MAXILLA MUNECA NECK OMBRO ORBIT PATELLA PELV PIED POIGNET POLSO
    PUNHO QUADRIL RACHIS RIB RODILLA SCAPULA SCHADEL SCHAEDEL SCHULTER SHOULDER SINUS SKULL
    SPALLA SPINE SSPINE STERNUM TEETH THIGH THUMB TIBIA TLSPINE TOBILLO TORNOZELO TSPINE
    WIRBEL WRIST
    """
_OTHER_PARTS = tuple(_OTHER_WORDS.split())
_SHORT_PARTS = ("ARM", "BWS", "EYE", "HIP", "HWS", "JAW", "LEG", "LWS", "TOE")  # whole words
_FRONTAL = ("AP", "PA", "FRONT", "FRENTE", "FACE", "ANTERO", "POSTERO")
_FRONTAL_VIEWS = {"PA": ("PA", "POSTERO"), "AP": ("AP", "ANTERO")}
_OTHER_VIEWS = ("AXIAL", "DECUB", "LATER", "OBLI", "PERFIL", "PROFIL", "SCHRAG", "SEIT", "TANGENT")
_SHORT_VIEWS = (
    *("CC", "LAO", "LAT", "LATS", "LL", "LLD", "LLO", "LM", "LMO", "LPO"),
    *("ML", "MLO", "OBL", "RAO", "RL", "RLD", "RLO", "RPO", "XTL", "XTR"),
)
_DIRECTIONS = "LRAPHF"


def other_than_frontal_chest(header: Dataset) -> str:
    """
    Name the elements of a header that contradict a frontal chest radiograph.

    Args:
        header: with those of ``VIEW_ELEMENTS`` that the file has; an absent or empty one says nothing, and neither does
            a word that is no known other part or view of the body, such as one of another language.

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
    if _is_other_part(_words(part)):
        found.append(f"BodyPartExamined {part}")
    if _is_other_view(_words(view)):
        found.append(f"ViewPosition {view}")
    # the rows run to the patient's left, the columns to the feet
    directions = "".join(direction[:1] for direction in orientation)
    if len(directions) == 2 and set(directions) <= set(_DIRECTIONS) and directions != "LF":
        found.append(f"PatientOrientation {'/'.join(orientation)}")
    return ", ".join(found)


def frontal_view(header: Dataset) -> str:
    """
    View of a frontal radiograph by the element ViewPosition.

    Args:
        header: with those of ``VIEW_ELEMENTS`` that the file has.

    Returns:
        "PA" or "AP", "" for another view or an unknown one.

    Example:
        >>> header = Dataset()
        >>> header.ViewPosition = "A.P. supine"
        >>> frontal_view(header)
        'AP'
    """
    words = _words(header.get("ViewPosition") or "")
    first = words[0] if words else ""
    found = [view for view, starts in _FRONTAL_VIEWS.items() if first.startswith(starts)]
    return found[0] if found else ""


def _words(value: object) -> list[str]:
    """Words of an element in capitals, without accents and signs between letters that stand for one word (P-A)."""
    plain = unicodedata.normalize("NFKD", str(value).upper().replace("ß", "SS"))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = re.sub(r"\b([A-Z])[-./ ]?([A-Z])\b[.]?", r"\1\2", plain)
    return re.findall(r"[^\W\d_]+", plain)


def _is_other_part(words: list[str]) -> bool:
    if any(word.startswith(_CHEST) for word in words):
        return False
    return any(word in _SHORT_PARTS or word.startswith(_OTHER_PARTS) for word in words)


def _is_other_view(words: list[str]) -> bool:
    if words and words[0].startswith(_FRONTAL):
        return False
    return any(word in _SHORT_VIEWS or word.startswith(_OTHER_VIEWS) for word in words)
