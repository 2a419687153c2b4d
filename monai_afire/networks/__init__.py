# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks: ``blocks`` to build with and whole ``nets``."""

from __future__ import annotations

from monai_afire.networks.blocks import *
from monai_afire.networks.nets import *
