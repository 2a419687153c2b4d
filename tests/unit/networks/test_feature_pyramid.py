# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The blocks of dense heads on small cases that can be computed by hand, and on sizes that do not fit."""

from __future__ import annotations

import pytest
import torch

from monai_afire.networks.blocks.feature_pyramid import MultiScaleNeck, num_groups


@pytest.mark.parametrize(("channels", "groups"), [(31, 1), (32, 2), (48, 3), (33, 1), (70, 2)])
def test_group_norm_has_sixteen_channels_or_more(channels: int, groups: int) -> None:
    assert num_groups(channels) == groups


@pytest.mark.parametrize(("patch", "finest"), [((16, 16), (12, 8)), ((2, 16), (6, 8))])
def test_neck_stops_at_one_element_per_pixel(
    patch: tuple[int, ...], finest: tuple[int, ...]
) -> None:
    neck = MultiScaleNeck(patch, in_channels=(8, 8, 8, 8))
    maps = [torch.rand(2, 8, 3, 2) for _ in range(4)]
    levels = neck(maps)
    assert [level.shape[1] for level in levels] == [2, 4, 8, 8]
    assert tuple(levels[0].shape[2:]) == finest
    assert torch.equal(levels[2], maps[2])
