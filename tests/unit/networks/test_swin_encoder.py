# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The Swin encoder against a slow version that groups pixels by the windows they belong to, one query at a time."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from monai.networks.layers import DropPath
from monai.networks.nets.swin_unetr import SwinTransformer

from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder

Place = tuple[int, ...]
Map = dict[Place, torch.Tensor]

CASES: list[dict[str, Any]] = [
    {"img_size": (24, 20)},  # windows that do not divide the axes
    {
        "img_size": (48, 16),
        "depths": (2, 2, 2),
        "num_heads": (1, 2, 4),
    },  # later stages smaller than the window
    {
        "img_size": (16, 24),
        "patch_size": (2, 4),
        "depths": (3,),
        "num_heads": (2,),
        "qkv_bias": False,
    },
    {
        "img_size": 96,
        "patch_size": 8,
        "window_size": 7,
        "embed_dim": 24,
        "depths": (1, 1),
        "num_heads": (3, 6),
    },
]


def options(case: dict[str, Any]) -> dict[str, Any]:
    default = {
        "img_size": 16,
        "patch_size": 2,
        "window_size": 4,
        "embed_dim": 8,
        "depths": (2, 2),
        "num_heads": (2, 4),
    }
    return default | case


def random_encoder(case: dict[str, Any], seed: int = 0) -> SwinEncoder:
    """In double precision, every parameter random and large enough to matter: biases and norms too."""
    torch.manual_seed(seed)
    encoder = SwinEncoder(**options(case)).double()
    for name, parameter in encoder.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in name and "weight" in name), std=0.3)
    return encoder.eval()


def naive_norm(vector: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    centered = vector - vector.mean()
    return centered / (centered.square().mean() + 1e-5).sqrt() * weight + bias


def naive_table_row(query: Place, key: Place, window: Place) -> int:
    row = 0
    for q, k, w in zip(query, key, window, strict=True):
        row = row * (2 * w - 1) + q - k + w - 1
    return row


def naive_attention(
    tokens: Map, size: Place, window: Place, shift: Place, block: torch.nn.Module
) -> Map:
    """A token attends to those of its window, whose borders lie at ``shift`` plus multiples of ``window``."""
    parameters = dict(block.named_parameters())
    width, heads = (
        parameters["attn.proj.weight"].shape[0],
        parameters["attn.relative_position_bias_table"].shape[1],
    )
    padded = [math.ceil(n / w) * w for n, w in zip(size, window, strict=True)]
    groups: dict[Place, list[Place]] = {}
    for place in itertools.product(*map(range, padded)):
        number = tuple((p - s) // w for p, s, w in zip(place, shift, window, strict=True))
        groups.setdefault(number, []).append(place)
    normed = {
        place: naive_norm(tokens[place], parameters["norm1.weight"], parameters["norm1.bias"])
        if place in tokens
        else torch.zeros(width, dtype=torch.float64)
        for group in groups.values()
        for place in group
    }
    result: Map = {}
    for group in groups.values():
        inputs = torch.stack([normed[place] for place in group])
        qkv = F.linear(inputs, parameters["attn.qkv.weight"], parameters.get("attn.qkv.bias"))
        for n, query_place in enumerate(group):
            if query_place not in tokens:
                continue
            rows = [naive_table_row(query_place, key_place, window) for key_place in group]
            mixed = []
            for head in range(heads):
                part = slice(head * width // heads, (head + 1) * width // heads)
                query, key, value = (qkv[:, i * width : (i + 1) * width][:, part] for i in range(3))
                scores = key @ query[n] / math.sqrt(width // heads)
                scores = scores + parameters["attn.relative_position_bias_table"][rows, head]
                mixed.append(scores.softmax(0) @ value)
            result[query_place] = F.linear(
                torch.cat(mixed), parameters["attn.proj.weight"], parameters["attn.proj.bias"]
            )
    return result


def naive_block(
    tokens: Map, size: Place, window: Place, shift: Place, block: torch.nn.Module
) -> Map:
    parameters = dict(block.named_parameters())
    attended = naive_attention(tokens, size, window, shift, block)
    result = {}
    for place, token in tokens.items():
        token = token + attended[place]
        hidden = naive_norm(token, parameters["norm2.weight"], parameters["norm2.bias"])
        hidden = F.gelu(
            F.linear(hidden, parameters["mlp.linear1.weight"], parameters["mlp.linear1.bias"])
        )
        result[place] = token + F.linear(
            hidden, parameters["mlp.linear2.weight"], parameters["mlp.linear2.bias"]
        )
    return result


def naive_merge(tokens: Map, size: Place, merge: torch.nn.Module) -> Map:
    """The row runs fastest within a patch (timm's order)."""
    parameters = dict(merge.named_parameters())
    corners = [corner[::-1] for corner in itertools.product(range(2), repeat=2)]
    result = {}
    for place in itertools.product(*(range(n // 2) for n in size)):
        joined = torch.cat(
            [
                tokens[tuple(2 * p + c for p, c in zip(place, corner, strict=True))]
                for corner in corners
            ]
        )
        joined = naive_norm(joined, parameters["norm.weight"], parameters["norm.bias"])
        result[place] = parameters["reduction.weight"] @ joined
    return result


def naive_stages(
    encoder: SwinEncoder, case: dict[str, Any], image: torch.Tensor
) -> list[torch.Tensor]:
    """Outputs (H_i, W_i, C_i) of the stages for one image (C, H, W)."""
    settings = options(case)
    patch = np.broadcast_to(settings["patch_size"], 2).tolist()
    full = np.broadcast_to(settings["window_size"], 2).tolist()
    size: Place = tuple(n // p for n, p in zip(image.shape[1:], patch, strict=True))
    parameters = dict(encoder.named_parameters())
    image = (image - encoder.mean.item()) / encoder.std.item()
    tokens: Map = {}
    for place in itertools.product(*map(range, size)):
        box = image
        for axis, (i, p) in enumerate(zip(place, patch, strict=True)):
            box = box.narrow(axis + 1, i * p, p)
        weight = parameters["patch_embed.proj.weight"]
        embedded = weight.flatten(1) @ box.flatten() + parameters["patch_embed.proj.bias"]
        norm = parameters["patch_embed.norm.weight"], parameters["patch_embed.norm.bias"]
        tokens[place] = naive_norm(embedded, *norm)
    outputs = []
    for stage, depth in enumerate(settings["depths"]):
        window = tuple(min(w, n) for w, n in zip(full, size, strict=True))
        for i in range(depth):
            shift = tuple(
                w // 2 if i % 2 and n > w else 0 for w, n in zip(window, size, strict=True)
            )
            tokens = naive_block(
                tokens, size, window, shift, encoder.get_submodule(f"layers.{stage}.blocks.{i}")
            )
        outputs.append(
            torch.stack([tokens[p] for p in itertools.product(*map(range, size))]).reshape(
                *size, -1
            )
        )
        if stage < len(settings["depths"]) - 1:
            tokens = naive_merge(tokens, size, encoder.get_submodule(f"downsamples.{stage}"))
            size = tuple(n // 2 for n in size)
    return outputs


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_slow_version(case: dict[str, Any]) -> None:
    encoder = random_encoder(case)
    images = torch.rand(2, encoder.in_channels, *encoder.img_size, dtype=torch.float64)
    tokens, maps = encoder(images), encoder.feature_maps(images)
    last_norm = encoder.norm.weight, encoder.norm.bias
    assert tokens.shape == (2, math.prod(encoder.grid_size), encoder.hidden_size)
    for n, image in enumerate(images):
        stages = naive_stages(encoder, case, image)
        expected = torch.stack(
            [naive_norm(token, *last_norm) for token in stages[-1].flatten(0, -2)]
        )
        torch.testing.assert_close(tokens[n], expected, rtol=0, atol=1e-9)
        assert len(maps) == len(stages)
        assert encoder.feature_channels == tuple(stage.shape[-1] for stage in stages)
        for stage, strides in zip(stages, encoder.feature_strides, strict=True):
            assert strides == tuple(
                n // m for n, m in zip(encoder.img_size, stage.shape[:-1], strict=True)
            )
        for stage, found in zip(stages[:-1], maps, strict=False):
            normed = F.layer_norm(stage, stage.shape[-1:]).movedim(-1, 0)
            torch.testing.assert_close(found[n], normed, rtol=0, atol=1e-9)
        torch.testing.assert_close(maps[-1][n].flatten(1).T, tokens[n], rtol=0, atol=1e-12)


def test_default_is_swin_b_at_448() -> None:
    with torch.device("meta"):
        encoder, gray = SwinEncoder(in_channels=3), SwinEncoder()
        tokens, maps = (
            gray(torch.zeros(2, 1, 448, 448)),
            gray.feature_maps(torch.zeros(2, 1, 448, 448)),
        )
    count = sum(parameter.numel() for parameter in encoder.parameters())
    # the published 87,768,224 less the classifier; the stages alone, without the last layer norm, have 86,741,176
    assert count == 87_768_224 - 1000 * 1024 - 1000
    assert count - 2 * 1024 == 86_741_176
    assert count - sum(parameter.numel() for parameter in gray.parameters()) == 2 * 4 * 4 * 128
    assert (gray.patch_size, gray.grid_size, gray.hidden_size) == ((32, 32), (14, 14), 1024)
    assert tokens.shape == (2, 196, 1024)
    sides = [(128, 112), (256, 56), (512, 28), (1024, 14)]
    assert [tuple(stage.shape) for stage in maps] == [
        (2, width, side, side) for width, side in sides
    ]


def test_stages_are_those_of_monai() -> None:
    """As long as no window is larger than the grid, MONAI's network has the same stages (and one merge too many)."""
    torch.manual_seed(0)
    stages: dict[str, Any] = {"embed_dim": 8, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 2, 4)}
    encoder = SwinEncoder(img_size=64, patch_size=2, window_size=3, **stages).eval()
    network = SwinTransformer(
        1,
        window_size=(3, 3),
        patch_size=(2, 2),
        patch_norm=True,
        spatial_dims=2,
        downsample="mergingv2",
        **stages,
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
    assert all(name.startswith("layers4.0.downsample") for name in difference.missing_keys)
    images = torch.rand(2, 1, 64, 64)
    merged = network(encoder.normalize(images))  # MONAI returns a stage only after its merge
    outputs = encoder._stages(images)
    for stage, downsample in enumerate(encoder.downsamples):
        expected = downsample(outputs[stage])
        expected = F.layer_norm(expected, expected.shape[-1:]).movedim(-1, 1)
        torch.testing.assert_close(merged[stage + 1], expected, rtol=0, atol=1e-6)


def test_parameters_by_depth_count_through_the_stages() -> None:
    encoder = SwinEncoder(**options({"img_size": 32, "depths": (2, 1, 3), "num_heads": (1, 2, 4)}))
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
    encoder = SwinEncoder(**options({"depths": (2, 3), "drop_path_rate": 0.4}))
    assert torch.equal(encoder.eval()(images), encoder(images))
    encoder.train()
    assert not torch.equal(encoder(images), encoder(images))
    rates = [part.drop_prob for part in encoder.modules() if isinstance(part, DropPath)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4])  # the first block has none
    frugal = SwinEncoder(**options({"use_checkpoint": True}))
    plain = SwinEncoder(**options({}))
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


@pytest.mark.parametrize("settings", [{"img_size": 18}, {"depths": (2,)}, {"num_heads": (2,)}])
def test_impossible_encoders_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"multiple|zip\(\)"):
        SwinEncoder(**options(settings))
