# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features of loaded weights against plain re-implementations of the sources' networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from monai.networks.nets import ViT

from monai_afire.networks import PEAC, SwinEncoder, ViTEncoder, load_encoder_weights
from unit.tiny_networks import tiny_vit

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64).reshape(1, 3, 1, 1)
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).reshape(1, 3, 1, 1)
WIDTH, HEADS, DEPTH, MLP = 24, 3, 2, 40

State = dict[str, torch.Tensor]


def build(**options: Any) -> ViTEncoder:
    sizes = {"num_layers": DEPTH, "num_heads": HEADS, "mlp_dim": MLP}
    return tiny_vit(**(sizes | options)).double().eval()


def timm_state(
    grid: tuple[int, int] = (4, 4),
    patch: int = 8,
    channels: int = 3,
    class_token: bool = False,
    seed: int = 0,
) -> State:
    """A state dict in timm's format, of random values."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64) * 0.2

    state = {"cls_token": random(1, 1, WIDTH)} if class_token else {}
    state["pos_embed"] = random(1, grid[0] * grid[1] + class_token, WIDTH)
    layers: dict[str, tuple[int, ...]] = {"patch_embed.proj": (WIDTH, channels, patch, patch)}
    for i in range(DEPTH):
        layers |= {
            f"blocks.{i}.attn.qkv": (3 * WIDTH, WIDTH),
            f"blocks.{i}.attn.proj": (WIDTH, WIDTH),
        }
        layers |= {f"blocks.{i}.mlp.fc1": (MLP, WIDTH), f"blocks.{i}.mlp.fc2": (WIDTH, MLP)}
    for name, shape in layers.items():
        state |= {f"{name}.weight": random(*shape), f"{name}.bias": random(shape[0])}
    for name in ["norm", *(f"blocks.{i}.norm{j}" for i in range(DEPTH) for j in (1, 2))]:
        state |= {f"{name}.weight": 1 + random(WIDTH), f"{name}.bias": random(WIDTH)}
    return state


def timm_forward(state: State, images: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Features of all tokens, written down from the definition of a pre-norm vision transformer."""
    kernel = state["patch_embed.proj.weight"]
    x = (
        F.conv2d(images, kernel, state.get("patch_embed.proj.bias"), stride=kernel.shape[2:])
        .flatten(2)
        .mT
    )
    if "cls_token" in state:
        x = torch.cat([state["cls_token"].expand(len(x), 1, -1), x], dim=1)
    x = x + state["pos_embed"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), state[f"{name}.weight"], state[f"{name}.bias"], eps)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    for i in range(DEPTH):
        block = f"blocks.{i}"
        query, key, value = linear(norm(x, f"{block}.norm1"), f"{block}.attn.qkv").split(
            WIDTH, dim=-1
        )
        mixed = []
        for rows in torch.arange(WIDTH).chunk(HEADS):
            scores = query[..., rows] @ key[..., rows].mT / len(rows) ** 0.5
            mixed.append(scores.softmax(-1) @ value[..., rows])
        x = x + linear(torch.cat(mixed, -1), f"{block}.attn.proj")
        hidden = F.gelu(linear(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1"))
        x = x + linear(hidden, f"{block}.mlp.fc2")
    return norm(x, "norm")


def gray_images(size: tuple[int, int] = (32, 32)) -> torch.Tensor:
    torch.manual_seed(7)
    return torch.rand(2, 1, *size, dtype=torch.float64)


def as_photographs(gray: torch.Tensor) -> torch.Tensor:
    return (gray.expand(-1, 3, -1, -1) - IMAGENET_MEAN) / IMAGENET_STD


def test_timm_features_of_gray_images() -> None:
    state, encoder, images = timm_state(), build(), gray_images()
    report = load_encoder_weights(encoder, state)
    torch.testing.assert_close(
        encoder(images), timm_forward(state, as_photographs(images)), rtol=0, atol=1e-10
    )
    assert (report.layout, report.missing, report.unexpected) == ("timm", [], [])


def test_absent_biases_are_zero_even_after_other_weights() -> None:
    state, encoder, images = timm_state(), build(), gray_images()
    load_encoder_weights(encoder, state)
    for name in [name for name in state if name.endswith(("qkv.bias", "embed.proj.bias"))]:
        del state[name]
    assert load_encoder_weights(encoder, state, strict=True).missing == []
    torch.testing.assert_close(
        encoder(images), timm_forward(state, as_photographs(images)), rtol=0, atol=1e-10
    )


def test_the_class_token_is_dropped_with_its_position() -> None:
    state, encoder, images = timm_state(channels=1), build(), gray_images()
    tokens = {"cls_token": torch.rand(1, 1, WIDTH)}
    positions = torch.cat([torch.rand(1, 1, WIDTH), state["pos_embed"]], 1)
    given = state | tokens | {"pos_embed": positions, "head.weight": torch.rand(2, WIDTH)}
    report = load_encoder_weights(encoder, given)
    assert (report.dropped, report.resized) == ([*tokens, "head.weight"], [])
    expected = timm_forward(state, encoder.normalize(images))
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-10)
    assert encoder.norm.eps == 1e-6  # of timm; MONAI's is 1e-5
    assert not encoder.patch_embedding.position_embeddings.requires_grad  # as it was built


def test_another_image_and_patch_size() -> None:
    """Patches twice as large on an image twice as large plus two more columns of patches."""
    state, encoder = (
        timm_state(class_token=True, channels=1),
        build(img_size=(64, 96), patch_size=16),
    )
    report = load_encoder_weights(encoder, state)
    assert report.resized == [
        "patch_embedding.patch_embeddings.weight (24, 1, 8, 8) -> (24, 1, 16, 16)",
        "patch_embedding.position_embeddings of 4 x 4 patches -> 4 x 6",
    ]
    grid = state["pos_embed"][:, 1:].mT.reshape(1, WIDTH, 4, 4)
    expected = F.interpolate(grid, (4, 6), mode="bicubic", antialias=True).flatten(2).mT
    torch.testing.assert_close(
        encoder.patch_embedding.position_embeddings.data, expected, rtol=0, atol=1e-12
    )
    patches = torch.rand(24, 1, 8, 8, dtype=torch.float64)
    large = F.interpolate(patches, (16, 16), mode="bicubic", antialias=True)
    kernel, bias = (
        encoder.state_dict()["patch_embedding.patch_embeddings.weight"],
        state["patch_embed.proj.bias"],
    )
    tokens = F.conv2d(large, kernel, bias).flatten(1)
    torch.testing.assert_close(
        tokens, F.conv2d(patches, state["patch_embed.proj.weight"], bias).flatten(1)
    )


def test_grids_that_are_not_square() -> None:
    state = timm_state(grid=(2, 8), channels=1)
    encoder = build(img_size=(16, 64))
    as_square = load_encoder_weights(encoder, state)
    assert as_square.resized == ["patch_embedding.position_embeddings of 4 x 4 patches -> 2 x 8"]
    with pytest.raises(ValueError, match="position_embeddings"):
        load_encoder_weights(build(), timm_state(grid=(3, 5)))


@pytest.mark.parametrize("size", [(128, 128), (120, 136)])
@pytest.mark.parametrize("with_position", [0, 1])
def test_registers_with_and_without_positions_leave_the_square(
    with_position: int, size: tuple[int, int]
) -> None:
    """timm's no_embed_class, and positions of the class token."""
    state = timm_state(grid=(16, 16), channels=1)
    square = state["pos_embed"]
    tokens = {"cls_token": torch.rand(1, 1, WIDTH), "reg_token": torch.rand(1, 4, WIDTH)}
    before = torch.full((1, with_position, WIDTH), 9.0, dtype=torch.float64)
    state |= {**tokens, "pos_embed": torch.cat([before, square], 1)}
    encoder = build(img_size=size)
    load_encoder_weights(encoder, state)
    picture = square.mT.reshape(1, WIDTH, 16, 16)
    expected = F.interpolate(picture, encoder.grid_size, mode="bicubic", antialias=True)
    found = encoder.patch_embedding.position_embeddings.data
    torch.testing.assert_close(found, expected.flatten(2).mT, rtol=0, atol=1e-9)


@pytest.mark.parametrize("proj_type", ["conv", "perceptron"])
def test_monai_vit_with_and_without_class_token(proj_type: str) -> None:
    size, patch = (16, 32), (8, 16)
    settings: dict[str, Any] = {"in_channels": 2, "img_size": size, "patch_size": patch}
    settings |= {"hidden_size": WIDTH, "mlp_dim": MLP, "num_layers": DEPTH, "num_heads": HEADS}
    options: dict[str, Any] = {"proj_type": proj_type, "qkv_bias": True, "spatial_dims": 2}
    vit = ViT(**settings, **options).double().eval()
    encoder = build(**settings)
    load_encoder_weights(encoder, vit.state_dict(), strict=True)
    images = torch.rand(2, 2, *size, dtype=torch.float64)
    torch.testing.assert_close(
        encoder(images), vit(encoder.normalize(images))[0], rtol=0, atol=1e-10
    )
    classifier = ViT(**settings, **options, classification=True).double().state_dict()
    # as MONAI 1.3 wrote
    old = classifier | {"blocks.0.cross_attn.to_q.weight": torch.rand(3, 3)}
    report = load_encoder_weights(encoder, old, strict=True)
    assert {"cls_token", "blocks.0.cross_attn.to_q.weight"} <= set(report.dropped)
    name = "blocks.1.attn.qkv.weight"
    assert torch.equal(encoder.state_dict()[name], classifier[name])


def test_own_checkpoint_of_an_oblong_grid_with_a_square_number_of_patches() -> None:
    old, new = build(img_size=(16, 64)), build(img_size=(16, 64), pos_embed_type="learnable")
    assert load_encoder_weights(new, old.state_dict()).resized == []
    found = new.patch_embedding.position_embeddings
    assert torch.equal(found, old.patch_embedding.position_embeddings)
    assert found.requires_grad


def random_swin(**options: Any) -> SwinEncoder:
    """A Swin encoder of which every parameter is random."""
    default: dict[str, Any] = {"img_size": 24, "patch_size": 2, "window_size": 3, "embed_dim": 8}
    default |= {"depths": (2, 1, 2), "num_heads": (2, 4, 2)}
    encoder = SwinEncoder(**(default | options)).eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder


def test_another_patch_of_a_swin() -> None:
    report = load_encoder_weights(
        random_swin(patch_size=4, img_size=48), random_swin().state_dict()
    )
    assert report.resized == ["patch_embed.proj.weight (8, 1, 2, 2) -> (8, 1, 4, 4)"]


def test_another_swin_is_refused() -> None:
    state = random_swin().state_dict()
    for encoder, content, words in (
        (random_swin(img_size=32, window_size=4), state, "relative_position_bias_table"),
        (random_swin(num_heads=(1, 2, 4)), state, "relative_position_bias_table"),
        (random_swin(), {n.replace("linear", "fc"): each for n, each in state.items()}, "linear"),
        (random_swin(depths=(2, 1, 1)), state, r"layers\.2\.blocks\.1"),
    ):
        with pytest.raises(ValueError, match=words):
            load_encoder_weights(encoder, content)


def test_own_weights_of_a_network_with_a_teacher() -> None:
    options = {"in_channels": 3, "img_size": 16, "depths": (1, 1), "num_heads": (1, 2)}
    source, network = random_swin(**options), PEAC(random_swin(**options), 4, 4)
    checkpoint = {
        f"network.{name}.{key}": tensor
        for name, encoder in (("teacher_encoder", source), ("encoder", random_swin(**options)))
        for key, tensor in reversed(encoder.state_dict().items())
    }
    report = load_encoder_weights(network, checkpoint, strict=True)
    assert (report.prefix, report.resized) == ("network.teacher_encoder.", [])
    for encoder in (network.encoder, network.teacher_encoder):
        state = encoder.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in source.state_dict().items())
