# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Datalists of the user's own radiographs: from a JSON file or from a folder, checked before training starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
from monai_afire.data.datalist.scanning import scan_radiographs, scan_volumes
from monai_afire.data.datalist.shard_folders import check_shards, is_shard_folder, listed_shards, shard_files
from monai_afire.transforms.radiograph_io.formats import supported_types
from monai_afire.transforms.radiograph_io.shards import shard_folder, without_shard
from monai_afire.utils.garbage_collection import garbage_collection_paused

__all__ = ["load_radiograph_datalist"]


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
    volumes: bool = False,
) -> list[dict[str, Any]]:
    """
    Items of one section of a datalist, or of a folder without a datalist, with absolute file names, all checked.

    A datalist is a JSON file in the layout of the Medical Segmentation Decathlon and of MONAI,
    ``{"training": [{"image": "a.png", "label": 0}, ...], "validation": [...], "test": [...]}``; an item may also be
    just a file name. (``monai.data.load_decathlon_datalist`` reads the same files, but checks nothing and takes any
    text that happens to be a file name for a path.) Without a datalist the folder is searched, see
    :py:func:`monai_afire.data.scan_radiographs`, and split by patient, see :py:func:`split_by_patient`; the section
    "test" or "all" is then the whole folder.

    Args:
        dataset_dir: folder to search, or that relative names in the datalist start from; None or "" for the folder of
            the datalist, which they start from, too, if that is how they lead to files in ``dataset_dir``. A folder of
            shards (:func:`monai_afire.data.write_shards`) stands for the folder or the list that it was written from.
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
        volumes: items may be folders, DICOM series; searched for, each folder with DICOM slices is one.

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
    datalist = datalist or listed_shards(dataset_dir)
    if not datalist:
        if not dataset_dir:
            raise DatalistError("neither dataset_dir nor datalist is given; give the folder of the radiographs.")
        folder = os.fspath(dataset_dir)
        return _folder_items(folder, section, path_keys, validation_fraction, seed, patient_pattern, volumes)
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
        volumes=volumes,
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
    volumes: bool = False,
) -> list[dict[str, Any]]:
    """
    Items of one section of a datalist whose ``content`` was read from ``source``, see :func:`load_radiograph_datalist`.

    The entries of the content themselves become the items: a second copy of 800,000 would take much memory.
    """
    divide = hold_out and section in ("training", "validation") and "validation" not in content
    listed = "training" if divide else section
    entries = _section(content, listed, source)
    base = _base(dataset_dir, source, entries[0], path_keys[0])
    warn_about_leaks(content, listed, source, path_keys, patient_key)
    folders: dict[str, str] = {}
    items = [_to_item(entry, number, listed, source, path_keys, base, folders) for number, entry in enumerate(entries)]
    require_keys(items, required_keys, listed, source)
    if check_files:
        for folder in _shard_folders(items, path_keys):
            check_shards(folder)
        require_files(items, path_keys, listed, source, folders=volumes)
    if divide:
        patients = [_patient(item, patient_key, path_keys[0], patient_pattern) for item in items]
        try:
            in_validation = split_by_patient(patients, validation_fraction, seed)
        except DatalistError as error:
            raise DatalistError(f"{source}: {error}") from error
        items = [item for item, chosen in zip(items, in_validation, strict=True) if chosen == (section == "validation")]
    return items


def _shard_folders(items: Sequence[Mapping[str, Any]], path_keys: Sequence[str]) -> list[str]:
    """Folders of the shards that items name."""
    values = (item[key] for item in items for key in path_keys if item.get(key))
    paths = (path for value in values for path in ([value] if isinstance(value, str) else value))
    return sorted({folder for path in paths if (folder := shard_folder(path)) is not None})


def _patient(item: Mapping[str, Any], patient_key: str, path_key: str, pattern: str | None) -> str:
    """Patient of a listed item: as the list says, or by the file's name."""
    return str(item[patient_key]) if patient_key in item else patient_of(str(item[path_key]), pattern)


def _folder_items(
    folder: str,
    section: str,
    path_keys: Sequence[str],
    fraction: float,
    seed: int,
    pattern: str | None,
    volumes: bool = False,
) -> list[dict[str, Any]]:
    """Items of a folder without datalist."""
    if section not in ("training", "validation", "test", "all"):
        accepted = "training, validation, test and all"
        raise DatalistError(f"{folder}: a folder without datalist has the sections {accepted}, not {section!r}.")
    shards = is_shard_folder(folder)
    if shards and volumes:
        raise DatalistError(f"{folder}: shards hold pictures alone; give the folder of the volumes' own files.")
    names = shard_files(folder) if shards else scan_volumes(folder) if volumes else scan_radiographs(folder)
    if not names:
        raise DatalistError(f"no radiographs found under {folder}; supported: {supported_types()}.")
    if section in ("training", "validation"):
        try:
            in_validation = split_by_patient(
                [patient_of(without_shard(name) if shards else name, pattern) for name in names], fraction, seed
            )
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


def _base(dataset_dir: str | os.PathLike | None, source: Path, entry: Any, path_key: str) -> Path:
    """
    Folder that relative names start from.

    It is ``dataset_dir``; but ``python -m monai_afire.data`` writes names that start from the list's folder, and who
    gives its ``--root`` as ``dataset_dir`` means the very same images.
    """
    if not dataset_dir:
        return source.parent
    base = Path(dataset_dir).expanduser()
    if not base.is_dir():
        raise DatalistError(f"{base}: the folder dataset_dir does not exist; check the name.")
    name = entry.get(path_key) if isinstance(entry, dict) else entry
    if not isinstance(name, str) or os.path.exists(base / name):
        return base
    beside = source.parent / name
    return source.parent if os.path.exists(beside) and _is_below(beside, base) else base


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, by the names or by where links lead."""
    plain = Path(os.path.abspath(folder)) in Path(os.path.abspath(path)).parents
    return plain or folder.resolve() in path.resolve().parents


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
