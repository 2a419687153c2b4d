# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of the comparison's page."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.compare.compare_page import embedding_maps


@pytest.mark.parametrize(("images", "maps"), [(1, 0), (2, 0), (3, 1)])
def test_a_map_needs_images_that_span_a_plane(images: int, maps: int) -> None:
    features = np.random.default_rng(0).normal(size=(images, 5))
    assert len(embedding_maps("mine", features, {"view": ["PA"] * images})) == maps
