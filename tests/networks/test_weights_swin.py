# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features of loaded Swin weights against a plain re-implementation of timm's network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from monai_afire.networks import PEAC, SwinEncoder, load_encoder_weights

GRAY_MEAN, GRAY_STD = torch.tensor([0.449, 0.226]).double()  # single precision, as in the encoder
WIDTH, DEPTHS, HEADS, PATCH, WINDOW = 8, (2, 1, 2), (2, 4, 2), 2, 3

State = dict[str, torch.Tensor]


def build(**options: Any) -> SwinEncoder:
    torch.manual_seed(99)
    default: dict[str, Any] = {
        "img_size": 24,
        "patch_size": PATCH,
        "window_size": WINDOW,
        "embed_dim": WIDTH,
        "depths": DEPTHS,
    }
    default |= {"num_heads": HEADS}
    return SwinEncoder(**(default | options)).double().eval()


def timm_state(channels: int = 3, window: int = WINDOW) -> State:
    """Random values under timm's names."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3

    state: State = {}

    def norm(name: str, width: int) -> None:
        state.update({f"{name}.weight": 1 + random(width), f"{name}.bias": random(width)})

    def linear(name: str, *shape: int) -> None:
        state.update({f"{name}.weight": random(*shape), f"{name}.bias": random(shape[0])})

    linear("patch_embed.proj", WIDTH, channels, PATCH, PATCH)
    norm("patch_embed.norm", WIDTH)
    for stage, (depth, heads) in enumerate(zip(DEPTHS, HEADS, strict=True)):
        width = WIDTH * 2**stage
        for i in range(depth):
            block = f"layers.{stage}.blocks.{i}"
            norm(f"{block}.norm1", width)
            norm(f"{block}.norm2", width)
            state[f"{block}.attn.relative_position_bias_table"] = random(
                (2 * window - 1) ** 2, heads
            )
            linear(f"{block}.attn.qkv", 3 * width, width)
            linear(f"{block}.attn.proj", width, width)
            linear(f"{block}.mlp.fc1", 4 * width, width)
            linear(f"{block}.mlp.fc2", width, 4 * width)
    for stage in range(len(DEPTHS) - 1):
        merge = f"layers.{stage + 1}.downsample"
        norm(f"{merge}.norm", 4 * WIDTH * 2**stage)
        state[f"{merge}.reduction.weight"] = random(2 * WIDTH * 2**stage, 4 * WIDTH * 2**stage)
    norm("norm", WIDTH * 2 ** (len(DEPTHS) - 1))
    return state


def windows_of(x: torch.Tensor, window: int) -> torch.Tensor:
    """(B, H, W, C) -> (B, windows, pixels of a window, C)."""
    return (
        x.unfold(1, window, window)
        .unfold(2, window, window)
        .permute(0, 1, 2, 4, 5, 3)
        .flatten(3, 4)
        .flatten(1, 2)
    )


def timm_attention(
    x: torch.Tensor, state: State, block: str, heads: int, shift: int
) -> torch.Tensor:
    size, width = x.shape[1], x.shape[3]
    x = x.roll((-shift, -shift), (1, 2))
    # after the roll, pixels of one window are neighbors in the image only if none of them came over the border
    region = torch.arange(size).add(shift).ge(size)
    region = (2 * region[:, None].int() + region[None].int())[None, :, :, None]
    regions = windows_of(region, WINDOW)[0, :, :, 0]
    apart = regions[:, :, None] != regions[:, None, :]
    qkv = F.linear(
        windows_of(x, WINDOW), state[f"{block}.attn.qkv.weight"], state[f"{block}.attn.qkv.bias"]
    )
    query, key, value = (
        part.unflatten(-1, (heads, -1)).transpose(2, 3) for part in qkv.chunk(3, -1)
    )
    row, column = torch.arange(WINDOW**2) // WINDOW, torch.arange(WINDOW**2) % WINDOW
    offset = (
        (row[:, None] - row + WINDOW - 1) * (2 * WINDOW - 1) + column[:, None] - column + WINDOW - 1
    )
    bias = state[f"{block}.attn.relative_position_bias_table"][offset].permute(2, 0, 1)
    scores = query @ key.mT / (width // heads) ** 0.5 + bias
    scores = scores.masked_fill(apart[:, None], -torch.inf)
    mixed = (scores.softmax(-1) @ value).transpose(2, 3).flatten(3)
    mixed = F.linear(mixed, state[f"{block}.attn.proj.weight"], state[f"{block}.attn.proj.bias"])
    per_axis = size // WINDOW
    image = mixed.unflatten(1, (per_axis, per_axis)).unflatten(3, (WINDOW, WINDOW))
    return image.transpose(2, 3).reshape(len(x), size, size, width).roll((shift, shift), (1, 2))


def timm_forward(state: State, images: torch.Tensor) -> torch.Tensor:
    """The tokens of the last stage, for new names."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    x = F.conv2d(
        images, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=PATCH
    )
    x = norm(x.movedim(1, -1), "patch_embed.norm")
    for stage, (depth, heads) in enumerate(zip(DEPTHS, HEADS, strict=True)):
        if stage:
            corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
            merged = norm(torch.cat(corners, -1), f"layers.{stage}.downsample.norm")
            x = F.linear(merged, state[f"layers.{stage}.downsample.reduction.weight"])
        for i in range(depth):
            block = f"layers.{stage}.blocks.{i}"
            shift = WINDOW // 2 if i % 2 and x.shape[1] > WINDOW else 0
            x = x + timm_attention(norm(x, f"{block}.norm1"), state, block, heads, shift)
            hidden = F.linear(
                norm(x, f"{block}.norm2"),
                state[f"{block}.mlp.fc1.weight"],
                state[f"{block}.mlp.fc1.bias"],
            )
            x = x + F.linear(
                F.gelu(hidden), state[f"{block}.mlp.fc2.weight"], state[f"{block}.mlp.fc2.bias"]
            )
    return norm(x, "norm").flatten(1, 2)


def own_names(state: State) -> State:
    """The same weights under this package's names."""
    renamed: State = {}
    for name, tensor in state.items():
        name = name.replace(".mlp.fc", ".mlp.linear")
        if ".downsample." in name:
            _, stage, _, part = name.split(".", 3)
            name = f"downsamples.{int(stage) - 1}.{part}"
        renamed[name] = tensor
    return renamed


@pytest.mark.parametrize("reverse", [False, True])
def test_features_are_those_of_a_plain_network(reverse: bool) -> None:
    state, encoder = timm_state(channels=1), build()
    images = torch.rand(2, 1, 24, 24, dtype=torch.float64)
    given = own_names(state)
    if reverse:
        given = dict(reversed(given.items()))
    load_encoder_weights(encoder, {"model": given}, strict=True)
    expected = timm_forward(state, (images - GRAY_MEAN) / GRAY_STD)
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-9)


def test_another_window_and_patch() -> None:
    state = own_names(timm_state(channels=1, window=4))
    encoder = build(patch_size=4, img_size=48)
    report = load_encoder_weights(encoder, state)
    assert report.resized == [
        "patch_embed.proj.weight (8, 1, 2, 2) -> (8, 1, 4, 4)",
        "layers.0.blocks: 2 tables of relative positions -> window 3 x 3",
        "layers.1.blocks: 1 tables of relative positions -> window 3 x 3",
        "layers.2.blocks: 2 tables of relative positions -> window 3 x 3",
    ]
    name = "layers.1.blocks.0.attn.relative_position_bias_table"
    as_image = state[name].T.reshape(1, 4, 7, 7)
    expected = F.interpolate(as_image, (5, 5), mode="bicubic", antialias=True).flatten(2)[0].T
    torch.testing.assert_close(encoder.state_dict()[name], expected)


def test_other_windows_heads_and_libraries_are_refused() -> None:
    state = own_names(timm_state(channels=1))
    name = "layers.1.blocks.0.attn.relative_position_bias_table"
    for encoder, content, words in (
        (build(), {**state, name: state[name][:-2]}, "window_size"),
        (build(num_heads=(1, 2, 4)), state, "relative_position_bias_table"),
        (build(), timm_state(), "timm:NAME"),
    ):
        with pytest.raises(ValueError, match=words):
            load_encoder_weights(encoder, content)


def test_own_weights_of_a_network_with_a_teacher() -> None:
    options = {
        "in_channels": 3,
        "img_size": 16,
        "depths": (1, 1),
        "num_heads": (1, 2),
    }
    source, target = build(**options), build(**options)
    for parameter in source.parameters():
        torch.nn.init.normal_(parameter)
    content = {
        f"network.teacher_encoder.{name}": tensor for name, tensor in source.state_dict().items()
    }
    content |= {
        f"network.encoder.{name}": tensor for name, tensor in build(**options).state_dict().items()
    }
    network = PEAC(target, expander_dim=4, expander_hidden_dim=4)
    report = load_encoder_weights(network, content, strict=True)
    assert (report.layout, report.prefix, report.resized) == (
        "afire",
        "network.teacher_encoder.",
        [],
    )
    for encoder in (network.encoder, network.teacher_encoder):
        state = encoder.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in source.state_dict().items())
