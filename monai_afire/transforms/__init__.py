# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transforms in MONAI's pairs of array and dictionary: loading, lesion synthesis, grid crops, patch distortions."""

from __future__ import annotations

from monai_afire.transforms.appearance_distortion import *
from monai_afire.transforms.contrast_standardization import *
from monai_afire.transforms.controlled_lesions import *
from monai_afire.transforms.delegating import *
from monai_afire.transforms.grid_crop import *
from monai_afire.transforms.labels import *
from monai_afire.transforms.landmarks import *
from monai_afire.transforms.lesion_synthesis import *
from monai_afire.transforms.mask_loading import *
from monai_afire.transforms.patch_distortion import *
from monai_afire.transforms.radiograph_description import *
from monai_afire.transforms.radiograph_loading import *
