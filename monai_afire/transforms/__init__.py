# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transforms: lesion synthesis and radiograph loading, in MONAI's pairs of array and dictionary."""

from __future__ import annotations

from monai_afire.transforms.lesion_synthesis import *
from monai_afire.transforms.radiograph_loading import *
