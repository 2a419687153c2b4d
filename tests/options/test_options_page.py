# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The page of all options is that of their declarations and of the configs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_page_is_current() -> None:
    specification = importlib.util.spec_from_file_location("options_page", ROOT / "docs/options.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert (ROOT / "docs/options.md").read_text(encoding="utf-8") == module.options_page(), (
        "run: python docs/options.py"
    )
