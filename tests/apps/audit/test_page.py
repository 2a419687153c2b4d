# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Page of the audit: hostile texts, no network, pictures within the file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from html_pages import Elements, needs_chromium, shown_width
from PIL import Image

from monai_afire.apps.audit import audit_images

HOSTILE = ('<script>alert("1")<', "\" onerror='alert(2)", "a&b #1%", "Ünïcode", "=1+1")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    random = np.random.default_rng(0)
    for name in HOSTILE:
        Image.fromarray(random.integers(0, 255, (64, 64), np.uint8)).save(root / f"{name}.png")
    (root / "bad<b>.png").write_text("text")
    audit_images(root, output_dir=root / "out", shown=3)
    return root / "out" / "audit.html"


def test_every_text_of_others_is_escaped(page: Path) -> None:
    elements = Elements(page.read_text(encoding="utf-8")).found
    assert not {"script", "b"} & {tag for tag, _ in elements}
    assert not any(name.startswith("on") for _, attributes in elements for name in attributes)


def test_the_page_is_one_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//cdn|@import|<link", text)
    assert "default-src 'none'; img-src data:" in text
    sources = [attributes["src"] or "" for tag, attributes in Elements(text).found if tag == "img"]
    assert sources
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)


def test_the_table_has_no_formulas(page: Path) -> None:
    assert "\n'=1+1.png," in (page.parent / "audit.csv").read_text(encoding="utf-8").replace(
        "\r", ""
    )


@needs_chromium
@pytest.mark.parametrize("width", [390])
def test_nothing_is_wider_than_the_window(page: Path, width: int, tmp_path: Path) -> None:
    assert shown_width(page.read_text(encoding="utf-8"), width, tmp_path) <= width
