# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``python -m monai_afire.apps.runs CONFIG ...``: what can be set in a run, for ``monai-afire options``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from monai.bundle import ConfigParser

from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.options.help_text import help_text
from monai_afire_cli.process.pipes import until_unread


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    files = sys.argv[1:] if arguments is None else arguments
    layers = {file: ConfigParser.load_config_file(file) for file in files}
    print(help_text(BundleCall(layers)))
    return 0


if __name__ == "__main__":
    sys.exit(until_unread(main))
