# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Writes ``tutorials/*.ipynb`` from the scripts ``tutorials/*.py``, and executes them: ``python docs/notebooks.py``.

The scripts are the source, as their changes read well; the notebooks are what Jupyter and the documentation show.
Their outputs are made small: pictures become JPEG, progress bars are left out, long prints are cut. ``python
docs/notebooks.py tutorials/4_parts_in_your_pipeline.py`` executes one.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "tutorials"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_TIMEOUT = 1800  # seconds of a cell
_WIDTH = 800  # pixels of a picture
_QUALITY = 80  # of JPEG
_MOST_LINES = 40  # of a print
_PATHS = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+")  # absolute folders, which are of this machine


def main(names: Sequence[str] = ()) -> None:
    """Write and execute the notebook of each script, or of those that are named."""
    for script in [Path(name) for name in names] or sorted(TUTORIALS.glob("*.py")):
        notebook = _without_outputs(script)
        print(f"executing {script.name}", flush=True)
        NotebookClient(notebook, timeout=_TIMEOUT, resources={"metadata": {"path": ROOT}}).execute()
        _make_outputs_smaller(notebook)
        notebook.metadata = nbformat.NotebookNode(
            kernelspec=_KERNEL
        )  # not the version of this Python
        nbformat.validate(notebook)
        text = nbformat.writes(notebook) + "\n"
        script.with_suffix(".ipynb").write_text(text, encoding="utf-8")


def _make_outputs_smaller(notebook: nbformat.NotebookNode) -> None:
    """Leave of a notebook's outputs what a reader needs, and nothing of the machine."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.metadata.pop("execution", None)  # times
        kept = [each for each in cell.outputs if each.get("name") != "stderr"]  # progress bars
        for output in kept:
            _make_smaller(output)
        cell.outputs = _joined(kept)


def _without_outputs(script: Path) -> nbformat.NotebookNode:
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = nbformat.NotebookNode(kernelspec=_KERNEL)
    if notebook.cells and notebook.cells[0].source.startswith("# Copyright"):
        del notebook.cells[0]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def _joined(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Prints in a row as one: each line of a log is an output of its own, with an empty line after it."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text = _shorter(joined[-1].text + output.text)
        else:
            joined.append(output)
    return joined


def _make_smaller(output: nbformat.NotebookNode) -> None:
    if "text" in output:
        output.text = _shorter(output.text)
    data = output.get("data", {})
    if "image/png" in data:
        data["image/jpeg"] = _jpeg(data.pop("image/png"))
    if "text/plain" in data:
        data["text/plain"] = _shorter(data["text/plain"])


def _shorter(text: str) -> str:
    """A print without folders of this machine, of at most so many lines."""
    text = _PATHS.sub("", text.replace(f"{ROOT}/", ""))
    lines = [line for line in text.splitlines(keepends=True) if line.strip()]
    if len(lines) <= _MOST_LINES:
        return "".join(lines)
    half = _MOST_LINES // 2
    return "".join([*lines[:half], "...\n", *lines[-half:]])


def _jpeg(png: str) -> str:
    picture = Image.open(BytesIO(base64.b64decode(png))).convert("RGB")
    picture.thumbnail((_WIDTH, _WIDTH), Image.Resampling.LANCZOS)
    file = BytesIO()
    picture.save(file, "JPEG", quality=_QUALITY, optimize=True)
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
