# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Principal components of pixels as a detector."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.compare.component_errors import pca_errors


def test_errors_of_principal_components_are_those_off_the_normal_subspace() -> None:
    rng = np.random.default_rng(0)
    normal = np.hstack([rng.normal(size=(200, 32)), np.zeros((200, 8))])
    off = np.zeros((1, 40))
    off[0, 35] = 2.0
    assert pca_errors(normal, np.vstack([normal[:1], off])) == pytest.approx(
        [0.0, 4.0 / 40], abs=1e-3
    )
    assert pca_errors(normal, off, strongest=0.05) == pytest.approx([4.0 / 2], abs=1e-3)
