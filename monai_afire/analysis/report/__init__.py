# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""All studies of some encoders in one file to read and one to compute with."""

from __future__ import annotations

from monai_afire.analysis.report.encoders import *
from monai_afire.analysis.report.images import *
from monai_afire.analysis.report.page import *
from monai_afire.analysis.report.run import *
