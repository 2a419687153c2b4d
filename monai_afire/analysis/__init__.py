# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Studies of what an encoder's features know, without training anything on top of them.

A module for each question computes numbers. Beside them ``images`` holds what is looked at, ``features`` what encoders
make of it; ``figures`` draw the numbers, ``studies`` put a question to several encoders, ``report`` makes a page.
"""

from __future__ import annotations

from monai_afire.analysis.composition import *
from monai_afire.analysis.correspondence import *
from monai_afire.analysis.cosegmentation import *
from monai_afire.analysis.features import *
from monai_afire.analysis.figures import *
from monai_afire.analysis.grouping import *
from monai_afire.analysis.images import *
from monai_afire.analysis.prototypes import *
from monai_afire.analysis.report import *
from monai_afire.analysis.restoration import *
from monai_afire.analysis.saliency import *
from monai_afire.analysis.studies import *
from monai_afire.analysis.symmetry import *
