# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patients and images that are in two sections of a datalist, by whatever name."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import Any

from monai_afire.data.datalist.datalist_checks import SECTIONS, DatalistError
from monai_afire.data.datalist.patients import file_patients, relative_names
from monai_afire.utils.text import counted, first_few, known_text

_MOST_READ = 10_000  # images; a question for each of more files takes minutes on a network's disk
_HEAD_BYTES = 4096  # tell nearly all images of one size apart


def shared_between(sections: Mapping[str, Any], base: Path) -> dict[str, dict[str, list[str]]]:
    """
    Patients and images that several sections of a datalist have in common.

    An image is the same under another spelling of its path. In lists of up to 10,000 images the files are read, too:
    links and copies of one image count as one, and DICOM files name their patients.

    Returns:
        "patient" and "file" -> name -> the sections that have it.

    Example:
        >>> shared_between({"training": ["a.png"], "test": ["./a.png", "b.png"]}, Path("no/such/folder"))
        {'patient': {}, 'file': {'./a.png': ['training', 'test']}}
    """
    section_of, names, given = [], [], []
    for section, entry in _entries(sections):
        section_of.append(section)
        names.append(str(entry.get("image")))
        given.append(known_text(entry.get("patient_id")))
    own_names = relative_names(names)
    paths = [os.path.join(base, os.path.expanduser(name)) for name in names]
    few = len(names) <= _MOST_READ
    patients = file_patients(paths if few else [""] * len(paths), own_names, given=given)
    named = zip(patients, own_names, strict=True)
    known = [None if patient == name else patient for patient, name in named]
    images = _images(paths) if few else [os.path.normpath(path) for path in paths]
    return {
        "patient": _in_several(section_of, known, patients),
        "file": _in_several(section_of, images, names),
    }


def _entries(sections: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Section and item of all entries that can be read as one."""
    for section, listed in sections.items():
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, str):
                yield section, {"image": entry}
            elif isinstance(entry, Mapping):
                yield section, entry


def _in_several(
    section_of: Sequence[str], keys: Sequence[Hashable], names: Sequence[str]
) -> dict[str, list[str]]:
    """Names of those keys that are in several sections, None left out, with the sections."""
    found: dict[Hashable, dict[str, str]] = defaultdict(dict)
    for section, key, name in zip(section_of, keys, names, strict=True):
        if key is not None:
            found[key][section] = name
    several = [own for own in found.values() if len(own) > 1]
    return {list(own.values())[-1]: list(own) for own in several}


def _images(paths: Sequence[str]) -> list[Hashable]:
    """What tells images apart: the file that a path leads to, or the first of those with the same content."""
    states = [_state(path) for path in paths]
    path_of = {key: path for (key, size), path in zip(states, paths, strict=True) if size}
    size_of = dict(states)
    same: dict[Hashable, Hashable] = {}
    for of_one_size in _groups(path_of, size_of.__getitem__):
        for of_one_head in _groups(of_one_size, lambda key: _digest(path_of[key], _HEAD_BYTES)):
            for group in _groups(of_one_head, lambda key: _digest(path_of[key], -1)):
                same.update(dict.fromkeys(group, group[0]))
    return [same.get(key, key) for key, _ in states]


def _groups(
    keys: Iterable[Hashable], value: Callable[[Hashable], Hashable]
) -> list[list[Hashable]]:
    """Keys that have a value in common with others."""
    groups: dict[Hashable, list[Hashable]] = defaultdict(list)
    for key in keys:
        groups[value(key)].append(key)
    return [group for group in groups.values() if len(group) > 1]


def _state(path: str) -> tuple[Hashable, int]:
    """What stands for a file, links followed, and its size; 0 where it has none, which says nothing of its content."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.normpath(path), 0
    return (status.st_dev, status.st_ino), status.st_size * S_ISREG(status.st_mode)


def _digest(path: str, limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return sha256(file.read(limit)).digest()
    except OSError:
        return os.fsencode(path)


def check_leaks(sections: Mapping[str, Any], source: Path, base: Path, leaks: str) -> None:
    """Warn of ("warn") patients and images that are in several sections of a list, "refuse" or "ignore" them."""
    if leaks == "ignore":
        return
    if leaks == "refuse":  # sections of other names are not trained or tested on
        sections = {name: sections[name] for name in SECTIONS if name in sections}
    shared = shared_between(sections, base)
    for what, several in (("patient", shared["patient"]), ("image", shared["file"])):
        if several:
            found = counted(len(several), f"{what} is", f"{what}s are")
            shown = first_few(f"{name} ({', '.join(own)})" for name, own in several.items())
            text = (
                f"{source}: {found} in two sections: {shown}; results on them would be too good. "
                "Keep each in one section, or divide the patients anew with num_folds; where items have no "
                '"patient_id", the names or DICOM headers of the files give the patients.'
            )
            if leaks == "refuse":
                raise DatalistError(text)
            warnings.warn(text, stacklevel=4)
