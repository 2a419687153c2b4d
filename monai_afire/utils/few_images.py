# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A warning where a choice rests on a handful of images."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from monai.utils import CommonKeys

from monai_afire.utils.text import counted

FOR_VALIDATION = (
    " for validation (in a section of a datalist; "
    "without one, each patient is held out with a chance of a tenth)"
)
FEW_IMAGES = 30  # the AUC of 15 against 15 images has a 95 % interval of about 0.2 to each side

logger = logging.getLogger(__name__)


def warn_if_few(count: int, what: str, held_out: int = 0, which: str = "") -> None:
    """
    Warn that something follows from fewer than 30 images.

    Args:
        count: of the images.
        what: follows from them.
        held_out: further images that somebody gave, and that are kept for validation.
        which: images there should be more of; "" for all that somebody gives.
    """
    if count >= FEW_IMAGES:
        return
    text = f"{what} with {counted(count, 'image')} alone"
    if held_out:
        text = (
            f"{what} with {count} of {count + held_out} images ({held_out} held out for validation)"
        )
        which = " besides those held out"
    remedy = f"give {FEW_IMAGES} or more{which}, better some hundred"
    logger.warning(f"{text}, which is largely chance: {remedy}")


def distinct_images(dataset: object) -> int | None:
    """
    Number of files that a data set's items name; None where it has no such items.

    A detector is validated on each image twice, as it is and with a painted lesion.
    """
    items = getattr(dataset, "data", None)
    if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
        return None
    files = [item.get(CommonKeys.IMAGE) for item in items]
    return len(set(files)) if all(isinstance(file, str) for file in files) else None
