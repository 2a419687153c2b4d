# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Class names saved beside a model's weights, for those who do not have the datalist it was trained on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import atomic_path, check_writable
from monai_afire.utils.folder_lock import folder_lock

_FILE = "class_names.json"


def save_class_names(names: Sequence[str], model_dir: str | os.PathLike) -> None:
    """
    Write the names of the classes into the folder of a model; in a process group the main rank does.

    Args:
        names: of the classes, organs or landmarks, in the order of the network's outputs.
        model_dir: folder of the weights, made if it is missing.

    Raises:
        OSError: when the folder cannot be written to.
        RuntimeError: when another process is training in it.
    """
    if global_rank():
        return
    with folder_lock(check_writable(model_dir)), atomic_path(Path(model_dir) / _FILE) as temporary:
        temporary.write_text(json.dumps(list(names), indent=2))


def saved_class_names(weights: str | os.PathLike, default: Sequence[str] = ()) -> list[str]:
    """
    Read the names of the classes of a model, from the file beside it or from its own.

    Args:
        weights: the model's file, beside which the names are.
        default: names where there is no such file, and the weights do not carry them.

    Returns:
        The names.

    Raises:
        ValueError: when the file does not hold names, or there is neither a file nor a default.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> save_class_names(["effusion", "nodule"], folder)
        >>> saved_class_names(f"{folder}/model.pt")
        ['effusion', 'nodule']
    """
    path = Path(weights).parent / _FILE
    if not path.is_file():
        from monai_afire.networks import read_description  # networks need no data

        description = read_description(weights)
        default = (description and description.class_names) or default
        if not default:
            raise ValueError(f"there are no names of the classes in {path}: train.json writes them, or name them")
        return list(default)
    try:
        names = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # what is no JSON, is nested too deep, or no text
        raise ValueError(f"{path} is not valid JSON ({error}): write a list of the classes' names") from error
    if not _are_names(names):
        raise ValueError(f"{path} does not hold a list of names, but {names!r}")
    return names


def class_order(of_weights: Sequence[str], listed: Sequence[str], source: str | os.PathLike) -> list[int]:
    """
    Place in a list's labels of each class of the weights.

    Args:
        of_weights: names in the order of the network's outputs.
        listed: names in the order of the labels.
        source: the list, for messages.

    Raises:
        DatalistError: when the names are not the same; the message has both orders.

    Example:
        >>> class_order(["effusion", "nodule"], ["nodule", "effusion"], "list.json")
        [1, 0]
    """
    if sorted(of_weights) != sorted(listed):
        orders = f"the list names the classes {', '.join(listed)}; the weights know {', '.join(of_weights)}"
        raise DatalistError(f"{source}: {orders}. Give a list of the same names, in any order, or other weights.")
    return [list(listed).index(name) for name in of_weights]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)
