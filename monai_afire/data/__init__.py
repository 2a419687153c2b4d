# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Data: the embedded phantom, data lists, and where a bundle's images come from."""

from __future__ import annotations

from monai_afire.data.caching import *
from monai_afire.data.datalist import *
from monai_afire.data.disk_cache import *
from monai_afire.data.label_table import *
from monai_afire.data.patients import *
from monai_afire.data.phantom import *
from monai_afire.data.samplers import *
from monai_afire.data.saved_names import *
from monai_afire.data.sources import *
from monai_afire.data.subsets import *
from monai_afire.data.transfer import *
