# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Sphinx configuration: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``.

The build executes the tutorials (an unchanged one is taken from the cache in ``docs/_build``); ``-D
nb_execution_mode=off`` leaves that out.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext import autosummary

from monai_afire import __version__

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

__all__ = ["setup"]

project = "monai_afire"
author = "monai_afire contributors"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["README.md"]  # index.md includes it
templates_path = ["_templates"]
default_role = "py:obj"

html_theme = "furo"
html_title = f"monai_afire {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars

autosummary_imported_members = True
autosummary_ignore_module_all = False  # what a package exports, not what it imports
_SUMMARY_GOES_ON = ("Eq.", "Fig.", "Sec.")
autosummary.WELL_KNOWN_ABBREVIATIONS = (*autosummary.WELL_KNOWN_ABBREVIATIONS, *_SUMMARY_GOES_ON)  # type: ignore[assignment]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_use_unqualified_type_names = True
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"


_COLLECTED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bundles/*/docs/*",
    "bundles/*/released/*.md",
    "tutorials/*.ipynb",
    "tutorials/plain/*.py",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is special about this project."""
    app.srcdir = app.srcdir / "_build" / "source"
    _collect(Path(app.srcdir))
    app.connect("autodoc-process-docstring", _escape_shapes)
    app.connect("source-read", _link_to_collected)
    return {"parallel_read_safe": True}


def _collect(source: Path) -> None:
    """
    Copy this folder, and the pages that live elsewhere in the repository, to one that Sphinx reads.

    It reads nothing outside of its folder. With the repository's layout the pages' links to each other hold.
    """
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    for pattern in _COLLECTED:
        for page in ROOT.glob(pattern):
            _copy(page, source / page.relative_to(ROOT))


def _copy(page: Path, target: Path) -> None:
    """Copy a page; its links into ``docs/`` lose this folder, as it is the site's root."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(page, target)
    if page.suffix == ".md":
        text = page.read_text(encoding="utf-8")
        target.write_text(re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", text), encoding="utf-8")
        times = page.stat()  # so that unchanged pages are not built again
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def _link_to_collected(app: Sphinx, page: str, content: list[str]) -> None:
    """Links out of ``docs/`` that hold in the repository lead to the copies; pages that were copied have others."""
    if not page.startswith(("bundles/", "tutorials/")):
        copied = r"bundles/[\w/]+\.md|tutorials/[\w/]+\.(?:ipynb|py)|[A-Z]+\.md"
        content[0] = re.sub(rf"\]\(\.\./((?:\.\./)*(?:{copied}))", r"](\1", content[0])


def _escape_shapes(
    app: Sphinx, what: str, name: str, of: object, options: object, lines: list[str]
) -> None:
    """Keep the stars of the docstrings' shapes, ``*S`` or ``(C, *out_size)``, from opening an emphasis."""
    pattern = re.compile(r"(``.*?``|:math:`.*?`)|\*(?=S\b|\w+[,)])")
    lines[:] = [pattern.sub(lambda match: match[1] or r"\*", line) for line in lines]
