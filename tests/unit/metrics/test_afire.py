# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe's figures of pre-training against loops, and what an ablation leaves of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.metrics import position_accuracy
from monai_afire.metrics.afire import afire_metrics
from monai_afire.networks import AFiRe
from unit.tiny_networks import tiny_vit


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


def test_position_accuracy_with_prototypes_of_each_image() -> None:
    """What the network gives without its bank: every image has its own L prototypes, shared by its N variants."""
    own = torch.tensor(random_probabilities(0, 3, 5, 4))
    outputs = {"q": own.unsqueeze(1).repeat(1, 2, 1, 1), "prototypes": own}
    outputs["abnormal"] = torch.zeros(3, 2, 5, dtype=torch.bool)
    alone = [{name: each[i : i + 1] for name, each in outputs.items()} for i in range(3)]
    expected = [
        position_accuracy(each["q"], each["prototypes"][0], ~each["abnormal"]) for each in alone
    ]
    found = afire_metrics(outputs)["position_accuracy"]
    assert float(found) == pytest.approx(float(sum(expected)) / 3)


@pytest.mark.parametrize(
    ("options", "defined"),
    [
        ({"contrast": False}, {"restoration_gain"}),
        ({"restore": False, "use_prototypes": False}, {"position_accuracy"}),
        ({"contrast_space": "features"}, {"restoration_gain", "position_accuracy"}),
    ],
)
def test_metrics_of_every_ablation(options: dict[str, Any], defined: set[str]) -> None:
    network = AFiRe(tiny_vit(img_size=16), 6, 8, 8, 1, 2, **options).eval()
    image, mask = torch.rand(3, 1, 16, 16), torch.zeros(3, 2, 1, 16, 16)
    mask[..., :8, :8] = 0.5
    with torch.no_grad():
        outputs = network(image, (image.unsqueeze(1) + mask).clamp(0, 1), mask)
    similarity = "cosine" if options.get("contrast_space") == "features" else "paper"
    metrics = afire_metrics(outputs, similarity)
    assert metrics.keys() == defined
    assert all(torch.isfinite(value) for value in metrics.values())
