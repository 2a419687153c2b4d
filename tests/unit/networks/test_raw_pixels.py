# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The baseline of raw pixels in an encoder's place."""

from __future__ import annotations

import torch

from monai_afire.networks import RAW_PIXELS, RawPixels, with_raw_pixels
from unit.tiny_networks import tiny_vit


def test_raw_pixels_are_an_encoder() -> None:
    encoders = with_raw_pixels({"vit": tiny_vit()})
    assert list(encoders) == ["vit", RAW_PIXELS]
    images = torch.rand(2, 1, 32, 32)
    tokens = encoders[RAW_PIXELS](images)
    torch.testing.assert_close(
        tokens[1, 5].reshape(8, 8), encoders[RAW_PIXELS].normalize(images)[1, 0, 8:16, 8:16]
    )
    own = RawPixels(1, (32, 32), (16, 16))
    assert with_raw_pixels({RAW_PIXELS: own})[RAW_PIXELS] is own
