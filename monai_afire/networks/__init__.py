# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks: ``blocks`` to build with, whole ``nets``, ``weights`` to load into them, ``export`` to other runtimes."""

from __future__ import annotations

from monai_afire.networks.blocks import *
from monai_afire.networks.export import *
from monai_afire.networks.nets import *
from monai_afire.networks.weights import *
