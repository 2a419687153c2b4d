# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Studies of what an encoder's features know, without training anything on top of them."""

from __future__ import annotations

from monai_afire.analysis.clustering import *
from monai_afire.analysis.correspondence import *
from monai_afire.analysis.cosegmentation import *
from monai_afire.analysis.dense_features import *
from monai_afire.analysis.directions import *
from monai_afire.analysis.grouping import *
from monai_afire.analysis.place_features import *
from monai_afire.analysis.raw_pixels import *
from monai_afire.analysis.study import *
from monai_afire.analysis.subsets import *
from monai_afire.analysis.symmetry import *
from monai_afire.analysis.views import *
