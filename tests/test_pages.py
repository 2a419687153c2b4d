# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a reader copies: README's commands and its Python, and the names of packages in docs/how_it_works.md."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from monai_afire.data.phantom import draw_chest_phantom

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(start: str) -> list[str]:
    """The shell commands of README that begin so."""
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [part for part in parts if part.startswith(start)]


def configs_and_options(command: str) -> tuple[list[Path], list[str]]:
    words = shlex.split(command, comments=True)
    options = [word.removeprefix("--") for word in words if word.startswith("--")]
    if words[0] == "python":
        options.remove("config_file")
        return [ROOT / words[words.index("--config_file") + 1]], options
    _, _, bundle, *others = words
    names = itertools.takewhile(lambda word: not word.startswith("--"), others)
    return [ROOT / "bundles" / bundle / "configs" / f"{name}.json" for name in names], options


@pytest.mark.parametrize(
    "command", [*commands("monai-afire run "), *commands("python -m monai.bundle run ")]
)
def test_commands_name_configs_and_options_that_exist(command: str) -> None:
    paths, options = configs_and_options(command)
    known: set[str] = set()
    for path in paths:
        known |= json.loads(path.read_text(encoding="utf-8")).keys()
    assert paths
    assert {option.split("::")[0] for option in options} <= known


def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chest = draw_chest_phantom(0, 128).image[0]
    Image.fromarray((255 * chest).astype(np.uint8)).save("chest.png")
    names: dict[str, object] = {}
    assert blocks("python")
    for block in blocks("python"):
        exec(block, names)


def test_packages_of_how_it_works_exist() -> None:
    page = (ROOT / "docs/how_it_works.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    names = re.findall(r"`([a-z_]+(?:[./][a-z_]+)*)/?`", " ".join(cells))
    assert len(names) > 10
    for name in names:
        path = name.replace("/", ".").removeprefix("monai_afire.")
        import_module(f"monai_afire.{path}")
