# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire audit FOLDER``: are these images fit for training?"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

import torch

from monai_afire.apps.audit.audit import audit_images
from monai_afire.apps.audit.audit_checks import CHECKS, EXCLUDED
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.utils.process_group import launched_group
from monai_afire.utils.text import counted, first_few

_DESCRIPTION = """\
Check the radiographs of a folder or a datalist: unreadable, blank, turned, mirrored, inverted, duplicates, patients in
several splits, and more. Writes a page, a table, the numbers, and a cleaned datalist. No image is changed or deleted.
"""
_NAMES = tuple(check.name for check in CHECKS)
_FAILED = 3  # 1 is an error, 2 a wrong option


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(words)
    try:
        with launched_group(torch.device("cpu")):
            summary = audit_images(**vars(options))
    except (DatalistError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    folder = options.output_dir
    given = {"dataset_dir": options.dataset_dir, "datalist": f"{folder}/datalist.json"}
    shown = [f"--{name} {shlex.quote(str(path))}" for name, path in given.items() if path]
    train = f" Train with {' '.join(shown)}" if summary["kept"] else ""
    print(f"{summary['kept']:,} of {counted(summary['images'], 'image')} kept")
    for check in CHECKS:
        if number := summary["findings"][check.name]:
            print(f"{check.title}: {number:,}")
    print(f"\nOpen {folder}/audit.html.{train}")
    refused = {name: images for name, images in summary["failed"].items() if images}
    if refused:
        print("refused by --fail_on:", file=sys.stderr)
    for name, images in refused.items():
        texts = (f"{image} ({detail})" for image, detail in images.items())
        print(f"{name}: {counted(len(images), 'image')}: {first_few(texts, 5)}", file=sys.stderr)
    return _FAILED if refused else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("monai-afire audit", description=_DESCRIPTION)
    add = parser.add_argument
    folder = "of the images, or that names in the datalist start from"
    add("dataset_dir", metavar="FOLDER", help=folder)
    datalist = "JSON file with sections of images (default: all images of the folder)"
    add("--datalist", help=datalist)
    add("--output_dir", default="audit", help="folder of the results (default: audit)")
    excluded = "checks whose images the cleaned datalist leaves out (default: %(default)s)"
    add("--exclude", nargs="*", choices=_NAMES, default=EXCLUDED, metavar="CHECK", help=excluded)
    workers = "processes that read files (default: 0, this one)"
    add("--num_workers", type=int, default=0, help=workers)
    add("--shown", type=int, default=24, help="pictures per check on the page (default: 24)")
    failing = f"end with exit code {_FAILED} if one of these checks finds an image"
    add("--fail_on", nargs="*", choices=_NAMES, default=(), metavar="CHECK", help=failing)
    return parser


if __name__ == "__main__":
    sys.exit(main())
