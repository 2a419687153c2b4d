# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire data SET --root FOLDER --output datalist.json``: label files of public sets -> datalists."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from monai_afire.apps.readers import READERS, DatalistReport, LabelReader, write_datalist
from monai_afire.data.datalist.datalist_checks import DatalistError

_EXAMPLES = """\
examples:
  monai-afire data nih --root /data/nih --output nih.json
  monai-afire data mimic --root /data/mimic --output normal.json --normal_only --frontal_only
  monai-afire data siim --root /data/siim --output siim.json --mask_dir siim_masks
  monai-afire data nih --help    shows which files a set needs and all options
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = vars(_parser().parse_args(words))
    try:
        report = options.pop("run")(**options)
    except (DatalistError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report)
    return 0


def _run_reader(reader_type: type[LabelReader], **options: Any) -> DatalistReport:
    """Write the datalist of a set."""
    reader = reader_type(
        **{field.name: options.pop(field.name) for field in dataclasses.fields(reader_type)}
    )
    return write_datalist(reader, options.pop("root"), options.pop("output"), **options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="monai-afire data",
        description="Read the label files of a public set and write a MONAI datalist.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="SET", title="sets")
    for name, reader_type in READERS.items():
        of_set = commands.add_parser(
            name,
            help=reader_type.title,
            description=f"{reader_type.title}\n\n{inspect.getdoc(reader_type)}",
            epilog=f"reference: {reader_type.reference}" if reader_type.reference else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        of_set.set_defaults(run=functools.partial(_run_reader, reader_type))
        _add_common(of_set, reader_type.has_split, reader_type.has_masks)
        for field in dataclasses.fields(reader_type):
            _add_option(of_set, field)
    return parser


def _add_common(
    parser: argparse.ArgumentParser, has_split: bool = False, has_masks: bool = False
) -> None:
    """Add the options that all sets have."""
    add, flag = parser.add_argument, functools.partial(parser.add_argument, action="store_true")
    add("--root", required=True, help="folder of the images")
    add("--output", required=True, help="datalist to write; paths in it are relative to its folder")
    add("--labels", help="folder of the label files (default: ROOT)")
    if has_split:
        add(
            "--split",
            choices=("official", "random"),
            default="official",
            help="which split (default: official)",
        )
        flag("--drop_overlap", help="keep patients of two sections in the later one alone")
    without = "where no official split says it"
    validation = f"part of the patients outside test for validation, {without} (default: 0.1)"
    add("--val_fraction", type=float, default=0.1, help=validation)
    add(
        "--test_fraction",
        type=float,
        default=0.2,
        help=f"part of the patients for test, {without} (default: 0.2)",
    )
    add("--seed", type=int, default=0, help="of the choice of patients (default: 0)")
    flag("--allow_missing", help="leave out listed images that are not on disk")
    flag(
        "--normal_only",
        help="training and validation: normal images only; test: normal and abnormal",
    )
    flag("--frontal_only", help="leave lateral and unusual views out")
    add("--findings", nargs="+", default=(), metavar="NAME", help="findings to keep, in this order")
    if has_masks:
        add("--mask_dir", help="folder to draw the masks to as PNG, and list them")


def _add_option(parser: argparse.ArgumentParser, field: dataclasses.Field) -> None:
    """An option that only this set has, from the field of its reader."""
    default: Any = field.default
    explanation = field.metadata["help"]
    if isinstance(default, bool):
        parser.add_argument(f"--{field.name}", action="store_true", help=explanation)
        return
    several = isinstance(default, tuple)
    shown = " ".join(default) if isinstance(default, tuple) else default
    parser.add_argument(
        f"--{field.name}",
        default=default,
        nargs="+" if several else None,
        type=str if several else type(default),
        choices=field.metadata["choices"],
        help=f"{explanation} (default: {shown})" if shown else explanation,
    )


if __name__ == "__main__":
    sys.exit(main())
