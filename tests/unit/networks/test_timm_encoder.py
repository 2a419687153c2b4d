# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders of timm against the library itself, and published files of radiographs' encoders in their exact layout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from monai_afire.networks import (
    TimmEncoder,
    UPerNet,
    ViTEncoder,
    build_encoder,
    find_weights,
    load_encoder_weights,
)
from monai_afire.networks.nets.encoders.timm_encoder import PUBLISHED
from unit.tiny_networks import tiny_vit


def timm_library() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        # the latter where torch and torchvision are of different builds
        pytest.skip(
            f"needs timm and a torchvision that fits torch: pip install 'monai-afire[timm]' ({error})"
        )
    return timm


def normalized(gray: torch.Tensor, mean: Any, std: Any) -> torch.Tensor:
    channels = [(gray[:, 0] - m) / s for m, s in zip(mean, std, strict=True)]
    return torch.stack(channels, 1)


TIMM = {
    "vit_tiny_patch16_224": ({"depth": 3, "embed_dim": 24, "num_heads": 2}, 64),
    "vit_small_patch14_reg4_dinov2": ({"depth": 3, "embed_dim": 24, "num_heads": 2}, 56),
    "vit_small_patch16_dinov3": ({"depth": 3, "embed_dim": 32, "num_heads": 2}, 64),
    "eva02_tiny_patch14_224": ({"depth": 3, "embed_dim": 32, "num_heads": 2}, 56),
    "swin_tiny_patch4_window7_224": (
        {"depths": (1, 1, 1, 1), "embed_dim": 8, "num_heads": (1, 1, 2, 2)},
        64,
    ),
    "convnext_atto": ({"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}, None),
}


@pytest.mark.parametrize("name", TIMM)
def test_tokens_are_those_of_timm(name: str) -> None:
    timm = timm_library()
    settings, size = TIMM[name]
    sized = {"img_size": size} if size else {}
    model = timm.create_model(name, num_classes=0, **settings, **sized).eval()
    side = size or 64
    images = torch.rand(2, 1, side, side)
    encoder = TimmEncoder(model, side)
    config = model.pretrained_cfg
    expected = model.forward_features(normalized(images, config["mean"], config["std"]))
    if expected.ndim == 3:
        expected = expected[:, model.num_prefix_tokens :]
    elif "swin" in name:
        expected = expected.flatten(1, 2)
    else:
        expected = expected.flatten(2).mT
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)
    maps = encoder.feature_maps(images)
    assert tuple(each.shape[1] for each in maps) == encoder.feature_channels
    torch.testing.assert_close(maps[-1].flatten(2).mT, expected, rtol=0, atol=1e-5)
    layers = encoder.parameters_by_depth()
    assert all(layers)
    assert len(layers) == len(encoder.blocks()) + 1
    assert UPerNet(encoder, 2, channels=8)(images).shape == (2, 2, side, side)


def test_timm_gives_the_features_of_the_released_vit_tiny() -> None:
    timm = timm_library()
    encoder = ViTEncoder(img_size=224, patch_size=16, hidden_size=192, num_layers=12, num_heads=3)
    load_encoder_weights(encoder, "released_224", strict=True)
    settings = {
        "in_chans": 1,
        "num_classes": 0,
        "class_token": False,
        "global_pool": "avg",
        "fc_norm": False,
    }
    model = timm.create_model("vit_tiny_patch16_224", **settings).eval()
    model.load_state_dict(load_file(find_weights("released_224")))  # as the card says
    images = torch.rand(2, 1, 224, 224)
    with torch.inference_mode():
        expected = model.forward_features((images - 0.449) / 0.226)
        torch.testing.assert_close(encoder.eval()(images), expected, rtol=1e-3, atol=1e-3)


def test_timm_is_asked_by_name() -> None:
    timm_library()
    own = tiny_vit(img_size=64, patch_size=16)
    assert build_encoder("timm:vit_tiny_patch16_224", own).img_size == (64, 64)
    for name, size in (("vit_nothing", 64), ("vit_tiny_patch16_224", 50)):
        with pytest.raises(ValueError, match=r"vit_nothing|50"):
            TimmEncoder(name, size)


State = dict[str, torch.Tensor]
EVA_X_MEAN, EVA_X_STD = 0.49185243, 0.28509309  # of its public code


def layer_norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from [(f"{name}.weight", (width,)), (f"{name}.bias", (width,))]


def linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]


def eva_x_shapes(
    width: int, depth: int = 12, parted: bool = False
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """EVA-02's masked image modeling at 224 pixels, patches of 16; Ti and S in one layer, B with parted layers."""
    hidden = int(width * 4 * 2 / 3)
    yield from [(name, (1, 1, width)) for name in ("cls_token", "mask_token")]
    yield from [("pos_embed", (1, 197, width)), ("patch_embed.proj.weight", (width, 3, 16, 16))]
    yield "patch_embed.proj.bias", (width,)
    for block in (f"blocks.{number}" for number in range(depth)):
        yield from layer_norm(f"{block}.norm1", width)
        yield from [(f"{block}.attn.q_bias", (width,)), (f"{block}.attn.v_bias", (width,))]
        if parted:
            yield from [(f"{block}.attn.{part}_proj.weight", (width, width)) for part in "qkv"]
            yield from linear(f"{block}.mlp.w1", width, hidden)
            yield from linear(f"{block}.mlp.w2", width, hidden)
            yield from layer_norm(f"{block}.mlp.ffn_ln", hidden)
        else:
            yield f"{block}.attn.qkv.weight", (3 * width, width)
            yield from linear(f"{block}.mlp.w12", width, 2 * hidden)
        yield from linear(f"{block}.attn.proj", width, width)
        yield from linear(f"{block}.mlp.w3", hidden, width)
        yield from layer_norm(f"{block}.norm2", width)
    for owner in ("rope", *(f"blocks.{number}.attn.rope" for number in range(depth))):
        yield from [(f"{owner}.freqs_cos", (196, 64)), (f"{owner}.freqs_sin", (196, 64))]
    yield from layer_norm("norm", width)
    yield from linear("lm_head", width, 512)


def random_state(shapes: Iterator[tuple[str, tuple[int, ...]]]) -> State:
    """Weights of a size that leaves no tensor without an effect."""
    torch.manual_seed(0)
    state = {}
    for name, shape in shapes:
        scale = 1 / math.sqrt(math.prod(shape[1:])) if len(shape) in (2, 4) else 0.3
        is_gain = (name.endswith(".weight") and len(shape) == 1) or name.endswith("running_var")
        state[name] = torch.randn(shape) * scale if not is_gain else 1 + torch.rand(shape)
    return state


def eva_x_file(folder: Path, **shape: Any) -> tuple[Path, State]:
    state = random_state(eva_x_shapes(**shape))
    path = folder / "eva_x_mim.pt"
    torch.save({"module": state, "epoch": 899, "loss": np.float64(0.3)}, path)
    return path, state


def eva_x_of_timm(timm: Any, state: State, size: int, heads: int, parted: bool) -> Any:
    """EVA-02 as the authors of EVA-X build it, with their weights; timm puts the last norm behind the pooling."""
    depth = sum(name.endswith(".norm1.weight") for name in state)
    model = timm.models.eva.Eva(
        img_size=size,
        patch_size=16,
        embed_dim=state["cls_token"].shape[-1],
        depth=depth,
        num_heads=heads,
        mlp_ratio=4 * 2 / 3,
        swiglu_mlp=True,
        qkv_fused=not parted,
        scale_mlp=parted,
        use_rot_pos_emb=True,
        ref_feat_shape=(14, 14),
        num_classes=0,
    ).eval()
    model.load_state_dict(timm.models.eva.checkpoint_filter_fn(state, model))
    return model


@pytest.mark.parametrize(
    ("name", "heads", "shape", "size"),
    [("tiny", 3, {"width": 192}, 128), ("base", 1, {"width": 64, "depth": 2, "parted": True}, 160)],
)
def test_eva_x(tmp_path: Path, name: str, heads: int, shape: dict[str, Any], size: int) -> None:
    timm = timm_library()
    path, state = eva_x_file(tmp_path, **shape)
    if name == "base":  # a small one of its layout
        small = {"depth": 2, "embed_dim": 64, "num_heads": 1, "img_size": size, "num_classes": 0}
        model = timm.create_model(**PUBLISHED["eva_x_base_patch16"], **small)
        encoder: Any = TimmEncoder(model, size).eval()
    else:
        encoder = build_encoder(
            f"timm:eva_x_{name}_patch16", tiny_vit(img_size=size, patch_size=16)
        ).eval()
    report = load_encoder_weights(encoder, path)
    assert report.missing == []
    assert [each.split(" ")[0] for each in report.resized] == ["pos_embed"]
    assert {"mask_token", "lm_head.weight", "rope.freqs_cos"} < set(report.dropped)
    images = torch.rand(2, 1, size, size)
    torch.testing.assert_close(encoder.normalize(images), (images - EVA_X_MEAN) / EVA_X_STD)
    theirs = eva_x_of_timm(timm, state, size, heads, name == "base")
    with torch.no_grad():
        pixels = ((images - EVA_X_MEAN) / EVA_X_STD).expand(-1, 3, -1, -1)
        expected = theirs.fc_norm(theirs.forward_features(pixels))[:, 1:]
        torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)


def test_files_of_other_models_are_refused(tmp_path: Path) -> None:
    timm_library()
    path, _ = eva_x_file(tmp_path, width=48, depth=1)
    encoder = build_encoder("timm:eva_x_tiny_patch16", tiny_vit(img_size=64, patch_size=16))
    before = {name: each.clone() for name, each in encoder.state_dict().items()}
    odd = random_state(eva_x_shapes(192))
    odd["pos_embed"] = odd["pos_embed"][:, :190]
    shorter = random_state(eva_x_shapes(192, depth=11))
    for weights, words in ((path, r"eva_x_mim.pt"), (shorter, r"blocks\.11\."), (odd, "Eva")):
        with pytest.raises(ValueError, match=words):
            load_encoder_weights(encoder, weights)
    assert all(torch.equal(each, before[name]) for name, each in encoder.state_dict().items())
    with pytest.raises(ValueError, match="eva_x_tiny_patch16"):
        build_encoder("timm:eva_x_tiny_patch16:pretrained", tiny_vit(img_size=64, patch_size=16))


XRV = {
    "resnet50": ("conv1.weight", "model.", 2048),
    "densenet121": ("features.conv0.weight", "", 1024),
}


@pytest.mark.parametrize("name", XRV)
def test_torchxrayvision(tmp_path: Path, name: str) -> None:
    timm = timm_library()
    first, prefix, width = XRV[name]
    model = getattr(pytest.importorskip("torchvision").models, name)(num_classes=18)
    shapes = {key: tuple(each.shape) for key, each in model.state_dict().items() if each.ndim}
    shapes[first] = (64, 1, 7, 7)  # gray images
    state = random_state(iter(shapes.items()))
    published = {f"{prefix}{key}": tensor for key, tensor in state.items()}
    torch.save({**published, "op_threshs": torch.rand(18)}, tmp_path / "xrv.pt")
    encoder = build_encoder(f"timm:xrv_{name}", tiny_vit(img_size=64, patch_size=32)).eval()
    assert load_encoder_weights(encoder, tmp_path / "xrv.pt").missing == []
    layers = encoder.parameters_by_depth()
    assert all(layers)
    assert sum(map(len, layers)) == len([*encoder.parameters()])
    theirs = timm.create_model(name, in_chans=1, num_classes=18).eval()
    theirs.load_state_dict(state, strict=False)
    images = torch.rand(2, 1, 64, 64)
    with torch.no_grad():
        expected = theirs.forward_features((2 * images - 1) * 1024).flatten(2).mT
        assert expected.shape == (2, 4, width)
        torch.testing.assert_close(encoder(images), expected, rtol=1e-4, atol=1e-4)
