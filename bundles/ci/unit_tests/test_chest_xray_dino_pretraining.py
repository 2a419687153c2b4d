# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle chest_xray_dino_pretraining on phantoms that it draws; run from the root of the Model Zoo."""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

from radiograph_bundles import BundleTest


class TestConfigs(BundleTest, unittest.TestCase):
    """Each config runs."""

    name = "chest_xray_dino_pretraining"
    settings: ClassVar[dict[str, Any]] = {
        "network_def::bottleneck_dim": 4,
        "network_def::num_prototypes": 8,
        "make_crops::local_size": 16,
    }


if __name__ == "__main__":
    unittest.main()
