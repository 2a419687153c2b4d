# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""UPerNet against a slow version written with loops and matrices, from the encoder's feature maps on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.uper_net import UPerNet

Build = Callable[..., RadiographEncoder]


def vit(**settings: Any) -> ViTEncoder:
    default = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 3, "num_heads": 2}
    return ViTEncoder(**(default | settings))


def swin(**settings: Any) -> SwinEncoder:
    default = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 8}
    return SwinEncoder(**(default | {"depths": (1, 1, 2), "num_heads": (1, 2, 4)} | settings))


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


def index(*parts: Any) -> Any:
    return tuple(parts)


def naive_interpolation(old: int, new: int) -> torch.Tensor:
    """Matrix (new, old): the old pixels' centers around each new center, weighted by how near they are."""
    matrix = torch.zeros(new, old, dtype=torch.float64)
    for row in range(new):
        place = min(max((row + 0.5) * old / new - 0.5, 0.0), old - 1.0)
        below = int(place)
        matrix[row, below] += 1 - (place - below)
        matrix[row, min(below + 1, old - 1)] += place - below
    return matrix


def naive_pooling(old: int, new: int) -> torch.Tensor:
    """Matrix (new, old): the average of all old pixels that a new one touches."""
    matrix = torch.zeros(new, old, dtype=torch.float64)
    for row in range(new):
        touched = range(math.floor(row * old / new), math.ceil((row + 1) * old / new))
        matrix[row, list(touched)] = 1 / len(touched)
    return matrix


def along_axes(
    image: torch.Tensor, size: tuple[int, ...], matrix: Callable[[int, int], torch.Tensor]
) -> torch.Tensor:
    for axis, new in enumerate(size, start=1):
        image = torch.movedim(
            torch.movedim(image, axis, -1) @ matrix(image.shape[axis], new).T, -1, axis
        )
    return image


def naive_convolution(
    image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum over the places of the kernel of the image shifted there, zeros outside."""
    kernel, size = weight.shape[2:], image.shape[1:]
    padded = torch.zeros(
        image.shape[0], *(n + k - 1 for n, k in zip(size, kernel, strict=True)), dtype=image.dtype
    )
    padded[
        index(slice(None), *(slice(k // 2, k // 2 + n) for n, k in zip(size, kernel, strict=True)))
    ] = image
    result = torch.zeros(weight.shape[0], *size, dtype=image.dtype)
    for offset in itertools.product(*map(range, kernel)):
        window = padded[
            index(slice(None), *(slice(o, o + n) for o, n in zip(offset, size, strict=True)))
        ]
        result = result + torch.einsum(
            "oi,i...->o...", weight[index(slice(None), slice(None), *offset)], window
        )
    return result if bias is None else result + bias.reshape(-1, *[1] * len(size))


def naive_norm(
    image: torch.Tensor, groups: int, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    per_channel = (-1, *[1] * (image.ndim - 1))
    parts = [
        (part - part.mean()) / (part.var(correction=0) + 1e-5).sqrt()
        for part in image.chunk(groups)
    ]
    return torch.cat(parts) * weight.reshape(per_channel) + bias.reshape(per_channel)


def naive_layer(image: torch.Tensor, state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    convolved = naive_convolution(image, state[f"{name}.conv.weight"])
    norm = state[f"{name}.adn.N.weight"], state[f"{name}.adn.N.bias"]
    return naive_norm(convolved, max(len(convolved) // 16, 1), *norm).clamp_min(0)


def naive_doubling(image: torch.Tensor, state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """Every pixel becomes a block of pixels."""
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    kernel = weight.shape[2:]
    size = [n * k for n, k in zip(image.shape[1:], kernel, strict=True)]
    result = torch.empty(weight.shape[1], *size, dtype=image.dtype)
    for offset in itertools.product(*map(range, kernel)):
        mixed = torch.einsum(
            "io,i...->o...", weight[index(slice(None), slice(None), *offset)], image
        )
        result[
            index(slice(None), *(slice(o, None, k) for o, k in zip(offset, kernel, strict=True)))
        ] = mixed
    return result + bias.reshape(-1, *[1] * len(kernel))


def naive_neck(maps: list[torch.Tensor], state: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    first = naive_doubling(maps[0], state, "neck.scales.0.0")
    first = naive_norm(first, 1, state["neck.scales.0.1.weight"], state["neck.scales.0.1.bias"])
    first = first * (1 + torch.erf(first / math.sqrt(2))) / 2
    coarse = torch.empty(
        len(maps[3]), *(math.ceil(n / 2) for n in maps[3].shape[1:]), dtype=first.dtype
    )
    for place in itertools.product(*map(range, coarse.shape[1:])):
        pool = maps[3][index(slice(None), *(slice(2 * p, 2 * p + 2) for p in place))]
        coarse[index(slice(None), *place)] = pool.flatten(1).amax(1)
    return [
        naive_doubling(first, state, "neck.scales.0.3"),
        naive_doubling(maps[1], state, "neck.scales.1.0"),
        maps[2],
        coarse,
    ]


def naive_head(
    maps: list[torch.Tensor], state: dict[str, torch.Tensor], pool_sizes: tuple[int, ...]
) -> torch.Tensor:
    """From one image's maps (C_i, *S_i) to the logits at the finest of the pyramid's sizes."""
    if any(name.startswith("neck") for name in state):
        maps = naive_neck(maps, state)
    *finer, coarsest = maps
    size = tuple(coarsest.shape[1:])
    context = [coarsest]
    for number, pooled in enumerate(pool_sizes):
        grid = along_axes(coarsest, (pooled,) * len(size), naive_pooling)
        grid = naive_layer(grid, state, f"pooling.branches.{number}.1")
        context.append(along_axes(grid, size, naive_interpolation))
    above = naive_layer(torch.cat(context), state, "pooling.join")
    levels = [above]
    for number in reversed(range(len(finer))):
        lateral = naive_layer(finer[number], state, f"pyramid.laterals.{number}")
        above = lateral + along_axes(above, tuple(lateral.shape[1:]), naive_interpolation)
        levels.insert(0, naive_layer(above, state, f"pyramid.outputs.{number}"))
    finest = tuple(maps[0].shape[1:])
    fused = torch.cat([along_axes(level, finest, naive_interpolation) for level in levels])
    fused = naive_layer(fused, state, "pyramid.fuse")
    return naive_convolution(fused, state["classifier.weight"], state["classifier.bias"])


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(("channels", "pool_sizes"), [(6, (1, 2, 3, 6)), (32, (2,))])
def test_values_are_those_of_the_slow_version(
    name: str, channels: int, pool_sizes: tuple[int, ...]
) -> None:
    network = random_network(ENCODERS[name], channels, pool_sizes=pool_sizes)
    images = images_for(network)
    with torch.no_grad():
        logits, maps = network(images), network.encoder.feature_maps(images)
    assert logits.shape == (2, 3, *network.encoder.img_size)
    assert (network.neck is None) == name.startswith("swin")
    for n in range(2):
        expected = naive_head([features[n] for features in maps], network.state_dict(), pool_sizes)
        expected = along_axes(expected, network.encoder.img_size, naive_interpolation)
        torch.testing.assert_close(logits[n], expected, rtol=0, atol=1e-9)


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
    torch.manual_seed(3)
    encoder = build(**({"dropout_rate": 0.5} if build is vit else {"drop_path_rate": 0.5}))
    network = UPerNet(encoder, num_classes=2, channels=8, freeze_encoder=True)
    assert network.training
    assert not encoder.training  # from the start, before anybody calls train()
    assert network.neck is None or network.neck.training
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images = images_for(network)
    for mode in (True, False, True):
        network.train(mode)
        assert not any(module.training for module in encoder.modules())
        assert network.dropout.training == network.pyramid.training == mode
    assert not any(features.requires_grad for features in _maps_seen(network, images))
    assert not torch.equal(network(images), network(images))  # the head's own dropout is on
    optimizer = torch.optim.AdamW(
        (p for p in network.parameters() if p.requires_grad), lr=0.1, weight_decay=0.5
    )
    network(images).square().mean().backward()
    optimizer.step()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("encoder."), name


def _maps_seen(network: UPerNet, images: torch.Tensor) -> list[torch.Tensor]:
    part = network.pooling if network.neck is None else network.neck
    seen: list[torch.Tensor] = []
    handle = part.register_forward_pre_hook(
        lambda _, inputs: seen.extend(inputs[0] if isinstance(inputs[0], list) else inputs)
    )
    network(images)
    handle.remove()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "swin"])
def test_export_and_tracing(name: str) -> None:
    torch.manual_seed(4)
    network = UPerNet(ENCODERS[name](), num_classes=2, channels=8).eval()
    images, more = images_for(network, number=2), images_for(network, number=3)
    expected = network(more)
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(exported.module()(more), expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        traced = torch.jit.trace(network, images)
        torch.testing.assert_close(traced(images), network(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_classes": 0}, ValueError, "num_classes must be at least 1, got 0"),
        ({"prior": 0.0}, ValueError, "prior"),
        ({"prior": math.nan}, ValueError, "prior"),
        ({"encoder": nn.Linear(2, 2)}, TypeError, "Linear is no encoder"),
    ],
)
def test_hostile_settings_fail_at_once(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    default: dict[str, Any] = {"encoder": vit(), "num_classes": 2, "channels": 8}
    with pytest.raises(error, match=message):
        UPerNet(**(default | settings))


@pytest.mark.parametrize("prior", [0.05, 0.5, 0.9])
def test_every_class_starts_with_its_prior_everywhere(prior: float) -> None:
    torch.manual_seed(0)
    network = UPerNet(vit(), num_classes=3, channels=16, prior=prior).eval()
    nn.init.zeros_(network.classifier.weight)
    torch.testing.assert_close(
        network(torch.rand(2, 1, 32, 32)).sigmoid(), torch.full((2, 3, 32, 32), prior)
    )
