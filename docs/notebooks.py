# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Writes ``tutorials/*.ipynb`` from the scripts ``tutorials/*.py``: ``python docs/notebooks.py``.

The scripts are the source, as their changes read well; the notebooks are what Jupyter and the documentation show.
"""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat

__all__ = ["TUTORIALS", "as_notebook", "main"]

TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def as_notebook(script: Path) -> str:
    """
    The notebook of a script in percent format.

    Args:
        script: the script.

    Returns:
        Text of the ``.ipynb`` file, without outputs, the same at each call.
    """
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = nbformat.NotebookNode(kernelspec=_KERNEL)
    if notebook.cells and notebook.cells[0].source.startswith("# Copyright"):
        del notebook.cells[0]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def main() -> None:
    """Write the notebook of each script."""
    for script in sorted(TUTORIALS.glob("*.py")):
        script.with_suffix(".ipynb").write_text(as_notebook(script), encoding="utf-8")


if __name__ == "__main__":
    main()
