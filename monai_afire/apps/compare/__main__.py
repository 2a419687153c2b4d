# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire compare DATALIST ENCODER ...``: which encoder for my data?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from monai_afire.apps.compare.comparison import compare_encoders
from monai_afire.apps.compare.encoders import ENCODER_WORDS
from monai_afire.apps.runs.process_end import innermost_cause, show_cause_last
from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.utils.distributed import launched_group
from monai_afire_cli.pipes import until_unread

_DESCRIPTION = "Compare encoders with pixels on labeled radiographs: a page and a table. Run it again to go on."
_ENCODERS = f"{ENCODER_WORDS}; NAME= ahead of it gives a name"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("monai-afire compare", description=_DESCRIPTION)
    parser.add_argument(
        "datalist",
        metavar="DATALIST",
        help="JSON list, or CSV table: image, label, patient_id, split",
    )
    parser.add_argument("encoders", metavar="ENCODER", nargs="+", help=_ENCODERS)
    parser.add_argument(
        "--dataset_dir", help="folder that names in the list start from (default: that of the list)"
    )
    parser.add_argument(
        "--output_dir", default="compare", help="folder of the results (default: %(default)s)"
    )
    parser.add_argument(
        "--section", help="that is evaluated (default: test, or validation if there is none)"
    )
    parser.add_argument(
        "--field_of_view", choices=FIELDS_OF_VIEW, default="lungs", help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    try:
        with launched_group():
            sentence = compare_encoders(**vars(options))
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {innermost_cause(error)}", file=sys.stderr)
        return 1
    print(f"\nOpen {options.output_dir}/compare.html. {sentence}")
    return 0


if __name__ == "__main__":
    show_cause_last("stopped by Ctrl-C: the same command goes on after what was encoded")
    sys.exit(until_unread(main))
