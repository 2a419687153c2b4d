# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anatomy-driven self-supervised learning for radiographs (AFiRe, PEAC, ACE) in MONAI."""

from __future__ import annotations

__version__ = "0.1.0"
