# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""UPerNet against plain operations, from the encoder's feature maps on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.networks import RadiographEncoder, SwinEncoder, UPerNet, ViTEncoder
from unit.tiny_networks import tiny_swin, tiny_vit

Build = Callable[..., RadiographEncoder]


def vit(**settings: Any) -> ViTEncoder:
    return tiny_vit(num_layers=3, **settings)


def swin(**settings: Any) -> SwinEncoder:
    sizes: dict[str, Any] = {"img_size": 32, "depths": (1, 1, 2), "num_heads": (1, 2, 4)}
    return tiny_swin(**(sizes | settings))


ENCODERS: dict[str, Build] = {
    "vit": vit,
    "vit_oblong": lambda: vit(img_size=(24, 40), in_channels=2),  # odd grid
    "swin": swin,
    "swin_one_stage": lambda: swin(img_size=8, depths=(1,), num_heads=(1,)),
}


def random_network(build: Build, channels: int, seed: int = 0, **settings: Any) -> UPerNet:
    """In double precision, every parameter of the head random: biases and norms too."""
    torch.manual_seed(seed)
    network = UPerNet(build(), num_classes=3, channels=channels, **settings).double()
    for name, parameter in network.named_parameters():
        if not name.startswith("encoder"):
            nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    return network.eval()


def images_for(network: UPerNet, number: int = 2) -> torch.Tensor:
    encoder = network.encoder
    dtype = next(network.parameters()).dtype
    return torch.rand(number, encoder.in_channels, *encoder.img_size, dtype=dtype)


def resized(image: torch.Tensor, size: torch.Size) -> torch.Tensor:
    return F.interpolate(image, size, mode="bilinear")


def naive_layer(image: torch.Tensor, state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    weight = state[f"{name}.conv.weight"]
    convolved = F.conv2d(image, weight, padding=weight.shape[-1] // 2)
    norm = state[f"{name}.adn.N.weight"], state[f"{name}.adn.N.bias"]
    return F.group_norm(convolved, max(len(weight) // 16, 1), *norm).relu()


def naive_neck(maps: list[torch.Tensor], state: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Patches of 8 x 8: four, two, one and half as many elements along each axis."""

    def doubled(image: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = state[f"neck.scales.{name}.weight"], state[f"neck.scales.{name}.bias"]
        return F.conv_transpose2d(image, weight, bias, stride=2)

    norm = state["neck.scales.0.1.weight"], state["neck.scales.0.1.bias"]
    finest = F.gelu(F.group_norm(doubled(maps[0], "0.0"), 1, *norm))
    coarse = F.max_pool2d(maps[3], 2, ceil_mode=True)
    return [doubled(finest, "0.3"), doubled(maps[1], "1.0"), maps[2], coarse]


def naive_head(
    maps: list[torch.Tensor], state: dict[str, torch.Tensor], pool_sizes: tuple[int, ...]
) -> torch.Tensor:
    """From the encoder's maps to the logits at the finest of the pyramid's sizes."""
    if any(name.startswith("neck") for name in state):
        maps = naive_neck(maps, state)
    *finer, coarsest = maps
    context = [coarsest]
    for number, pooled in enumerate(pool_sizes):
        grid = F.adaptive_avg_pool2d(coarsest, pooled)
        grid = naive_layer(grid, state, f"pooling.branches.{number}.1")
        context.append(resized(grid, coarsest.shape[2:]))
    above = naive_layer(torch.cat(context, 1), state, "pooling.join")
    levels = [above]
    for number in reversed(range(len(finer))):
        lateral = naive_layer(finer[number], state, f"pyramid.laterals.{number}")
        above = lateral + resized(above, lateral.shape[2:])
        levels.insert(0, naive_layer(above, state, f"pyramid.outputs.{number}"))
    fused = torch.cat([resized(level, maps[0].shape[2:]) for level in levels], 1)
    fused = naive_layer(fused, state, "pyramid.fuse")
    return F.conv2d(fused, state["classifier.weight"], state["classifier.bias"])


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(("channels", "pool_sizes"), [(6, (1, 2, 3, 6)), (32, (2,))])
def test_values_are_those_of_plain_operations(
    name: str, channels: int, pool_sizes: tuple[int, ...]
) -> None:
    network = random_network(ENCODERS[name], channels, pool_sizes=pool_sizes)
    images = images_for(network)
    with torch.no_grad():
        logits, maps = network(images), network.encoder.feature_maps(images)
    assert (network.neck is None) == name.startswith("swin")
    expected = naive_head(maps, network.state_dict(), pool_sizes)
    torch.testing.assert_close(logits, resized(expected, images.shape[2:]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["vit", "swin"])
def test_one_image_trains_every_parameter(name: str) -> None:
    torch.manual_seed(1)
    network = UPerNet(ENCODERS[name](), num_classes=2, channels=32).train()
    network(images_for(network, number=1)).square().mean().backward()
    for key, parameter in network.named_parameters():
        # a parameter without gradient stops distributed training
        assert (parameter.grad is not None) == parameter.requires_grad, key
        assert parameter.grad is None or parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("build", [vit, swin])
def test_a_frozen_encoder_stays_as_it_is(build: Build) -> None:
    encoder = build(**({"dropout_rate": 0.5} if build is vit else {"drop_path_rate": 0.5}))
    network = UPerNet(encoder, num_classes=2, channels=8, freeze_encoder=True)
    assert not encoder.training  # from the start, before anybody calls train()
    images = images_for(network)
    for mode in (True, False, True):
        network.train(mode)
        assert not any(module.training for module in encoder.modules())
        assert network.dropout.training == network.pyramid.training == mode
    assert not torch.equal(network(images), network(images))  # the head's own dropout is on
    network(images).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad is None) == name.startswith("encoder."), name


@pytest.mark.slow
def test_export_for_batches_of_any_size() -> None:
    network = UPerNet(vit(), num_classes=2, channels=8).eval()
    images, more = images_for(network, number=2), images_for(network, number=3)
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(exported.module()(more), network(more), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "error", "named"),
    [
        ({"num_classes": 0}, ValueError, "num_classes"),
        ({"prior": 0.0}, ValueError, "prior"),
        ({"encoder": nn.Linear(2, 2)}, TypeError, "Linear"),
    ],
)
def test_hostile_settings_fail_at_once(
    settings: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        UPerNet(**{"encoder": vit(), "num_classes": 2, "channels": 8, **settings})


@pytest.mark.parametrize("prior", [0.05, 0.5])
def test_every_class_starts_with_its_prior_everywhere(prior: float) -> None:
    torch.manual_seed(0)
    network = UPerNet(vit(), num_classes=3, channels=16, prior=prior).eval()
    nn.init.zeros_(network.classifier.weight)
    torch.testing.assert_close(
        network(torch.rand(2, 1, 32, 32)).sigmoid(), torch.full((2, 3, 32, 32), prior)
    )
