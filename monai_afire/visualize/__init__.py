# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures: grids, heat maps over radiographs, contact sheets, ROC and precision-recall curves."""

from __future__ import annotations

from monai_afire.visualize.contact_sheet import *
from monai_afire.visualize.curves import *
from monai_afire.visualize.dot_plot import *
from monai_afire.visualize.figures import *
from monai_afire.visualize.heat_map import *
