# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire data SET --root FOLDER --output datalist.json``: label files of public sets -> datalists."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence

from monai_afire.apps.readers import SETS, write_datalist
from monai_afire.data.datalist.datalist_checks import DatalistError

_EXAMPLES = """\
examples:
  monai-afire data nih --root /data/nih --output nih.json
  monai-afire data mimic --root /data/mimic --output normal.json --normal_only --frontal_only
  monai-afire data table --root /data/images --table findings.csv --output labels.json \\
      --label_columns findings --separator '|'
  monai-afire data nih --help    shows which files a set needs and all options
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its status is 1 after an error, whose message goes to the standard error output."""
    options = vars(_parser().parse_args(argv))
    label_set = SETS[options.pop("set")]
    try:
        report = write_datalist(label_set, options.pop("root"), options.pop("output"), **options)
    except (DatalistError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    """An option that is not given is not passed on: its default stands where it acts."""
    parser = argparse.ArgumentParser(
        prog="monai-afire data",
        description="Read the label files of a public set and write a MONAI datalist.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="SET", title="sets", dest="set")
    for name, label_set in SETS.items():
        command = commands.add_parser(
            name,
            help=label_set.title,
            description=f"{label_set.title}\n\n{inspect.getdoc(label_set.read)}",
            epilog=label_set.reference and f"reference: {label_set.reference}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
        )
        _add_common_options(command)
        _add_own_options(command, name)
    return parser


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--root", required=True, help="folder of the images")
    add("--output", required=True, help="datalist to write; paths in it are relative to its folder")
    add("--labels", help="folder of the label files (default: ROOT)")
    add("--split", choices=("official", "random"), help="which split (default: official, if any)")
    without = "where no official split says it"
    add("--val_fraction", type=float, help=f"patients for validation, {without} (default: 0.1)")
    add("--test_fraction", type=float, help=f"patients for test, {without} (default: 0.2)")
    add("--seed", type=int, help="of the choice of patients (default: 0)")
    add("--findings", nargs="+", metavar="NAME", help="findings to keep, in this order")
    add("--mask_dir", help="folder to draw the masks to as PNG, of a set that has some")
    switches = {
        "--drop_overlap": "keep patients of two sections in the later one alone",
        "--allow_missing": "leave out listed images that are not on disk",
        "--normal_only": "training and validation: normal images only; test: normal and abnormal",
        "--frontal_only": "leave lateral, unusual and unknown views out",
    }
    for option, explanation in switches.items():
        add(option, action="store_true", help=explanation)


def _add_own_options(parser: argparse.ArgumentParser, name: str) -> None:
    add = parser.add_argument
    if name == "mimic":
        add("--labeler", choices=("chexpert", "negbio"), help="which labels (default: chexpert)")
    elif name == "jsrt":
        add("--png_dir", help="folder to write images and masks to as PNG; nothing else reads .IMG")
    elif name == "fire":
        excluded = "pairs to leave out, such as P37, which published comparisons do not use"
        add("--exclude", nargs="+", metavar="PAIR", help=excluded)
    elif name == "table":
        columns = "column of the class or finding, or columns of the findings (default: label)"
        add("--label_columns", nargs="+", metavar="COLUMN", help=columns)
        classes = "classes of a column of numbers from 0; 0: its 0 and 1 are one finding (default)"
        add("--num_classes", type=int, help=classes)
        texts = {
            "--table": "in the folder of the labels, in ROOT, or any path (default: labels.csv)",
            "--image_column": "column of the image, a path relative to ROOT (default: image)",
            "--separator": "text between the findings that the cells of a column name, such as '|'",
            "--no_finding": "what a cell without a finding holds, or '' (default: No Finding)",
            "--patient_column": "without it, the file's name is searched (default: patient_id)",
            "--split_column": "train, val or test; without it: by fractions (default: split)",
        }
        for option, explanation in texts.items():
            add(option, help=explanation)


if __name__ == "__main__":
    sys.exit(main())
