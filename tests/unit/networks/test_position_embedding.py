# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Interpolated position embeddings."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from monai_afire.networks.blocks.position_embedding import resize_position_embedding


@pytest.mark.parametrize(("old", "new"), [((4, 4), (2, 3)), ((2, 3), (7, 5)), ((3, 1), (3, 4))])
def test_resizing_is_that_of_an_image(old: tuple[int, int], new: tuple[int, int]) -> None:
    torch.manual_seed(0)
    embedding = torch.randn(1, old[0] * old[1], 6, dtype=torch.float64)
    image = embedding.mT.unflatten(2, old)
    expected = F.interpolate(image, new, mode="bicubic", antialias=True).flatten(2).mT
    torch.testing.assert_close(resize_position_embedding(embedding, old, new), expected)
    assert torch.equal(resize_position_embedding(embedding, old, old), embedding)
