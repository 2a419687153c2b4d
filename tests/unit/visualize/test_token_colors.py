# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Colors of tokens: alike where tokens are, whatever their number, width and sign."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monai_afire.visualize import token_colors


def test_groups_of_tokens_have_a_color_each() -> None:
    generator = torch.Generator().manual_seed(0)
    groups = torch.randn(4, 1, 12, generator=generator).repeat(1, 30, 1)
    colors = token_colors(groups + 0.01 * torch.randn(groups.shape, generator=generator))
    assert ((colors >= 0) & (colors <= 1)).all()
    assert colors.std(1).max() < 0.05
    apart = np.abs(colors.mean(1)[:, None] - colors.mean(1)).max(-1)
    assert apart[~np.eye(4, dtype=bool)].min() > 0.3


def test_colors_are_those_of_the_principal_components() -> None:
    """Along one axis the first color is the token's rank."""
    tokens = torch.zeros(101, 5)
    tokens[:, 3] = torch.linspace(-1, 1, 101)
    red, *others = token_colors(tokens).T
    np.testing.assert_allclose(
        red[5:-5], np.linspace(-0.02 / 0.96, 0.98 / 0.96, 101)[5:-5], atol=1e-6
    )
    assert all((other == 0.5).all() for other in others)


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2), (4, 1)])
def test_degenerate_tokens(shape: tuple[int, ...]) -> None:
    same = token_colors(torch.full(shape, 3.0))
    assert same.shape == (*shape[:-1], 3)
    assert (same == 0.5).all()
    assert np.isfinite(token_colors(torch.rand(shape).bfloat16())).all()
