# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle chest_xray_segmentation on phantoms that it draws; run from the root of the Model Zoo."""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

from radiograph_bundles import BundleTest


class TestConfigs(BundleTest, unittest.TestCase):
    """Each config runs."""

    name = "chest_xray_segmentation"
    settings: ClassVar[dict[str, Any]] = {
        "network_def::channels": 8,
        "encoder": "vit",
        "train::dataloader::min_batches": 1,
    }
    evaluates = True


if __name__ == "__main__":
    unittest.main()
