# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Studies of what an encoder's features know, without training anything on top of them."""

from __future__ import annotations

from monai_afire.analysis.composition import *
from monai_afire.analysis.correspondence import *
from monai_afire.analysis.dense_features import *
from monai_afire.analysis.prototypes import *
from monai_afire.analysis.restoration import *
from monai_afire.analysis.saliency import *
from monai_afire.analysis.studies import *
from monai_afire.analysis.study import *
