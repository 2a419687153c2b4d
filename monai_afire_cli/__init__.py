# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
The command ``monai-afire``: finds, copies, explains and starts the bundles that come with ``monai_afire``.

It is a package of its own because ``import monai_afire`` loads all components, as short names in MONAI's configs need,
and with them MONAI and PyTorch: several seconds in which ``monai-afire --help`` would say nothing. Here only the
standard library is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command; see :func:`monai_afire_cli.command.main`.

    Ctrl-C ends it in a line also while its own parts are imported, so nothing is imported before.

    Args:
        arguments: words of the command line, those of the process if None.

    Returns:
        Exit status.

    Example:
        >>> main(["copy", "afire", "."])
        1
    """
    try:
        from monai_afire_cli.command import main as run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        print("\nstopped by SIGINT", file=sys.stderr)
        return 130  # INTERRUPTED_EXIT_CODE, whose module may not be loaded
