# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Studies of what an encoder's features know, without training anything on top of them."""

from __future__ import annotations

from monai_afire.analysis.clustering import *
from monai_afire.analysis.composition import *
from monai_afire.analysis.correspondence import *
from monai_afire.analysis.cosegmentation import *
from monai_afire.analysis.dense_features import *
from monai_afire.analysis.directions import *
from monai_afire.analysis.feature_maps import *
from monai_afire.analysis.figures import *
from monai_afire.analysis.grouping import *
from monai_afire.analysis.patch_sampling import *
from monai_afire.analysis.place_features import *
from monai_afire.analysis.prototypes import *
from monai_afire.analysis.raw_pixels import *
from monai_afire.analysis.references import *
from monai_afire.analysis.report import *
from monai_afire.analysis.restoration import *
from monai_afire.analysis.saliency import *
from monai_afire.analysis.studies import *
from monai_afire.analysis.study import *
from monai_afire.analysis.subsets import *
from monai_afire.analysis.symmetry import *
from monai_afire.analysis.views import *
