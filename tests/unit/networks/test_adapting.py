# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What networks take as an encoder, and what they refuse."""

from __future__ import annotations

import pytest
from monai.networks.nets import DenseNet121

from monai_afire.networks import AFiRe, TransferClassifier, as_encoder
from unit.tiny_networks import tiny_vit


def test_networks_that_are_no_encoders_are_refused() -> None:
    with pytest.raises(TypeError, match="DenseNet121"):
        as_encoder(DenseNet121(2, 1, 2))
    with pytest.raises(TypeError, match=r"AFiRe.*\.encoder"):
        TransferClassifier(AFiRe(tiny_vit(), 8, 16, 16, 1, 2), 2)
