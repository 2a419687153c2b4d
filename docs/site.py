# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Builds the site in ``docs/_build/html``: ``python docs/site.py [options of sphinx-build]``.

Sphinx reads one folder. The pages of this folder, of the bundles and the tutorials are copied to
``docs/_build/source``, so that the build leaves the rest of the repository as it is. It executes the tutorials (an
unchanged one is taken from the cache); ``-D nb_execution_mode=off`` leaves that out.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
BUILD = DOCS / "_build"
_COLLECTED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bundles/*/docs/*",
    "bundles/*/released/*.md",
    "tutorials/*.ipynb",
    "tutorials/plain/*.py",
)

__all__ = ["main"]


def main(options: list[str]) -> int:
    """
    Build the site.

    Args:
        options: options of ``sphinx-build``; warnings are errors unless ``-W`` is overruled.

    Returns:
        Sphinx's exit status.
    """
    source = BUILD / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    for pattern in _COLLECTED:
        for page in ROOT.glob(pattern):
            _copy(page, source / page.relative_to(ROOT))
    return sphinx_build(
        [
            "-W",
            "--keep-going",
            "-b",
            "html",
            "-c",
            str(DOCS),
            *options,
            str(source),
            str(BUILD / "html"),
        ]
    )


def _copy(page: Path, target: Path) -> None:
    """Copy a page; its links into ``docs/`` lose this folder, as it is the site's root."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(page, target)
    if page.suffix == ".md":
        text = page.read_text(encoding="utf-8")
        target.write_text(re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", text), encoding="utf-8")
        times = page.stat()  # so that unchanged pages are not built again
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
