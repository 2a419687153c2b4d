# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire compare DATALIST ENCODER ...``: which encoder for my data?"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from monai_afire.apps.compare.comparison import compare_encoders
from monai_afire.apps.runs.process_end import innermost_cause, show_cause_last
from monai_afire.utils.distributed import launched_group
from monai_afire_cli.process.pipes import until_unread
from monai_afire_cli.subcommands.parsers import compare_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = compare_parser().parse_args(arguments)
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
