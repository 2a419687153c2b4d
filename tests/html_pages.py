# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What tests of HTML pages share: their elements, and how a browser shows them."""

from __future__ import annotations

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
