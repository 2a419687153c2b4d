# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patients and files that are in two sections of a datalist; copies of an image are found by ``monai-afire audit``."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.datalist_checks import SECTIONS, DatalistError
from monai_afire.data.datalist.patients import file_patients, relative_names
from monai_afire.utils.text import first_few, known_text

_MOST_READ = 10_000  # images; a question for each of more files takes minutes on a network's disk


def check_leaks(sections: Mapping[str, Any], source: Path, base: Path, leaks: str) -> None:
    """Warn of ("warn") patients and images that are in several sections of a list, "refuse" or "ignore" them."""
    if leaks == "ignore":
        return
    if leaks == "refuse":  # sections of other names are not trained or tested on
        sections = {name: sections[name] for name in SECTIONS if name in sections}
    shared = _shared(sections, base)
    if not shared:
        return
    text = (
        f"{source}: in two sections are {first_few(shared)}; results on them would be too good. "
        "Keep each in one section, or divide the patients anew with num_folds; where items have no "
        '"patient_id", the names or DICOM headers of the files give the patients.'
    )
    if leaks == "refuse":
        raise DatalistError(text)
    warnings.warn(text, stacklevel=4)


def _shared(sections: Mapping[str, Any], base: Path) -> list[str]:
    """Patients and images that several sections have, with the sections; DICOM files of small lists are asked."""
    entries = [
        (section, {"image": entry} if isinstance(entry, str) else entry)
        for section, listed in sections.items()
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, (str, Mapping))
    ]
    names = [str(entry.get("image")) for _, entry in entries]
    given = [known_text(entry.get("patient_id")) for _, entry in entries]
    paths = [os.path.join(base, os.path.expanduser(name)) for name in names]
    few = len(names) <= _MOST_READ
    own_names = relative_names(names)
    patients = file_patients(paths if few else [""] * len(paths), own_names, given)
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for number, (section, _) in enumerate(entries):
        file = os.path.realpath(paths[number]) if few else os.path.normpath(paths[number])
        found["image", file][section] = names[number]
        if patients[number] != own_names[number]:  # known
            found["patient", patients[number]][section] = patients[number]
    return [
        f"{what} {list(own.values())[-1]} ({', '.join(own)})"
        for (what, _), own in found.items()
        if len(own) > 1
    ]
