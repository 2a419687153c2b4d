# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The tutorials' notebooks are those of their scripts. The build of the documentation executes them."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "tutorials").glob("*.py"))


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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_is_in_step_with_its_script(notebooks: ModuleType, script: Path) -> None:
    written = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert written["cells"] == json.loads(notebooks.as_notebook(script))["cells"], (
        "run: python docs/notebooks.py"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_has_no_outputs_and_compiles(script: Path) -> None:
    cells = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert re.match(r"# \d\. ", "".join(cells[0]["source"]))
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            assert cell["execution_count"] is None
            ast.parse("".join(cell["source"]))


def test_every_notebook_has_a_script() -> None:
    assert SCRIPTS
    assert sorted(path.stem for path in (ROOT / "tutorials").glob("*.ipynb")) == [
        path.stem for path in SCRIPTS
    ]
