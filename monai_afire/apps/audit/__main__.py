# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire audit FOLDER``: are these images fit for training?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import torch

from monai_afire.apps.audit.audit import audit_images
from monai_afire.apps.runs.process_end import show_cause_last
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.utils.distributed import launched_group
from monai_afire_cli.process.pipes import until_unread
from monai_afire_cli.subcommands.parsers import EXIT_CODE_FAILED, audit_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = audit_parser().parse_args(arguments)
    try:
        with launched_group(torch.device("cpu")):
            summary = audit_images(**vars(options))
    except (DatalistError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    folder = options.output_dir
    given = {"dataset_dir": options.dataset_dir, "datalist": f"{folder}/datalist.json"}
    words = [f"--{name} {shlex.quote(str(path))}" for name, path in given.items() if path]
    train = f" Train with {' '.join(words)}" if summary.kept else ""
    print(f"{summary}\n\nOpen {folder}/audit.html.{train}")
    if refusal := summary.refusal():
        print(f"refused by --fail_on:\n{refusal}", file=sys.stderr)
        return EXIT_CODE_FAILED
    return 0


if __name__ == "__main__":
    show_cause_last("stopped by Ctrl-C: the same command goes on after what was read")
    sys.exit(until_unread(main))
