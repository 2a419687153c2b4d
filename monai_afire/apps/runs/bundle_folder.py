# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The folder of the bundle that runs: weights, pictures and further configs are found from it."""

from __future__ import annotations

from pathlib import Path

from monai_afire.apps.runs.command_line import config_files, given_options

__all__ = ["bundle_root"]


def bundle_root(name: str) -> str:
    """
    Find the folder of the bundle that runs, for its configs.

    Args:
        name: of the bundle.

    Returns:
        The bundle of the ``--config_file`` of the command that runs, from whichever folder it is started. Without one,
        as in a Python program, "bundles/<name>" in the repository's root, else ".", which is right inside the bundle.

    Example:
        >>> bundle_root("no_such_bundle")
        '.'
    """
    for file in config_files(given_options().get("config_file")):
        configs = Path(file).parent
        if (configs / "metadata.json").is_file():
            return str(configs.parent)
    folder = Path("bundles", name)
    return folder.as_posix() if (folder / "configs").is_dir() else "."
