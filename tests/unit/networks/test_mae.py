# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The masked autoencoder: what its encoder sees, what its decoder gets, what it is not (MONAI's)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from monai_afire.losses import MAELoss
from monai_afire.networks import MAE, ViTEncoder, patchify, unpatchify
from unit.tiny_networks import tiny_swin, tiny_vit

VISIBLE = torch.tensor([[0, 3, 5, 14], [1, 2, 3, 15]])


def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return tiny_vit(num_layers=2)


def tiny(**options: Any) -> MAE:
    network = MAE(encoder(), decoder_dim=16, decoder_layers=1, decoder_heads=2, **options)
    # fresh weights make small outputs, in which differences would go unseen
    torch.nn.init.normal_(network.decoder.to_pixels.weight)
    return network


def without(images: torch.Tensor, visible: torch.Tensor, value: float) -> torch.Tensor:
    """The images with another value in all hidden patches."""
    patches = patchify(images, 8)
    filled = torch.full_like(patches, value)
    places = visible.unsqueeze(-1).expand(-1, -1, patches.shape[-1])
    return unpatchify(filled.scatter(1, places, patches.gather(1, places)), (4, 4), 8)


def test_hidden_patches_are_not_seen() -> None:
    network, images = tiny().eval(), torch.rand(2, 1, 32, 32)
    outputs, others = network(images, VISIBLE), network(without(images, VISIBLE, 0.9), VISIBLE)
    assert torch.equal(outputs["reconstructed"], others["reconstructed"])
    assert not torch.equal(outputs["target"], others["target"])
    changed = images.clone()
    changed[:, :, :8, 8:16] += 0.1  # place 1: hidden in the first image, seen in the second
    again = network(changed, VISIBLE)["reconstructed"]
    assert torch.equal(again[0], outputs["reconstructed"][0])
    assert not torch.allclose(again[1], outputs["reconstructed"][1])


def test_tokens_of_some_patches_are_those_of_a_shorter_sequence() -> None:
    network, images = encoder().eval(), torch.rand(2, 1, 32, 32)
    embedded = network.patch_embedding(network.normalize(images))
    for image, places in enumerate(VISIBLE):
        tokens = embedded[image : image + 1, places]
        for block in network.blocks:
            tokens = block(tokens)
        torch.testing.assert_close(
            network.visible_tokens(images, VISIBLE)[image], network.norm(tokens)[0]
        )
    everything = torch.arange(16).expand(2, 16)
    torch.testing.assert_close(network.visible_tokens(images, everything), network(images))
    order = everything.flip(1)
    torch.testing.assert_close(network.visible_tokens(images, order), network(images).flip(1))


@pytest.mark.parametrize("normalize", [True, False])
def test_pictures_have_the_patches_own_brightness(normalize: bool) -> None:
    network, images = tiny(normalize_target=normalize).eval(), torch.rand(2, 1, 32, 32)
    images[0] = 0.25 + 0.5 * images[0]
    monkey = copy.deepcopy(network)
    target = network(images, VISIBLE)["target"]
    monkey.decoder.forward = lambda *_: target  # type: ignore[method-assign]  a perfect reconstruction
    outputs = monkey(images, VISIBLE)
    patches = patchify(network.encoder.normalize(images), 8)
    torch.testing.assert_close(outputs["completed"], patches)
    for image in range(2):
        seen = VISIBLE[image]
        gray = patches[image, seen].mean()
        hidden = outputs["hidden"][image]
        torch.testing.assert_close(outputs["masked"][image, hidden], gray.expand(12, 64))
        torch.testing.assert_close(outputs["masked"][image, seen], patches[image, seen])
    torch.testing.assert_close(
        outputs["embedding"], network.encoder.visible_tokens(images, VISIBLE).mean(1)
    )


def test_every_parameter_learns() -> None:
    network = tiny()
    MAELoss()(network(torch.rand(2, 1, 32, 32), VISIBLE)).backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_a_swin_cannot_leave_patches_out() -> None:
    with pytest.raises(TypeError, match="ViTEncoder"):
        MAE(tiny_swin())  # type: ignore[arg-type]
