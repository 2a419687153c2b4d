# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The studies of the report, each a small class with its options as arguments."""

from __future__ import annotations

from monai_afire.analysis.studies.composition import *
from monai_afire.analysis.studies.correspondence import *
from monai_afire.analysis.studies.cosegmentation import *
from monai_afire.analysis.studies.grouping import *
from monai_afire.analysis.studies.prototypes import *
from monai_afire.analysis.studies.restoration import *
from monai_afire.analysis.studies.saliency import *
from monai_afire.analysis.studies.symmetry import *
