# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of commands that load PyTorch, read without it: by the command itself, and before it is started."""

from __future__ import annotations

import argparse
import math

from monai_afire_cli.options.overrides import OWN_ENCODERS
from monai_afire_cli.options.words import SAVED_KINDS
from monai_afire_cli.options.wrong_values import at_least, wrong_value

__all__ = [
    "CHECKS",
    "ENCODERS",
    "ENCODER_WORDS",
    "EXCLUDED",
    "EXIT_CODE_FAILED",
    "FIELDS_OF_VIEW",
    "audit_parser",
    "compare_parser",
    "watch_parser",
]

EXIT_CODE_FAILED = 3
"""Of an audit that --fail_on refuses: 1 is an error, 2 a wrong option."""
CHECKS = (
    *("unreadable", "blank", "saturated", "exact_duplicate", "near_duplicate", "not_chest"),
    *("other_view", "two_views", "partial_lungs", "rotated", "mirrored", "inverted", "text"),
    *("borders", "exposure", "resolution", "patient_in_splits", "no_patient"),
    "identifying_header",
)
"""Names of an audit's checks."""
EXCLUDED = (
    *("unreadable", "blank", "exact_duplicate", "near_duplicate"),
    *("other_view", "patient_in_splits"),
)
"""Checks whose images the cleaned datalist of an audit leaves out by default."""
ENCODERS = ("untrained", *OWN_ENCODERS)
"""Names of encoders that ``compare`` knows."""
ENCODER_WORDS = f"{', '.join(ENCODERS)}, model.pt, model.pt:random, hub:FOLDER or timm:NAME"
"""What ``compare`` takes for an encoder."""
FIELDS_OF_VIEW = ("image", "lungs")
"""Parts of a radiograph that an encoder sees."""
_AUDIT = """\
Check the radiographs of a folder or a datalist: unreadable, blank, turned, mirrored, inverted, duplicates, patients in
several splits, and more. Writes a page, a table, the numbers, and a cleaned datalist. No image is changed or deleted.
Run it again to go on after a stop.
"""
_COMPARE = "Compare encoders with pixels on labeled radiographs: a page and a table. Run it again to go on."
_WATCH = """\
Score the radiographs that arrive in a folder, each once, until SIGTERM or Ctrl-C. Each batch has a folder in OUT with
its work-list, which appears when it is complete. After a stop or a kill, the same command goes on.
"""


def compare_parser() -> argparse.ArgumentParser:
    """
    Of ``monai-afire compare``.

    Example:
        >>> compare_parser().parse_args(["list.json", "released", "mine=model.pt"]).encoders
        ['released', 'mine=model.pt']
    """
    parser = argparse.ArgumentParser("monai-afire compare", description=_COMPARE)
    add = parser.add_argument
    add(
        "datalist",
        metavar="DATALIST",
        help="JSON list, or CSV table: image, label, patient_id, split",
    )
    named = f"{ENCODER_WORDS}; NAME= ahead of it gives a name"
    add("encoders", metavar="ENCODER", nargs="+", help=named)
    folder = "folder that names in the list start from (default: that of the list)"
    add("--dataset_dir", help=folder)
    add("--output_dir", default="compare", help="folder of the results (default: %(default)s)")
    section = "that is evaluated (default: test, or validation if there is none)"
    add("--section", help=section)
    add("--field_of_view", choices=FIELDS_OF_VIEW, default="lungs", help="default: %(default)s")
    return parser


def audit_parser() -> argparse.ArgumentParser:
    """
    Of ``monai-afire audit``.

    Example:
        >>> audit_parser().parse_args(["ward", "--fail_on", "blank,text"]).fail_on
        ('blank', 'text')
    """
    parser = argparse.ArgumentParser("monai-afire audit", description=_AUDIT)
    add = parser.add_argument
    folder = "of the images, or that names in the datalist start from"
    add("dataset_dir", metavar="FOLDER", help=folder)
    datalist = "JSON file with sections of images (default: all images of the folder)"
    add("--datalist", help=datalist)
    add("--output_dir", default="audit", help="folder of the results (default: audit)")
    excluded = "checks whose images the cleaned datalist leaves out (default: %(default)s)"
    add("--exclude", nargs="*", choices=CHECKS, default=EXCLUDED, metavar="CHECK", help=excluded)
    workers = "processes that read files (default: 0, this one)"
    add("--num_workers", type=_count, default=0, help=workers)
    add("--shown", type=_count, default=24, help="pictures per check on the page (default: 24)")
    failing = (
        f"end with exit code {EXIT_CODE_FAILED} if one of these checks finds an image, "
        "before a training or a scoring"
    )
    add("--fail_on", type=_checks, default=(), metavar="CHECK,...", help=failing)
    return parser


def watch_parser() -> argparse.ArgumentParser:
    """
    Of ``monai-afire watch``.

    Example:
        >>> watch_parser().parse_args(["in", "out"]).output_dir
        'out'
    """
    parser = argparse.ArgumentParser("monai-afire watch", description=_WATCH)
    add = parser.add_argument
    add("folder", metavar="IN", help="where radiographs arrive")
    add("output_dir", metavar="OUT", help="where results are written; not inside of IN")
    add("--interval", type=_duration, help="seconds for which a file must not change (default: 10)")
    weights = parser.add_mutually_exclusive_group().add_argument
    weights("--ckpt_path", help="file of the detector (default: the released one)")
    run = "run of the bundle afire that trained the detector: latest, its name or its folder"
    weights("--weights_of", metavar="RUN", help=run)
    kinds = f"{', '.join(SAVED_KINDS)} (default: overlays thumbnails)"
    add("--saved", nargs="*", choices=SAVED_KINDS, metavar="KIND", help=kinds)
    normals = "folder or datalist of your own normal images, or the file of a run"
    add("--calibrate", help=normals)
    weeks = "of that folder, take the images of the last N weeks, anew each day"
    add("--calibrate_weeks", type=_duration, metavar="N", help=weeks)
    add("--device", help="where the network computes, such as cpu or cuda:0")
    return parser


def _count(text: str) -> int:
    """A whole number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(wrong_value(text, at_least(0)))
    return int(text)


def _duration(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(wrong_value(text, "a number > 0"))
    return value


def _checks(text: str) -> tuple[str, ...]:
    """Names of checks between commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := sorted(set(names) - set(CHECKS)):
        raise argparse.ArgumentTypeError(f"no checks {unknown}: choose from {', '.join(CHECKS)}")
    return names
