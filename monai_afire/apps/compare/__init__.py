# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Compare: which encoder for my data?

``cohort`` reads a list, ``encoders`` builds what is compared and encodes each image once, ``questions`` asks them
and the simple baselines the same, ``results`` turns the answers into a table and a sentence, ``compare_page`` shows
them, and ``comparison`` joins the parts.
"""

from __future__ import annotations

from monai_afire.apps.compare.cohort import Cohort, read_cohort
from monai_afire.apps.compare.comparison import compare_encoders
from monai_afire.apps.compare.encoders import ComparedEncoder, compared_encoder, encode_images

__all__ = [
    "Cohort",
    "ComparedEncoder",
    "compare_encoders",
    "compared_encoder",
    "encode_images",
    "read_cohort",
]
