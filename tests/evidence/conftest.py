# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Protocols are commands, ``python -m tests.evidence.NAME``: pytest collects their tests alone."""

from __future__ import annotations

from pathlib import Path

collect_ignore = [path.name for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")]
