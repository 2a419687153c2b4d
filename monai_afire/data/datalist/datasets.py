# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items of a bundle: of the user's folder or datalist, or else of the embedded phantom."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ignite.distributed as idist

from monai_afire.data.datalist.loading import load_radiograph_datalist
from monai_afire.data.phantom import export_phantom
from monai_afire.data.phantom.dataset import PHANTOM_VERSION
from monai_afire.utils.files import atomic_path, check_writable

__all__ = ["bundle_items", "cached_phantom", "indexed_images"]

PATH_KEYS = ("image", "image_2", "mask", "lesion_truth", "organs")


def bundle_items(
    section: str,
    dataset_dir: str | None = None,
    datalist: str | None = None,
    phantom_dir: str = "data/phantom",
    phantom: Mapping[str, Any] | None = None,
    check_files: bool = True,
    spatial_dims: int = 2,
) -> list[dict[str, Any]]:
    """
    Items of one section for a bundle's data set.

    With ``dataset_dir`` or ``datalist`` the user's own images (:func:`load_radiograph_datalist`; a tenth of the
    training patients is held out where there is no validation section), without either the phantom, which is drawn
    once into ``phantom_dir`` and found there afterwards.

    Args:
        section: "training", "validation" or "test".
        dataset_dir: folder of images, searched if there is no datalist; or one image file.
        datalist: JSON file that lists the images by section.
        phantom_dir: folder of the phantom's files.
        phantom: arguments of :func:`monai_afire.data.export_phantom`.
        check_files: False leaves it to the loading to find files that do not exist.
        spatial_dims: 3 for volumes: a folder with DICOM slices is then one of them, and so is ``dataset_dir`` itself.

    Returns:
        Dictionaries with at least "image", the path of a file that exists.

    Raises:
        DatalistError: when the folder or list is missing, empty or malformed; the message says which and why.

    Example:
        >>> import tempfile
        >>> phantom = {"num_patients": {"training": 2}, "image_size": 64, "abnormal_fraction": 0.0, "progress": False}
        >>> items = bundle_items("training", phantom_dir=tempfile.mkdtemp(), phantom=phantom)
        >>> len(items), items[0]["abnormal"]
        (2, 0)
    """
    if dataset_dir and not datalist and os.path.isfile(os.path.expanduser(dataset_dir)):
        return [{"image": os.path.abspath(os.path.expanduser(dataset_dir))}]
    if dataset_dir or datalist:
        return load_radiograph_datalist(
            dataset_dir,
            datalist,
            section,
            path_keys=PATH_KEYS,
            hold_out=True,
            check_files=check_files,
            volumes=spatial_dims == 3,
        )
    source = cached_phantom(phantom_dir, phantom_arguments(phantom, spatial_dims))
    return load_radiograph_datalist(None, source, section, path_keys=PATH_KEYS)


def phantom_arguments(phantom: Mapping[str, Any] | None, spatial_dims: int) -> dict[str, Any]:
    """Arguments of :func:`export_phantom`; those of radiographs are the same as ever, and so is what was drawn."""
    return {**(phantom or {}), **({"spatial_dims": spatial_dims} if spatial_dims != 2 else {})}


def indexed_images(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    The images of items alone, with their place in the list, for a network that judges them.

    Args:
        items: of a datalist.

    Returns:
        New items with "image" and "index".

    Example:
        >>> indexed_images([{"image": "a.png", "label": 1}])
        [{'image': 'a.png', 'index': 0}]
    """
    return [{"image": item["image"], "index": index} for index, item in enumerate(items)]


def cached_phantom(folder: str | os.PathLike, arguments: Mapping[str, Any]) -> Path:
    """
    Draw the phantom into a folder unless it is there already, drawn with the same arguments by the same version.

    In a process group the main rank draws while the others wait; all of them must see the folder.

    Args:
        folder: where its files are.
        arguments: of :func:`monai_afire.data.export_phantom`.

    Returns:
        Path of its datalist.

    Raises:
        OSError: when the folder cannot be written to, or holds a datalist that is not the phantom's.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> arguments = {"num_patients": {"test": 1}, "image_size": 64, "progress": False}
        >>> cached_phantom(folder, arguments) == cached_phantom(folder, arguments)
        True
    """
    drawn = {name: value for name, value in arguments.items() if name not in ("progress", "num_processes")}
    drawn["version"] = PHANTOM_VERSION
    recipe, datalist = Path(folder) / "recipe.json", Path(folder) / "datalist.json"
    with idist.one_rank_first():
        if datalist.is_file() and _read_recipe(recipe) == json.loads(json.dumps(drawn)):
            return datalist
        check_writable(folder)
        recipe.unlink(missing_ok=True)
        path = export_phantom(folder, **arguments)
        # written last: an interrupted drawing leaves no recipe and is drawn again
        with atomic_path(recipe) as temporary:
            temporary.write_text(json.dumps(drawn))
        return path


def _read_recipe(path: Path) -> Any:
    """The arguments that the phantom there was drawn with; None where a recipe is missing or cut."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
