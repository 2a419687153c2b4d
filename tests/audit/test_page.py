# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Page of the audit: hostile texts, no network, pictures within the file."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from monai_afire.audit import audit_images

HOSTILE = ('<script>alert("1")<', "\" onerror='alert(2)", "a&b #1%", "Ünïcode", "=1+1")


class Elements(HTMLParser):
    """Every start tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


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


def test_no_more_pictures_than_asked_for(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for section in re.findall(r"<section.*?</section>", text, re.DOTALL):
        assert section.count("<li>") <= 3
    assert "The first 3 are shown" in text


def test_pictures_have_texts_and_sections_have_titles(page: Path) -> None:
    elements = Elements(page.read_text(encoding="utf-8")).found
    assert all(attributes.get("alt") for tag, attributes in elements if tag == "img")
    titles = {attributes.get("id") for tag, attributes in elements if tag == "h2"}
    assert all(attributes["aria-labeledby"] in titles for tag, attributes in elements if tag == "section")


def test_the_table_has_no_formulas(page: Path) -> None:
    assert "\n'=1+1.png," in (page.parent / "audit.csv").read_text(encoding="utf-8").replace("\r", "")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(page: Path, width: int, tmp_path: Path) -> None:
    measure = "<p id=w></p><script>document.getElementById('w').textContent = 'W' + document.body.scrollWidth</script>"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    frame = f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
    (tmp_path / "page.html").write_text(text.replace("</main>", f"{measure}</main>"), encoding="utf-8")
    (tmp_path / "frame.html").write_text(
        f"{frame}<pre></pre><script>onload = () => document.querySelector('pre').textContent ="
        " document.querySelector('iframe').contentDocument.getElementById('w').textContent</script>"
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    options += ["--allow-file-access-from-files"]
    run = subprocess.run(
        ["chromium", *options, (tmp_path / "frame.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r"<pre>W(\d+)</pre>", run.stdout)
    assert found, run.stdout[-500:]
    assert int(found[1]) <= width
