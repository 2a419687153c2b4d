# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Repeat a bundle over initialisations, label fractions, seeds and folds, and compare: see ``__main__``."""

from __future__ import annotations

from monai_afire.experiments.execution import *
from monai_afire.experiments.plan import *
from monai_afire.experiments.tables import *
