# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The masked autoencoder's loss against loops over patches and pixels: values, gradients, the network's target."""

from __future__ import annotations

import pytest
import torch
from naive import mae

from monai_afire.losses import MAELoss
from monai_afire.networks import MAE
from unit.tiny_networks import tiny_vit

PATCH = 4


@pytest.mark.parametrize("normalize", [True, False])
def test_network_and_loss_equal_loops_with_gradients(normalize: bool) -> None:
    encoder = tiny_vit(img_size=16, patch_size=PATCH, mean=0.4, std=0.3)
    network = MAE(encoder, 16, 1, 2, normalize_target=normalize).double()
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
