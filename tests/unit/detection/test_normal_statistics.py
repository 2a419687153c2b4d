# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Gaussians of tokens and of images against loops and scikit-learn, and the nearest neighbors against sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from monai_afire.detection.normal_statistics import ImageDensity, MemoryBank, TokenDensity


def random_features(*shape: int, seed: int = 0) -> torch.Tensor:
    """Correlated features about a mean that is far from 0."""
    rng = np.random.default_rng(seed)
    mix, place = rng.normal(size=(shape[-1], shape[-1])), 5 * rng.normal(size=shape[1:])
    return torch.tensor(rng.normal(size=shape) @ mix + place)


def token_density(tokens: torch.Tensor, shrinkage: float = 0.01) -> TokenDensity:
    density = TokenDensity(*tokens.shape[1:], shrinkage).double()
    density.fit(tokens)
    return density


def image_density(features: torch.Tensor) -> ImageDensity:
    density = ImageDensity(features.shape[1]).double()
    density.fit(features)
    return density


def memory_of(
    features: torch.Tensor, capacity: int = 20, num_neighbors: int = 2, dim: int = 4
) -> MemoryBank:
    memory = MemoryBank(features.shape[1], features.shape[2], dim, capacity, num_neighbors)
    memory.fit(features)
    return memory


def naive_distances(train: np.ndarray, test: np.ndarray, shrinkage: float) -> np.ndarray:
    n, num_tokens, dim = train.shape
    mean = [sum(train[i, j] for i in range(n)) / n for j in range(num_tokens)]
    covariance = np.zeros((dim, dim))
    for i in range(n):
        for j in range(num_tokens):
            covariance += np.outer(train[i, j] - mean[j], train[i, j] - mean[j]) / (
                (n - 1) * num_tokens
            )
    variance = sum(covariance[d, d] for d in range(dim)) / dim
    covariance = (1 - shrinkage) * covariance + shrinkage * variance * np.eye(dim)
    distances = np.empty(test.shape[:2])
    for i, j in np.ndindex(*distances.shape):
        difference = test[i, j] - mean[j]
        distances[i, j] = np.sqrt(difference @ np.linalg.solve(covariance, difference))
    return distances


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
@pytest.mark.parametrize("images", [12, 150])
def test_token_distances_equal_loops(shrinkage: float, images: int) -> None:
    train, test = random_features(images, 3, 4), random_features(5, 3, 4, seed=1)
    expected = naive_distances(train.numpy(), test.numpy(), shrinkage)
    np.testing.assert_allclose(token_density(train, shrinkage)(test), expected, rtol=1e-9)


def test_a_large_offset_keeps_the_digits() -> None:
    tokens = random_features(20, 3, 4)
    far, near = token_density(tokens + 1e6), token_density(tokens)
    torch.testing.assert_close(far.precision, near.precision, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("images", "dim"), [(15, 6), (5, 12)])
def test_image_covariance_equals_scikit_learns(images: int, dim: int) -> None:
    features, new = random_features(images, dim), random_features(4, dim, seed=1)
    density, reference = image_density(features), LedoitWolf().fit(features.numpy())
    np.testing.assert_allclose(density.mean, reference.location_)
    np.testing.assert_allclose(np.linalg.inv(density.precision), reference.covariance_)
    expected = np.sqrt(reference.mahalanobis(new.numpy()))
    np.testing.assert_allclose(density(new), expected, rtol=1e-9)


def test_held_out_distances_are_those_to_the_other_half() -> None:
    features = random_features(13, 6)
    even, odd = features[::2], features[1::2]
    found = ImageDensity.held_out_distances(features)
    torch.testing.assert_close(found[::2], image_density(odd)(even))
    torch.testing.assert_close(found[1::2], image_density(even)(odd))
    assert found.mean() > image_density(features)(features).mean()


def test_neighbors_equal_those_found_by_sorting() -> None:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(11, 3, 5, generator=generator) * torch.tensor([1.0, 5.0, 0.2, 1.0, 30.0])
    new = torch.randn(4, 3, 5, generator=generator) * 3
    distances = memory_of(normal, dim=2)(new)
    values = normal.double().numpy()
    deviations = (values - values.mean(0)).reshape(-1, 5)
    _, singular, directions = np.linalg.svd(deviations, full_matrices=False)
    scale = np.sqrt((singular[:2] ** 2 / len(deviations)).mean())
    for i in range(4):
        for j in range(3):
            differences = (new[i, j].double().numpy() - values[:, j]) @ directions[:2].T / scale
            nearest = np.sort(np.linalg.norm(differences, axis=-1))[:2]
            assert float(distances[i, j]) == pytest.approx(nearest.mean(), rel=2e-3, abs=2e-3)


def test_an_image_is_no_neighbor_of_its_own() -> None:
    normal = torch.randn(10, 2, 4)
    memory = memory_of(normal)
    without_first = MemoryBank(2, 4, 4, 20, 2)
    without_first.load_state_dict(memory.state_dict())
    without_first.references[0] = torch.inf
    found = memory(normal, torch.arange(10))
    assert (memory(normal) < found).all()
    torch.testing.assert_close(found[0], without_first(normal)[0])


def test_of_more_images_than_fit_evenly_spread_ones_are_kept() -> None:
    normal = torch.randn(15, 2, 4)
    memory = memory_of(normal, capacity=6)
    assert memory.num_images == 6
    distances, without = memory(normal), memory(normal, torch.arange(15))
    known = (distances < without).all(1).nonzero().flatten()
    assert known.tolist() == [0, 2, 5, 7, 10, 12]


def test_constant_features_do_not_divide_by_zero() -> None:
    normal = torch.randn(8, 2, 4)
    normal[..., 1] = 3.0
    assert memory_of(normal)(torch.randn(3, 2, 4)).isfinite().all()


KINDS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "tokens": (lambda: TokenDensity(2, 4), (2, 4)),
    "images": (lambda: ImageDensity(4), (4,)),
    "neighbors": (lambda: MemoryBank(2, 4, 4, 20, 2), (2, 4)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_travel_in_the_state_dict(kind: str) -> None:
    make, shape = KINDS[kind]
    statistics, other, new = make(), make(), torch.randn(3, *shape)
    with pytest.raises(RuntimeError, match="fit"):
        other(new)
    statistics.fit(torch.randn(9, *shape))
    statistics.fit(torch.randn(8, *shape))  # a second fit replaces the first
    other.load_state_dict(statistics.state_dict())
    torch.testing.assert_close(other(new), statistics(new))
    assert other(new.bfloat16()).dtype == torch.float32
    assert other.num_images == 8


@pytest.mark.parametrize("kind", KINDS)
def test_too_few_and_equal_images_are_refused(kind: str) -> None:
    make, shape = KINDS[kind]
    with pytest.raises(RuntimeError, match="1 normal image"):
        make().fit(torch.randn(1, *shape))
    if kind != "neighbors":
        with pytest.raises(RuntimeError, match="singular"):
            make().fit(torch.ones(5, *shape))
