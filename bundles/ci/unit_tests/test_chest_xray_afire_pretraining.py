# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle chest_xray_afire_pretraining on phantoms that it draws; run from the root of the Model Zoo."""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

from radiograph_bundles import BundleTest


class TestConfigs(BundleTest, unittest.TestCase):
    """Each config runs."""

    name = "chest_xray_afire_pretraining"
    settings: ClassVar[dict[str, Any]] = {
        "network_def::head_dim": 8,
        "network_def::num_clusters": 4,
        "network_def::decoder_dim": 8,
        "network_def::decoder_layers": 1,
        "network_def::decoder_heads": 2,
    }
    brings_weights = True  # the released detector


if __name__ == "__main__":
    unittest.main()
