# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import numpy as np
import pytest
import torch
from apps.studies.stub_encoders import PatchMeanEncoder
from monai.data import MetaTensor
from numpy.typing import NDArray
from torch import nn

from monai_afire.apps.studies.features.dense import cell_centers, dense_features, shifts_per_axis
from monai_afire.networks import SwinEncoder, ViTEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


def naive_dense(
    encoder: RadiographEncoder, images: torch.Tensor, stride: int
) -> NDArray[np.float32]:
    """One cell at a time: the image moved so that a token is centered where the documentation says."""
    size, patch = encoder.img_size, encoder.patch_size
    cells = [s // stride for s in size]
    features = np.zeros((len(images), encoder.hidden_size, *cells), dtype=np.float32)
    for cell in np.ndindex(*cells):
        center = [
            j * stride - (p - stride) // 2 + (p - 1) / 2 for j, p in zip(cell, patch, strict=True)
        ]
        # pixel at which the patch begins
        first = [int(c - (p - 1) / 2) for c, p in zip(center, patch, strict=True)]
        token = [j * stride // p for j, p in zip(cell, patch, strict=True)]
        moves = [f - t * p for f, t, p in zip(first, token, patch, strict=True)]
        places = [np.clip(np.arange(s) + m, 0, s - 1) for s, m in zip(size, moves, strict=True)]
        moved = images[:, :, places[0]][:, :, :, places[1]]
        with torch.no_grad():
            tokens = encoder(moved)
        features[(..., *cell)] = tokens[:, token[0] * encoder.grid_size[1] + token[1]].numpy()
    return features


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_like_one_cell_at_a_time(stride: int) -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(
        img_size=(16, 24), patch_size=8, hidden_size=12, num_layers=1, num_heads=2
    ).eval()
    images = torch.rand(3, 1, 16, 24)
    features = dense_features(encoder, images, stride, batch_size=5)
    assert features.shape == (3, 12, 16 // stride, 24 // stride)
    np.testing.assert_allclose(features.numpy(), naive_dense(encoder, images, stride), atol=2e-6)


@pytest.mark.parametrize(
    ("patch", "stride"), [((8, 8), 4), ((8, 8), 1), ((6, 4), 2), ((3, 9), 3), ((6, 6), 3)]
)
def test_cells_are_centered_where_stated(patch: tuple[int, int], stride: int) -> None:
    # the mean of a patch of a ramp is the coordinate of its center; inside, where no border is repeated
    size = (36, 36) if 36 % patch[0] == 0 and 36 % patch[1] == 0 else (32, 32)
    rows, columns = torch.meshgrid(
        *[torch.arange(s, dtype=torch.float32) for s in size], indexing="ij"
    )
    encoder = PatchMeanEncoder(2, size, patch)
    features = dense_features(encoder, torch.stack([rows, columns])[None], stride)[0]
    for axis, centers in enumerate(cell_centers(encoder, stride)):
        inside = (centers - (patch[axis] - 1) / 2 >= 0) & (
            centers + (patch[axis] - 1) / 2 <= size[axis] - 1
        )
        assert inside.sum() > 3
        found = features[axis].movedim(axis, 0)[inside]
        torch.testing.assert_close(found, centers[inside][:, None].expand_as(found))


def test_one_pass_without_a_stride() -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(
        img_size=32, patch_size=16, hidden_size=12, num_layers=1, num_heads=2
    ).eval()
    images = torch.rand(2, 1, 32, 32)
    tokens = encoder(images).detach()
    torch.testing.assert_close(dense_features(encoder, images).flatten(2).transpose(1, 2), tokens)
    assert shifts_per_axis(encoder) == (1, 1)


def test_swin() -> None:
    encoder = SwinEncoder(img_size=32, patch_size=2, embed_dim=8, depths=(1, 1), num_heads=(2, 2))
    assert dense_features(encoder, torch.rand(1, 1, 32, 32), 2).shape == (1, 16, 16, 16)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_batches_are_full_and_change_nothing(batch_size: int) -> None:
    torch.manual_seed(1)
    encoder = PatchMeanEncoder(1, (16, 16), (8, 8))
    images = torch.rand(3, 1, 16, 16)
    features = dense_features(encoder, images, 4, batch_size)
    assert sum(encoder.batches) == 12
    assert max(encoder.batches) == min(batch_size, 12)
    torch.testing.assert_close(features, dense_features(encoder, images, 4))


def test_modes_are_given_back_even_after_an_error() -> None:
    encoder = ViTEncoder(
        img_size=16, patch_size=8, hidden_size=12, num_layers=2, num_heads=2, dropout_rate=0.5
    )
    encoder.train()
    encoder.blocks[0].eval()  # a frozen layer
    before = [module.training for module in encoder.modules()]
    images = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(
        dense_features(encoder, images, 4), dense_features(encoder, images, 4)
    )
    assert [module.training for module in encoder.modules()] == before

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    encoder.norm = nn.Module()
    encoder.norm.forward = fail
    encoder.norm.train()
    with pytest.raises(RuntimeError, match="broken"):
        dense_features(encoder, images, 4)
    assert [module.training for module in encoder.blocks] == [False, True]
    assert encoder.training


def test_input_is_not_changed_and_the_output_is_plain() -> None:
    encoder = PatchMeanEncoder(1, (16, 16), (8, 8))
    images = MetaTensor(torch.rand(2, 1, 16, 16))
    copy = images.clone()
    features = dense_features(encoder, images, 4)
    assert type(features) is torch.Tensor
    assert not features.requires_grad
    assert bool((images == copy).all())
    assert dense_features(encoder, images[:0], 4).shape == (0, 1, 4, 4)


@pytest.mark.parametrize("stride", [3, 16, 0, -4])
def test_refuses_strides_that_do_not_divide(stride: int) -> None:
    encoder = PatchMeanEncoder(1, (16, 16), (8, 8))
    with pytest.raises(ValueError, match=r"choose one of \[1, 2, 4, 8\]"):
        dense_features(encoder, torch.rand(1, 1, 16, 16), stride)


def test_refuses_other_images() -> None:
    encoder = PatchMeanEncoder(1, (16, 16), (8, 8))
    with pytest.raises(ValueError, match="this encoder takes images"):
        dense_features(encoder, torch.rand(1, 1, 24, 24), 4)
    with pytest.raises(ValueError, match="batch_size"):
        dense_features(encoder, torch.rand(1, 1, 16, 16), 4, batch_size=0)
