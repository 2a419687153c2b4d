# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire package BUNDLE OUTPUT``: a pull request to MONAI's Model Zoo."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from monai_afire.apps.zoo.model_zoo import package_for_zoo

_DESCRIPTION = "Write a pull request to MONAI's Model Zoo, and run the zoo's checks."


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("monai-afire package", description=_DESCRIPTION)
    parser.add_argument(
        "name", metavar="BUNDLE", help="folder of a trained bundle, or its name below bundles"
    )
    parser.add_argument(
        "folder", metavar="OUTPUT", help="new folder, with the paths of the zoo's repository"
    )
    parser.add_argument(
        "--url",
        default="",
        help="repository on the Hugging Face Hub, for large files and hf_models",
    )
    parser.add_argument("--zoo_name", help="name in the zoo (default: one with modality and task)")
    options = parser.parse_args(words)
    try:
        local = Path("bundles", options.name)
        folder = local if local.is_dir() else Path(options.name)
        problems = package_for_zoo(folder, options.folder, options.url, options.zoo_name)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.folder}: read PULL_REQUEST.md")
    for problem in problems:
        print(f"not met: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
