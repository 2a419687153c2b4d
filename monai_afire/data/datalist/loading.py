# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items of a datalist, of a folder or of the embedded phantom, checked before training starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monai_afire.data.datalist.datalist_checks import (
    PATH_KEYS,
    SECTIONS,
    DatalistError,
    check_finding_names,
    read_json,
    require_files,
    require_keys,
)
from monai_afire.data.datalist.leaks import check_leaks
from monai_afire.data.datalist.patients import file_patients, item_patients, split_by_patient
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.data.datalist.subsets import NO_FINDING, classes_of
from monai_afire.transforms.radiograph_files import supported_types

if TYPE_CHECKING:
    from monai_afire.data.phantom import PhantomSet

_ORGANS = ("mask", "organs")  # which may be a dictionary of files by organ
_TABLES = (".csv", ".tsv", ".xls", ".xlsx", ".ods")


def load_radiograph_datalist(
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | os.PathLike | None = None,
    section: str = "training",
    *,
    validation_fraction: float = 0.1,
    seed: int = 0,
    hold_out: bool = False,
    check_files: bool = True,
    leaks: str = "warn",
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
            the datalist, which they start from, too, if that is how they lead to files in ``dataset_dir``.
        datalist: JSON file, None or "" to search the folder.
        section: name of the list wanted.
        validation_fraction: part of the patients of a folder that becomes its "validation" section, in [0, 1).
        seed: another number gives another split of a folder.
        hold_out: take "validation" out of "training", as for a folder, where a datalist has no such section.
        check_files: look whether each file exists.
        leaks: "warn" when patients or images are in two sections of the datalist, "refuse" or "ignore" them.

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
        return _folder_items(dataset_dir, section, validation_fraction, seed)
    source = Path(datalist).expanduser()
    content = read_sections(source)
    divide = hold_out and section in ("training", "validation") and "validation" not in content
    listed = "training" if divide else section
    entries = _section(content, listed, source)
    base = base_folder(dataset_dir, source, entries[0])
    check_leaks(content, source, base, leaks)
    organs = content.get("organ_names")
    items = [
        _to_item(entry, base, organs, f"{source}: section {listed!r}, item {number}")
        for number, entry in enumerate(entries)
    ]
    require_keys(items, ["image"], listed, source)
    check_finding_names(content.get("finding_names"), items, source)
    if check_files:
        require_files(items, listed, source)
    if not divide:
        return items
    patients = item_patients(items, source, base)
    findings = [classes_of(item.get("label")) - {NO_FINDING} for item in items]
    return _part(items, patients, section, validation_fraction, seed, source, findings)


def _part(
    items: Sequence[Any],
    patients: Sequence[str],
    section: str,
    fraction: float,
    seed: int,
    source: str | Path,
    findings: Sequence[set[Any]] | None = None,
) -> list[Any]:
    """The items of the patients that belong to the training or to the validation section."""
    try:
        in_validation = split_by_patient(patients, fraction, seed, findings)
    except DatalistError as error:
        raise DatalistError(f"{source}: {error}") from error
    wanted = section == "validation"
    return [item for item, chosen in zip(items, in_validation, strict=True) if chosen == wanted]


def _folder_items(
    dataset_dir: str | os.PathLike | None, section: str, fraction: float, seed: int
) -> list[dict[str, Any]]:
    """Items of a folder without datalist."""
    if not dataset_dir:
        text = "neither dataset_dir nor datalist is given"
        raise DatalistError(f"{text}; give the folder of the radiographs.")
    folder = os.fspath(dataset_dir)
    if section not in (*SECTIONS, "all"):
        accepted = "training, validation, test and all"
        raise DatalistError(
            f"{folder}: a folder without datalist has the sections {accepted}, not {section!r}."
        )
    names = scan_radiographs(folder)
    if not names:
        raise DatalistError(f"no radiographs found under {folder}; supported: {supported_types()}.")
    root = os.path.abspath(os.path.expanduser(folder))
    if section in ("training", "validation"):
        patients = file_patients([os.path.join(root, name) for name in names], names, source=folder)
        names = _part(names, patients, section, fraction, seed, folder)
    if not names:
        raise DatalistError(
            f"{folder}: section {section!r} is empty with validation_fraction={fraction}; raise it."
        )
    start = os.path.join(root, "")
    return [{"image": start + name.replace("/", os.sep)} for name in names]


def _refuse_table(source: str | os.PathLike) -> None:
    if os.fspath(source).lower().removesuffix(".gz").endswith(_TABLES):
        remedy = "monai-afire data table makes one of it"
        raise DatalistError(f"{source} is a table, not a datalist: {remedy}")


def read_sections(source: Path) -> dict[str, Any]:
    """Read the content of a datalist's JSON file: an object, of sections and of what describes them."""
    _refuse_table(source)
    content = read_json(source, "the datalist", "check the name, or write it again")
    if not isinstance(content, dict):
        expected = '{"training": [{"image": "a.png"}, ...]}'
        raise DatalistError(f"{source}: is no object with lists such as {expected}.")
    return content


def base_folder(dataset_dir: str | os.PathLike | None, source: Path, entry: Any) -> Path:
    """Folder that relative names in a list start from, by one of its entries."""
    if not dataset_dir:
        return source.parent
    base = Path(dataset_dir).expanduser()
    if not base.is_dir():
        raise DatalistError(f"{base}: the folder dataset_dir does not exist; check the name.")
    name = entry.get("image") if isinstance(entry, dict) else entry
    if not isinstance(name, str) or os.path.exists(base / name):
        return base
    beside = source.parent / name
    return source.parent if os.path.exists(beside) and _is_below(beside, base) else base


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, by the names or by where links lead."""
    plain = Path(os.path.abspath(folder)) in Path(os.path.abspath(path)).parents
    return plain or folder.resolve() in path.resolve().parents


def _section(content: Mapping[str, Any], section: str, source: Path) -> list[Any]:
    """Entries of a section, at least one."""
    entries = content.get(section)
    if not isinstance(entries, list) or not entries:
        found = [name for name, value in content.items() if isinstance(value, list) and value]
        raise DatalistError(
            f"{source}: has no section {section!r}, or it is empty; sections found: {', '.join(found) or 'none'}."
        )
    return entries


def _to_item(entry: Any, base: Path, organ_names: Any, where: str) -> dict[str, Any]:
    """One entry of a section as a dictionary with absolute file names."""
    item = {"image": entry} if isinstance(entry, str) else entry
    if not isinstance(item, dict):
        raise DatalistError(f"{where} is {entry!r}, where an object or a file name is expected.")
    for key in _ORGANS:
        if isinstance(item.get(key), dict):
            item["organs"] = _in_order(item.pop(key), organ_names, f"{where}: {key!r}")
    for key in filter(item.__contains__, PATH_KEYS):
        value = item[key]
        names = value if isinstance(value, list) else [value]
        if names and all(isinstance(name, str) and name for name in names):
            paths = [
                os.path.abspath(os.path.join(base, os.path.expanduser(name))) for name in names
            ]
            item[key] = paths if isinstance(value, list) else paths[0]
        elif value is not None or key == "image":
            raise DatalistError(f"{where}: {key!r} is {value!r}, where a file name is expected.")
    return item


def _in_order(masks: dict[str, Any], organ_names: Any, what: str) -> list[Any]:
    """Masks by organ as a list in the order of the header."""
    names = organ_names if isinstance(organ_names, list) else []
    if set(masks) != set(names):
        raise DatalistError(
            f"{what} has {', '.join(masks)}, and organ_names are {', '.join(map(str, names)) or 'missing'}: "
            "give each item one file for each name."
        )
    return [masks[name] for name in names]


def bundle_items(
    section: str,
    dataset_dir: str | os.PathLike | None = None,
    datalist: str | None = None,
    phantom: PhantomSet | None = None,
    check_files: bool = True,
) -> list[dict[str, Any]]:
    """
    Items of one section for a bundle's data set.

    The user's own images (:func:`load_radiograph_datalist`; a tenth of the training patients is held out where there is
    no validation section), or without ``dataset_dir`` and ``datalist`` the phantom.

    Args:
        section: "training", "validation" or "test".
        dataset_dir: folder of images, searched if there is no datalist; or one image file.
        datalist: JSON file that lists the images by section.
        phantom: what stands in for images.
        check_files: False leaves it to the loading to find files that do not exist.

    Returns:
        Dictionaries with at least "image", the path of a file that exists.

    Raises:
        DatalistError: when the folder or list is missing, empty or malformed; the message says which and why.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "a.png").touch()
        >>> [Path(item["image"]).name for item in bundle_items("test", folder)]
        ['a.png']
    """
    if dataset_dir and not datalist and os.path.isfile(os.path.expanduser(dataset_dir)):
        _refuse_table(dataset_dir)
        return [{"image": os.path.abspath(os.path.expanduser(dataset_dir))}]
    if dataset_dir or datalist:
        return load_radiograph_datalist(
            dataset_dir, datalist, section, hold_out=True, check_files=check_files
        )
    return load_radiograph_datalist(None, phantom.datalist() if phantom else None, section)


def indexed_images(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    The images of items alone, with their numbers in the list, for a network that scores them.

    Args:
        items: of a datalist.

    Returns:
        New items with "image" and "index".

    Example:
        >>> indexed_images([{"image": "a.png", "label": 1}])
        [{'image': 'a.png', 'index': 0}]
    """
    return [{"image": item["image"], "index": index} for index, item in enumerate(items)]
