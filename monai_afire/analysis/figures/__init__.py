# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of the studies: tables in, pictures out; none touches the global state of pyplot."""

from __future__ import annotations

from monai_afire.analysis.figures.composition import *
from monai_afire.analysis.figures.correspondence import *
from monai_afire.analysis.figures.cosegmentation import *
from monai_afire.analysis.figures.grouping import *
from monai_afire.analysis.figures.prototypes import *
from monai_afire.analysis.figures.restoration import *
from monai_afire.analysis.figures.saliency import *
from monai_afire.analysis.figures.symmetry import *
