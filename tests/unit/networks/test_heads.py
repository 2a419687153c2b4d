# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DINO's head against loops over embeddings and prototypes."""

from __future__ import annotations

import torch
from naive import dino

from monai_afire.networks import DistillationHead


def test_batch_normalized_head_equals_loops() -> None:
    head = DistillationHead(7, num_prototypes=4, hidden_dim=6, bottleneck_dim=3, batch_norm=True)
    head.double()
    for parameter in head.parameters():
        parameter.data += torch.randn_like(parameter)
    embeddings = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    scores = head(embeddings).flatten(0, 1)
    expected = dino.batch_normalized_head_scores(head.state_dict(), embeddings.flatten(0, 1))
    torch.testing.assert_close(scores, expected)
    factors = torch.randn_like(scores)
    gradients = [
        torch.autograd.grad((of * factors).sum(), embeddings)[0] for of in (scores, expected)
    ]
    torch.testing.assert_close(*gradients)
