# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""L2 normalization and spherical k-means."""

from __future__ import annotations

import pytest
import torch

from monai_afire.apps.studies.features.similarity import (
    l2_normalize,
    nearest_center,
    spherical_kmeans,
)


def test_equal_features_of_any_length_are_equal() -> None:
    features = torch.tensor([[3.0, 4.0, 0.1]]) * torch.tensor([[1.0], [1e-6], [1e6]])
    normalized = l2_normalize(features)
    assert normalized.dtype == torch.float64
    torch.testing.assert_close(
        normalized.norm(dim=1), torch.ones(3, dtype=torch.float64), atol=1e-7, rtol=0
    )
    assert (1 - normalized @ normalized.T).abs().max() < 1e-6
    assert l2_normalize(torch.zeros(2, 3)).eq(0).all()


@pytest.mark.parametrize("seed", range(3))
def test_kmeans_finds_clear_clusters_whatever_their_length(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(6, (300,), generator=generator)
    points = torch.eye(6, 10)[truth] + 0.05 * torch.randn(300, 10, generator=generator)
    points = points * (0.1 + torch.rand(300, 1, generator=generator))
    centers = spherical_kmeans(points, 6, seed)
    label = nearest_center(points, centers)
    assert len({(int(a), int(b)) for a, b in zip(truth, label, strict=True)}) == 6
    torch.testing.assert_close(centers.norm(dim=1), torch.ones(6))
    torch.testing.assert_close(centers, spherical_kmeans(points, 6, seed))


def test_kmeans_of_equal_points_and_errors() -> None:
    assert spherical_kmeans(torch.ones(4, 3), 6).isfinite().all()
    assert spherical_kmeans(torch.zeros(4, 3), 2).isfinite().all()
    with pytest.raises(ValueError, match="finite features"):
        spherical_kmeans(torch.full((3, 2), torch.nan), 2)
    with pytest.raises(ValueError, match="num_clusters"):
        spherical_kmeans(torch.rand(3, 2), 0)
