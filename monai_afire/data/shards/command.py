# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The words of ``python -m monai_afire.data shards``."""

from __future__ import annotations

import argparse
from typing import Any

from monai_afire.data.shards.verifying import verify_shards
from monai_afire.data.shards.writing import write_shards

__all__ = ["add_shards_parser", "run_shards"]

_DESCRIPTION = """\
Write a folder of radiographs, or those of a datalist, into few large tar files for disks and file systems that do not
like millions of small ones. --dataset_dir OUTPUT of any bundle reads them like the folder or list itself.
"""


def add_shards_parser(commands: Any) -> None:
    """Add "shards" to the sub-commands of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "shards", help="many images -> few large tar files, for --dataset_dir", description=_DESCRIPTION
    )
    parser.add_argument("--dataset_dir", help="folder of the images, or that the names of the datalist start from")
    parser.add_argument("--datalist", help="JSON file with sections of images (default: all images of the folder)")
    parser.add_argument("--output", required=True, help="folder to write to, empty")
    parser.add_argument("--shard_megabytes", type=int, default=256, help="size of a tar file (default: 256)")
    parser.add_argument(
        "--verify", action="store_true", help="write nothing; read all of OUTPUT and compare it with its checksums"
    )


def run_shards(options: dict[str, Any]) -> str:
    """
    Write or verify.

    Args:
        options: of the command line.

    Returns:
        A line that says what was done.

    Raises:
        DatalistError: see :func:`write_shards` and :func:`verify_shards`.
        OSError: when the disk is full or fails.
    """
    if options.pop("verify"):
        return verify_shards(options["output"])
    return write_shards(**options)
