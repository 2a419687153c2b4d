# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The masked autoencoder's loss against loops over patches and pixels: values, gradients, the network's target."""

from __future__ import annotations

import pytest
import torch
from naive import mae

from monai_afire.losses import MAELoss, MaskedReconstructionLoss
from monai_afire.networks import MAE, ViTEncoder

PATCH = 4


def tiny(normalize_target: bool = True) -> MAE:
    torch.manual_seed(0)
    encoder = ViTEncoder(
        img_size=16, patch_size=PATCH, hidden_size=24, num_layers=1, num_heads=2, mean=0.4, std=0.3
    )
    return MAE(
        encoder,
        decoder_dim=16,
        decoder_layers=1,
        decoder_heads=2,
        normalize_target=normalize_target,
    )


@pytest.mark.parametrize("normalize", [True, False])
def test_network_and_loss_equal_loops_with_gradients(normalize: bool) -> None:
    network = tiny(normalize).double()
    images = torch.rand(3, 1, 16, 16, dtype=torch.float64)
    images[0, :, :8, :8] = 0.5  # patches without any variance
    visible = torch.tensor([[4, 9, 11], [0, 1, 2], [3, 14, 15]])
    outputs = network(images, visible)
    reconstructed = outputs["reconstructed"]
    reconstructed.retain_grad()
    loss_function = MAELoss()
    loss = loss_function(outputs)
    loss.backward()
    prediction = reconstructed.detach().clone().requires_grad_()
    expected = mae.masked_loss(
        (images[:, 0] - 0.4) / 0.3, prediction, visible.tolist(), PATCH, normalize
    )
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(reconstructed.grad, prediction.grad)
    torch.testing.assert_close(loss_function.terms["reconstruction"], expected.detach())
    for image, seen in enumerate(visible):
        assert not reconstructed.grad[image, seen].any(), "visible patches have no part in the loss"  # type: ignore[index]


def test_by_hand_and_degenerate() -> None:
    loss = MaskedReconstructionLoss()
    reconstructed, target = (
        torch.zeros(1, 2, 3),
        torch.tensor([[[1.0, 2.0, 3.0], [torch.nan, torch.inf, 0.0]]]),
    )
    assert loss(reconstructed, target, torch.tensor([[True, False]])) == pytest.approx(
        (1 + 4 + 9) / 3
    )
    assert loss(reconstructed, target, torch.zeros(1, 2, dtype=torch.bool)) == 0
    half = loss(reconstructed.bfloat16(), target, torch.tensor([[True, False]]))
    assert half.dtype == torch.float32
