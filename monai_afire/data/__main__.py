# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``python -m monai_afire.data SET --root FOLDER --output datalist.json``: label files of public sets -> datalists."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.readers import READERS, LabelReader, write_datalist
from monai_afire.data.shards.folders import verify_shards
from monai_afire.data.shards.writing import write_shards

_SHARDS = """\
Write a folder of radiographs, or those of a datalist, into few large tar files for disks and file systems that do not
like millions of small ones. --dataset_dir OUTPUT of any bundle reads them like the folder or list itself.
"""


def _add_shards_parser(commands: Any) -> None:
    """Add "shards" to the sub-commands of a parser."""
    parser = commands.add_parser(
        "shards", help="many images -> few large tar files, for --dataset_dir", description=_SHARDS
    )
    parser.add_argument("--dataset_dir", help="folder of the images, or that the names of the datalist start from")
    parser.add_argument("--datalist", help="JSON file with sections of images (default: all images of the folder)")
    parser.add_argument("--output", required=True, help="folder to write to, empty")
    parser.add_argument("--shard_megabytes", type=int, default=256, help="size of a tar file (default: 256)")
    parser.add_argument(
        "--verify", action="store_true", help="write nothing; read all of OUTPUT and compare it with its checksums"
    )


def _run_shards(options: dict[str, Any]) -> str:
    """Write or verify."""
    if options.pop("verify"):
        return verify_shards(options["output"])
    return write_shards(**options)


_EXAMPLES = """\
examples:
  python -m monai_afire.data nih --root /data/nih --output nih.json
  python -m monai_afire.data mimic --root /data/mimic --output normal.json --normal_only --frontal_only
  python -m monai_afire.data siim --root /data/siim --output siim.json --mask_dir siim_masks
  python -m monai_afire.data shards --dataset_dir /data/nih --output /data/nih_shards
  python -m monai_afire.data nih --help    shows which files a set needs and all options
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = vars(_parser().parse_args(arguments))
    name = options.pop("set")
    try:
        report = _run_shards(options) if name == "shards" else _read_labels(READERS[name], options)
    except (DatalistError, OSError, RuntimeError) as error:  # the last: another process writes there
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report)
    return 0


def _read_labels(reader_type: type[LabelReader], options: dict[str, Any]) -> Any:
    """Datalist of a set, and what is to be said about it."""
    reader = reader_type(**{field.name: options.pop(field.name) for field in dataclasses.fields(reader_type)})
    return write_datalist(reader, options.pop("root"), options.pop("output"), **options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m monai_afire.data",
        description="Read the label files of a public set and write a MONAI datalist.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sets = parser.add_subparsers(dest="set", required=True, metavar="SET", title="sets")
    for name, reader_type in READERS.items():
        of_set = sets.add_parser(
            name,
            help=reader_type.title,
            description=f"{reader_type.title}\n\n{reader_type.layout}",
            epilog=f"reference: {reader_type.reference}" if reader_type.reference else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_common(of_set, reader_type)
        for field in dataclasses.fields(reader_type):
            _add_option(of_set, field)
    _add_shards_parser(sets)
    return parser


def _add_common(parser: argparse.ArgumentParser, reader_type: type[LabelReader]) -> None:
    """Options of all sets, less those that this one cannot have."""
    parser.add_argument("--root", required=True, help="folder of the images")
    parser.add_argument("--output", required=True, help="datalist to write; paths in it are relative to its folder")
    parser.add_argument("--labels", help="folder of the label files (default: ROOT)")
    if reader_type.has_split:
        parser.add_argument(
            "--split", choices=("official", "random"), default="official", help="which split (default: official)"
        )
        parser.add_argument(
            "--drop_overlap",
            action="store_true",
            help="leave patients that the official split has twice out of the earlier section",
        )
    for name, default, what in (
        ("--val_fraction", 0.1, "part of the patients outside test for validation"),
        ("--test_fraction", 0.2, "part of the patients for test"),
    ):
        explanation = f"{what}, where no official split says it (default: {default})"
        parser.add_argument(name, type=float, default=default, help=explanation)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of patients (default: 0)")
    parser.add_argument("--allow_missing", action="store_true", help="leave out listed images that are not on disk")
    parser.add_argument(
        "--normal_only", action="store_true", help="training and validation: normal images only; test: normal and not"
    )
    parser.add_argument("--frontal_only", action="store_true", help="leave lateral and unusual views out")
    parser.add_argument("--findings", nargs="+", default=(), metavar="NAME", help="findings to keep, in this order")
    if reader_type.has_masks:
        parser.add_argument("--mask_dir", help="folder to draw the masks to as PNG, and list them")


def _add_option(parser: argparse.ArgumentParser, field: dataclasses.Field) -> None:
    """An option that only this set has, from the field of its reader."""
    explanation = field.metadata["help"]
    settings: dict[str, Any] = {"default": field.default}
    if isinstance(field.default, bool):
        settings["action"] = argparse.BooleanOptionalAction
    elif isinstance(field.default, tuple):
        settings.update(nargs="+", metavar="NAME")
        explanation += f" (default: {' '.join(field.default)})"
    else:
        settings.update(type=type(field.default), choices=field.metadata["choices"])
        explanation += f" (default: {field.default})" if field.default else ""
    parser.add_argument(f"--{field.name}", help=explanation, **settings)


if __name__ == "__main__":
    sys.exit(main())
