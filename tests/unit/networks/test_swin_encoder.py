# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The Swin encoder against MONAI's, whose stages it is made of."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from monai.networks.layers import DropPath
from monai.networks.nets.swin_unetr import SwinTransformer
from torch import nn

from monai_afire.networks import SwinEncoder
from unit.tiny_networks import tiny_swin


def test_tokens_and_maps_are_made_of_the_stages_of_monai() -> None:
    """As long as no window is larger than the grid, MONAI's network has the same stages (and one merge too many)."""
    torch.manual_seed(0)
    stages: dict[str, Any] = {"embed_dim": 8, "depths": (2, 2, 2), "num_heads": (1, 2, 2)}
    encoder = SwinEncoder(img_size=(32, 48), patch_size=2, window_size=3, **stages).eval()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.3)
    network = SwinTransformer(
        1,
        window_size=(3, 3),
        patch_size=(2, 2),
        patch_norm=True,
        spatial_dims=2,
        downsample="mergingv2",
        **{name: (*sizes, 1) if name != "embed_dim" else sizes for name, sizes in stages.items()},
    ).eval()
    renamed = {}
    for name, value in encoder.state_dict().items():
        name = re.sub(r"^layers\.(\d)", lambda match: f"layers{int(match[1]) + 1}.0", name)
        name = re.sub(
            r"^downsamples\.(\d)", lambda match: f"layers{int(match[1]) + 1}.0.downsample", name
        )
        renamed[name] = value
    difference = network.load_state_dict(renamed, strict=False)
    assert difference.unexpected_keys == ["norm.weight", "norm.bias"]
    images = torch.rand(2, 1, 32, 48)
    pixels = (images - 0.449) / 0.226
    seen: list[torch.Tensor] = []  # MONAI returns a stage only after its merge
    for number in (1, 2, 3):
        blocks = network.get_submodule(f"layers{number}.0.blocks")
        blocks[-1].register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    network(pixels)
    *finer, last = encoder.feature_maps(images)
    for found, stage in zip(finer, seen, strict=False):
        expected = F.layer_norm(stage, stage.shape[-1:]).movedim(-1, 1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    width = encoder.hidden_size
    expected = F.layer_norm(seen[-1], (width,), encoder.norm.weight, encoder.norm.bias)
    torch.testing.assert_close(last, expected.movedim(-1, 1), rtol=0, atol=1e-4)
    torch.testing.assert_close(encoder(images), expected.flatten(1, 2), rtol=0, atol=1e-4)
    assert encoder.feature_channels == (8, 16, 32)
    assert encoder.feature_strides == ((2, 2), (4, 4), (8, 8))


def test_windows_are_not_larger_than_the_grid() -> None:
    encoder = tiny_swin(img_size=(16, 8), window_size=4, depths=(1, 2))
    blocks = [block for layer in encoder.layers for block in layer.blocks]
    assert [block.attn.window_size for block in blocks] == [(4, 4), (4, 2), (4, 2)]
    assert [len(block.attn.relative_position_bias_table) for block in blocks] == [49, 21, 21]


def test_parameters_by_depth_count_through_the_stages() -> None:
    encoder = tiny_swin(img_size=32, depths=(2, 1, 3), num_heads=(1, 2, 4))
    layers = [
        ["patch_embed"],
        ["layers.0.blocks.0"],
        ["layers.0.blocks.1", "downsamples.0"],
        ["layers.1.blocks.0", "downsamples.1"],
        ["layers.2.blocks.0"],
        ["layers.2.blocks.1"],
        ["layers.2.blocks.2"],
    ]
    for found, names in zip(encoder.parameters_by_depth(), layers, strict=True):
        assert found == [p for name in names for p in encoder.get_submodule(name).parameters()]


def test_drop_path_and_checkpointing() -> None:
    images = torch.rand(4, 1, 16, 16)
    encoder = tiny_swin(depths=(2, 3), drop_path_rate=0.4)
    assert not torch.equal(encoder(images), encoder(images))
    rates = [part.drop_prob for part in encoder.modules() if isinstance(part, DropPath)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4])  # the first block has none
    frugal, plain = tiny_swin(use_checkpoint=True), tiny_swin()
    plain.load_state_dict(frugal.state_dict())
    for network, runs in ((frugal, 2), (plain, 1)):
        seen: list[int] = []
        network.get_submodule("layers.0.blocks.0.norm1").register_forward_hook(
            lambda *_, seen=seen: seen.append(1)
        )
        network(images).square().sum().backward()
        assert len(seen) == runs
    for one, other in zip(frugal.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("settings", [{"img_size": 18}, {"depths": (2,)}])
def test_impossible_encoders_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"multiple|zip\(\)"):
        tiny_swin(**settings)
