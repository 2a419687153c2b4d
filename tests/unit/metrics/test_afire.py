# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe's figures of pre-training against loops, and what an ablation leaves of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.metrics import position_accuracy
from monai_afire.metrics.afire import afire_metrics
from monai_afire.networks import AFiRe, ViTEncoder


def random_probabilities(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1])


@pytest.mark.parametrize("similarity", ["paper", "teacher_ce"])
def test_position_accuracy_equals_loops(similarity: str) -> None:
    for seed in range(3):
        q, c = random_probabilities(seed, 3, 2, 5, 4), random_probabilities(seed + 10, 5, 4)
        q = 0.5 * q + 0.5 * c
        normal = np.random.default_rng(seed).random((3, 2, 5)) < 0.7
        right = [
            int(np.argmin([afire.cross_entropy(q[i, n, j], row, similarity) for row in c])) == j
            for i, n, j in np.argwhere(normal)
        ]
        accuracy = position_accuracy(
            torch.tensor(q), torch.tensor(c), torch.tensor(normal), similarity
        )
        assert accuracy.item() == pytest.approx(sum(right) / len(right))
        assert 0 < accuracy < 1


@pytest.mark.parametrize("images", [1, 2, 3])
def test_position_accuracy_with_prototypes_of_each_image(images: int) -> None:
    """What the network gives without its bank: every image has its own L prototypes, shared by its N variants."""
    own = torch.tensor(random_probabilities(0, images, 5, 4))
    q = own.unsqueeze(1).repeat(1, 2, 1, 1)
    normal = torch.ones(images, 2, 5, dtype=torch.bool)
    expected = [position_accuracy(q[i], own[i], normal[i]).item() for i in range(images)]
    assert position_accuracy(q, own.unsqueeze(1), normal).item() == pytest.approx(
        sum(expected) / images
    )


@pytest.mark.parametrize(
    ("options", "defined"),
    [
        ({}, (True, True)),
        ({"contrast": False}, (True, False)),
        ({"restore": False}, (False, True)),
        ({"use_prototypes": False}, (True, True)),
        ({"contrast_space": "features"}, (True, True)),
    ],
)
def test_metrics_of_every_ablation(
    options: dict[str, bool | str], defined: tuple[bool, bool]
) -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=8, num_layers=1, num_heads=2)
    sizes = {
        "num_clusters": 6,
        "head_dim": 8,
        "decoder_dim": 8,
        "decoder_layers": 1,
        "decoder_heads": 2,
    }
    network = AFiRe(encoder, **sizes, **options).eval()  # type: ignore[arg-type]
    image, mask = torch.rand(3, 1, 16, 16), torch.zeros(3, 2, 1, 16, 16)
    mask[..., :8, :8] = 0.5
    with torch.no_grad():
        outputs = network(image, (image.unsqueeze(1) + mask).clamp(0, 1), mask)
    similarity = "cosine" if options.get("contrast_space") == "features" else "paper"
    metrics = afire_metrics(outputs, similarity)
    assert ("restoration_gain" in metrics, "position_accuracy" in metrics) == defined
    assert all(torch.isfinite(value) for value in metrics.values())
    assert 0 <= metrics.get("position_accuracy", 0) <= 1
