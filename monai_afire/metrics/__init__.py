# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of merit: of pre-training, anomaly scores, and of a detector."""

from __future__ import annotations

from monai_afire.metrics.ace import *
from monai_afire.metrics.afire import *
from monai_afire.metrics.anomaly import *
from monai_afire.metrics.classification import *
from monai_afire.metrics.detection import *
from monai_afire.metrics.landmarks import *
from monai_afire.metrics.localization import *
from monai_afire.metrics.nearest_neighbors import *
from monai_afire.metrics.peac import *
from monai_afire.metrics.pretraining import *
from monai_afire.metrics.segmentation import *
