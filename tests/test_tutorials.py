# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The tutorials' notebooks are those of their scripts, with small outputs. The site's build executes them."""

from __future__ import annotations

import ast
import base64
import importlib.util
import json
import re
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "tutorials").glob("*.py"))
MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    pytest.importorskip(
        "jupytext", reason="the notebooks are written with jupytext, see the extra docs"
    )
    specification = importlib.util.spec_from_file_location("notebooks", ROOT / "docs/notebooks.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def cells_of(script: Path) -> list[dict[str, Any]]:
    """The cells of a script's notebook."""
    return json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]


def without_outputs(cell: dict[str, Any]) -> dict[str, Any]:
    return {**cell, "outputs": [], "execution_count": None} if "outputs" in cell else cell


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_is_in_step_with_its_script(notebooks: ModuleType, script: Path) -> None:
    written = [without_outputs(cell) for cell in cells_of(script)]
    assert written == json.loads(notebooks.as_notebook(script))["cells"], (
        "run: python docs/notebooks.py"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_compiles(script: Path) -> None:
    cells = cells_of(script)
    assert cells[0]["cell_type"] == "markdown"
    assert re.match(r"# \d\. ", "".join(cells[0]["source"]))
    for cell in cells:
        if cell["cell_type"] == "code":
            ast.parse("".join(cell["source"]))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_outputs_are_whole_and_small_and_of_no_machine(script: Path) -> None:
    assert script.with_suffix(".ipynb").stat().st_size < MOST_BYTES
    cells = [cell for cell in cells_of(script) if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/jpeg" in output.get("data", {}) for output in outputs)
    for output in outputs:
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr"
        data = output.get("data", {})
        texts = [output.get("text", []), data.get("text/plain", []), data.get("text/html", [])]
        for text in ("".join(text) for text in texts):
            assert "Traceback" not in text
            assert not re.search(r"(?<![\w.])/(?:[\w.-]+/)+", text), text


def test_outputs_are_made_small(notebooks: ModuleType) -> None:
    nbformat = pytest.importorskip("nbformat")
    file = BytesIO()
    Image.new("RGB", (2000, 1000)).save(file, "PNG")
    picture = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/plain": "<Figure>"}
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="12%"),
        nbformat.v4.new_output("stream", text=f"{ROOT}/runs/a /home/me/b.png 3/4 tutorials/c\n"),
        nbformat.v4.new_output("stream", text="line\n" * 1000),
        nbformat.v4.new_output("display_data", data=picture),
    ]
    cell = nbformat.v4.new_code_cell("1", outputs=outputs)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebooks.smaller_outputs(notebook)
    printed, shown = notebook.cells[0].outputs
    assert printed.text.startswith("runs/a b.png 3/4 tutorials/c\nline\n")
    assert printed.text.count("\n") < 50
    assert "image/png" not in shown.data
    jpeg = Image.open(BytesIO(base64.b64decode(shown.data["image/jpeg"])))
    assert (jpeg.format, jpeg.size) == ("JPEG", (800, 400))


def test_every_notebook_has_a_script() -> None:
    assert SCRIPTS
    assert sorted(path.stem for path in (ROOT / "tutorials").glob("*.ipynb")) == [
        path.stem for path in SCRIPTS
    ]
