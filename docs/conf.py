# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Sphinx configuration; ``python docs/site.py`` builds the site."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext import autosummary

from monai_afire import __version__

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


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is special about this project."""
    app.connect("autodoc-process-docstring", _escape_shapes)
    app.connect("source-read", _link_to_collected)
    return {"parallel_read_safe": True}


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
