# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire compare DATALIST ENCODER ...``: which encoder for my data?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from monai_afire.apps.compare.comparison import compare_encoders
from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.utils.process_group import launched_group
from monai_afire.utils.text import innermost_cause

_DESCRIPTION = "Compare encoders with pixels on labeled radiographs: a page and a table."
_ENCODER = (
    "untrained, released, released_96, released_224, released_cnn, imagenet, latest, a run, its folder, its model.pt "
    "(model.pt:random for its network with random weights), hub:FOLDER or timm:NAME; NAME= ahead of it gives a name"
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(words)
    try:
        with launched_group():
            sentence = compare_encoders(**vars(options))
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {innermost_cause(error)}", file=sys.stderr)
        return 1
    print(f"\nOpen {options.output_dir}/compare.html. {sentence}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("monai-afire compare", description=_DESCRIPTION)
    add = parser.add_argument
    datalist = "JSON list, or CSV table: image, label, patient_id, split"
    add("datalist", metavar="DATALIST", help=datalist)
    add("encoders", metavar="ENCODER", nargs="+", help=_ENCODER)
    folder = "folder that names in the list start from (default: that of the list)"
    add("--dataset_dir", help=folder)
    add("--output_dir", default="compare", help="folder of the results (default: %(default)s)")
    section = "that is evaluated (default: test, or validation if there is none)"
    add("--section", help=section)
    add("--field_of_view", choices=FIELDS_OF_VIEW, default="lungs", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
