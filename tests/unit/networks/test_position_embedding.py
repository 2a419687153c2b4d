# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Interpolated position embeddings, and what MONAI's make PyTorch say."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

from monai_afire.networks import RestorationDecoder, ViTEncoder
from monai_afire.networks.blocks.position_embedding import resize_position_embedding


@pytest.mark.parametrize(("old", "new"), [((4, 4), (2, 3)), ((2, 3), (7, 5)), ((3, 1), (3, 4))])
def test_resizing_is_that_of_an_image(old: tuple[int, int], new: tuple[int, int]) -> None:
    torch.manual_seed(0)
    embedding = torch.randn(1, old[0] * old[1], 6, dtype=torch.float64)
    image = embedding.mT.unflatten(2, old)
    expected = F.interpolate(image, new, mode="bicubic", antialias=True).flatten(2).mT
    torch.testing.assert_close(resize_position_embedding(embedding, old, new), expected)
    assert torch.equal(resize_position_embedding(embedding, old, old), embedding)


def test_no_warning_of_what_monai_calls() -> None:
    # otherwise it comes once in a process, and another test may have had it
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ViTEncoder(1, 16, 8, hidden_size=12, num_layers=1, num_heads=2)
            RestorationDecoder(12, (2, 2), 8, hidden_dim=12, num_layers=1, num_heads=2)
    finally:
        torch.set_warn_always(False)
