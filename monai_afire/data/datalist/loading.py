# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Datalists of the user's own radiographs: from a JSON file or from a folder, checked before training starts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.checks import (
    DatalistError,
    parse_json,
    require_files,
    require_keys,
    warn_about_leaks,
)
from monai_afire.data.datalist.patients import patient_of, split_by_patient
from monai_afire.transforms.radiograph_io.formats import (
    HEAD_BYTES,
    SUPPORTED_EXTENSIONS,
    extension_of,
    identify_content,
    supported_types,
)
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.text import first_few

__all__ = [
    "load_radiograph_datalist",
    "scan_radiographs",
]

_IGNORED_NAMES = {"dicomdir", "__macosx"}


@garbage_collection_paused()
def load_radiograph_datalist(
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | os.PathLike | None = None,
    section: str = "training",
    *,
    required_keys: Sequence[str] = ("image",),
    path_keys: Sequence[str] = ("image",),
    validation_fraction: float = 0.1,
    seed: int = 0,
    patient_key: str = "patient_id",
    patient_pattern: str | None = None,
    hold_out: bool = False,
    check_files: bool = True,
) -> list[dict[str, Any]]:
    """
    Items of one section of a datalist, or of a folder without a datalist, with absolute file names, all checked.

    A datalist is a JSON file in the layout of the Medical Segmentation Decathlon and of MONAI,
    ``{"training": [{"image": "a.png", "label": 0}, ...], "validation": [...], "test": [...]}``; an item may also be
    just a file name. (``monai.data.load_decathlon_datalist`` reads the same files, but checks nothing and takes any
    text that happens to be a file name for a path.) Without a datalist the folder is searched, see
    :py:func:`scan_radiographs`, and split by patient, see :py:func:`split_by_patient`; the section "test" or "all" is
    then the whole folder.

    Args:
        dataset_dir: folder to search, or that relative names in the datalist start from; None or "" for the folder of
            the datalist.
        datalist: JSON file, None or "" to search the folder.
        section: name of the list wanted.
        required_keys: keys that every item must have.
        path_keys: keys whose values are file names, or lists of them.
        validation_fraction: part of the patients of a folder that becomes its "validation" section, in [0, 1).
        seed: another number gives another split of a folder.
        patient_key: key of the patient in the items of a datalist, for the warning about leaks.
        patient_pattern: regular expression with one group, searched in the relative name of a file of a folder, that
            gives the patient. By default the names of NIH, CheXpert and MIMIC-CXR are known.
        hold_out: take "validation" out of "training", as for a folder, where a datalist has no such section.
        check_files: look whether each file exists.

    Returns:
        New dictionaries, one for each item, in the order of the list, or sorted by name for a folder.

    Raises:
        DatalistError: When the folder, the list, the section or an item is missing, empty or of the wrong kind.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.png").touch()
        >>> _ = (folder / "list.json").write_text('{"training": [{"image": "a.png", "label": 0}]}')
        >>> [item] = load_radiograph_datalist(datalist=folder / "list.json")
        >>> Path(item["image"]).name, item["label"]
        ('a.png', 0)
    """
    if not datalist:
        if not dataset_dir:
            raise DatalistError("neither dataset_dir nor datalist is given; give the folder of the radiographs.")
        return _folder_items(os.fspath(dataset_dir), section, path_keys, validation_fraction, seed, patient_pattern)
    source = Path(datalist).expanduser()
    return section_items(
        read_sections(source),
        source,
        dataset_dir,
        section,
        required_keys=required_keys,
        path_keys=path_keys,
        validation_fraction=validation_fraction,
        seed=seed,
        patient_key=patient_key,
        patient_pattern=patient_pattern,
        hold_out=hold_out,
        check_files=check_files,
    )


def section_items(
    content: dict[str, Any],
    source: Path,
    dataset_dir: str | os.PathLike | None,
    section: str,
    *,
    required_keys: Sequence[str] = ("image",),
    path_keys: Sequence[str] = ("image",),
    validation_fraction: float = 0.1,
    seed: int = 0,
    patient_key: str = "patient_id",
    patient_pattern: str | None = None,
    hold_out: bool = False,
    check_files: bool = True,
) -> list[dict[str, Any]]:
    """
    Items of one section of a datalist whose ``content`` was read from ``source``, see :func:`load_radiograph_datalist`.

    The entries of the content themselves become the items: a second copy of 800,000 would take much memory.
    """
    base = Path(dataset_dir).expanduser() if dataset_dir else source.parent
    if not base.is_dir():
        raise DatalistError(f"{base}: the folder dataset_dir does not exist; check the name.")
    divide = hold_out and section in ("training", "validation") and "validation" not in content
    listed = "training" if divide else section
    entries = _section(content, listed, source)
    warn_about_leaks(content, listed, source, path_keys, patient_key)
    folders: dict[str, str] = {}
    items = [_to_item(entry, number, listed, source, path_keys, base, folders) for number, entry in enumerate(entries)]
    require_keys(items, required_keys, listed, source)
    if check_files:
        require_files(items, path_keys, listed, source)
    if divide:
        patients = [_patient(item, patient_key, path_keys[0], patient_pattern) for item in items]
        try:
            in_validation = split_by_patient(patients, validation_fraction, seed)
        except DatalistError as error:
            raise DatalistError(f"{source}: {error}") from error
        items = [item for item, chosen in zip(items, in_validation, strict=True) if chosen == (section == "validation")]
    return items


def scan_radiographs(folder: str | os.PathLike) -> list[str]:
    """
    Find the radiographs below a folder, by extension in any case, and DICOM files without extension by content.

    Hidden files, DICOMDIR and what is no regular file are left out, and, with a warning that counts them, subfolders
    and files that cannot be read and links to nothing; a subfolder that links back is visited once.

    Returns:
        Names relative to the folder with "/", sorted.

    Raises:
        DatalistError: When the folder does not exist or is a file.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "day 1").mkdir()
        >>> for name in ("b.PNG", "notes.txt", "day 1/a.dcm"):
        ...     (folder / name).touch()
        >>> scan_radiographs(folder)
        ['b.PNG', 'day 1/a.dcm']
    """
    root = os.path.expanduser(os.fspath(folder))
    if not os.path.isdir(root):
        raise DatalistError(f"{root}: {'is a file, not a folder' if os.path.exists(root) else 'no such folder'}.")
    found: list[str] = []
    skipped: list[str] = []
    pending, visited = [""], set()
    while pending:
        relative = pending.pop()
        here = os.path.join(root, relative)
        try:
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(here) as entries:
                _visit(entries, relative, pending, found, skipped)
        except OSError as error:
            warnings.warn(f"{here}: left out, cannot be listed ({error.strerror}).", stacklevel=2)
    if skipped:
        text = f"{len(skipped):,} entries left out, which cannot be read: {first_few(sorted(skipped))}"
        warnings.warn(f"{root}: {text}; {len(found):,} radiographs are found.", stacklevel=2)
    return sorted(found)


def _visit(
    entries: Iterable[os.DirEntry[str]], folder: str, pending: list[str], found: list[str], skipped: list[str]
) -> None:
    """Enter the subfolders and the radiographs of a folder into their lists, and what cannot be read into another."""
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in _IGNORED_NAMES:
            continue
        name = f"{folder}/{entry.name}" if folder else entry.name
        try:
            if entry.is_dir():
                pending.append(name)
            elif _is_radiograph(entry):
                found.append(name)
        except OSError as error:  # of this entry alone: the others of the folder are as good as ever
            skipped.append(f"{name} ({error.strerror})")


def _is_radiograph(entry: os.DirEntry[str]) -> bool:
    """
    By the extension, or by the content where there is none.

    Raises:
        OSError: for a link to nothing, or in a circle, that is named like a radiograph; for a file that cannot be read.
    """
    extension = extension_of(entry.name)
    if extension and extension not in SUPPORTED_EXTENSIONS:
        return False
    if not entry.is_file():  # asked before it is opened: a named pipe would wait for a writer for ever
        if entry.is_symlink():
            entry.stat()
        return False
    if extension:
        return True
    with open(entry.path, "rb") as stream:
        return identify_content(stream.read(HEAD_BYTES)) == "DICOM"


def _patient(item: Mapping[str, Any], patient_key: str, path_key: str, pattern: str | None) -> str:
    """Patient of a listed item: as the list says, or by the file's name."""
    return str(item[patient_key]) if patient_key in item else patient_of(str(item[path_key]), pattern)


def _folder_items(
    folder: str, section: str, path_keys: Sequence[str], fraction: float, seed: int, pattern: str | None
) -> list[dict[str, Any]]:
    """Items of a folder without datalist."""
    if section not in ("training", "validation", "test", "all"):
        accepted = "training, validation, test and all"
        raise DatalistError(f"{folder}: a folder without datalist has the sections {accepted}, not {section!r}.")
    names = scan_radiographs(folder)
    if not names:
        raise DatalistError(f"no radiographs found under {folder}; supported: {supported_types()}.")
    if section in ("training", "validation"):
        try:
            in_validation = split_by_patient([patient_of(name, pattern) for name in names], fraction, seed)
        except DatalistError as error:
            raise DatalistError(f"{folder}: {error}") from error
        names = [name for name, chosen in zip(names, in_validation, strict=True) if chosen == (section == "validation")]
    if not names:
        raise DatalistError(f"{folder}: section {section!r} is empty with validation_fraction={fraction}; raise it.")
    root = os.path.abspath(os.path.expanduser(folder))
    start = os.path.join(root, "")
    return [{path_keys[0]: start + name.replace("/", os.sep)} for name in names]


def read_sections(source: Path) -> dict[str, Any]:
    """Read the content of a datalist's JSON file: an object, of sections and of what describes them."""
    try:
        text = source.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        problem = "the datalist cannot be read: it does not exist; check the name and the folder."
        raise DatalistError(f"{source}: {problem}") from error
    except (OSError, UnicodeError) as error:
        raise DatalistError(f"{source}: the datalist cannot be read ({error}).") from error
    content = parse_json(text, source)
    if not isinstance(content, dict):
        expected = 'an object with lists such as {"training": [{"image": "a.png"}, ...]}'
        raise DatalistError(f"{source}: the top level is {_kind(content)}, where {expected} is expected.")
    return content


def _section(sections: Mapping[str, Any], section: str, source: Path) -> list[Any]:
    if section not in sections:
        found = ", ".join(name for name, value in sections.items() if isinstance(value, list)) or "none"
        raise DatalistError(f"{source}: has no section {section!r}; sections found: {found}.")
    entries = sections[section]
    if not isinstance(entries, list):
        raise DatalistError(f"{source}: section {section!r} is {_kind(entries)}, where an array of items is expected.")
    if not entries:
        raise DatalistError(f"{source}: section {section!r} is empty; add items, or choose another section.")
    return entries


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _to_item(
    entry: Any,
    number: int,
    section: str,
    source: Path,
    path_keys: Sequence[str],
    base: Path,
    folders: dict[str, str],
) -> dict[str, Any]:
    """One entry of a section, itself, as a dictionary with absolute file names."""
    item = {path_keys[0]: entry} if isinstance(entry, str) else entry
    if not isinstance(item, dict):
        where = f"{source}: section {section!r}, item {number}"
        raise DatalistError(f"{where} is {_kind(entry)}, where an object or a file name is expected.")
    for key in path_keys:
        value = item.get(key)
        if isinstance(value, str) and value:
            item[key] = _absolute(value, base, folders)
        elif isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
            item[key] = [_absolute(name, base, folders) for name in value]
        elif key in item and (value is not None or key == path_keys[0]):
            where = f"{source}: section {section!r}, item {number}"
            raise DatalistError(f"{where}: {key!r} is {value!r}, where a file name is expected.")
    return item


def _absolute(name: str, base: Path, folders: dict[str, str]) -> str:
    """
    Absolute path of a name in a datalist.

    Names of one folder, of which there are many, are not taken apart one by one: ``folders`` keeps what it becomes.
    """
    folder, _, last = name.rpartition("/")
    if os.sep != "/" or not folder.strip("/") or last in ("", ".", ".."):
        return os.path.abspath(os.path.join(base, os.path.expanduser(name)))
    if folder not in folders:
        folders[folder] = os.path.join(os.path.abspath(os.path.join(base, os.path.expanduser(folder))), "")
    return folders[folder] + last
