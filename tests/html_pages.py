# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What tests of HTML pages share: their elements, and how a browser shows them."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")


class Elements(HTMLParser):
    """Every start tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def shown_by_chromium(page: Path, profile: Path) -> str:
    """The page as the browser has it after its scripts."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={profile}",
        "--dump-dom",
    ]
    options += ["--allow-file-access-from-files"]
    run = subprocess.run(
        ["chromium", *options, page.as_uri()], capture_output=True, text=True, timeout=120
    )
    return run.stdout


def shown_width(text: str, width: int, folder: Path) -> int:
    """Pixels that a page's content needs in a window of a width; ``folder`` takes files of the measurement."""
    measure = "<p id=w></p><script>document.getElementById('w').textContent = 'W' + document.body.scrollWidth</script>"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    frame = f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
    (folder / "page.html").write_text(
        text.replace("</main>", f"{measure}</main>"), encoding="utf-8"
    )
    (folder / "frame.html").write_text(
        f"{frame}<pre></pre><script>onload = () => document.querySelector('pre').textContent ="
        " document.querySelector('iframe').contentDocument.getElementById('w').textContent</script>"
    )
    shown = shown_by_chromium(folder / "frame.html", folder / "profile")
    found = re.search(r"<pre>W(\d+)</pre>", shown)
    assert found, shown[-500:]
    return int(found[1])
