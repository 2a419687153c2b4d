# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A warning where a choice rests on a handful of images."""

from __future__ import annotations

import logging

from monai_afire.utils.text import counted

FEW_IMAGES = 30  # the AUC of 15 against 15 images has a 95 % interval of about 0.2 to each side

logger = logging.getLogger(__name__)


def warn_if_few(count: int, what: str) -> None:
    """Warn that something follows from fewer than 30 images."""
    if count < FEW_IMAGES:
        text = f"{what} with {counted(count, 'image')} alone, which is largely chance"
        logger.warning(f"{text}: give {FEW_IMAGES} images or more, better some hundred")
