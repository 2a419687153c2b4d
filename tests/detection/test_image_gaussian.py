# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The Gaussian of whole images against loops and scikit-learn, saved and loaded, and misused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from monai_afire.detection.normal_statistics import ImageDensity


def random_features(images: int = 15, dim: int = 6, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.tensor(
        rng.normal(size=(images, dim)) @ rng.normal(size=(dim, dim)) + 5 * rng.normal(size=dim)
    )


def fitted(features: torch.Tensor, sizes: tuple[int, ...] | None = None) -> ImageDensity:
    density = ImageDensity(features.shape[1]).double()
    for batch in features.split(list(sizes) if sizes else len(features)):
        density.update(batch)
    density.finalize()
    return density


def naive_shrinkage(features: np.ndarray) -> float:
    """Ledoit and Wolf's λ with a (D, D) matrix per sample."""
    centered = features - features.mean(0)
    sample = sum(np.outer(x, x) for x in centered) / len(centered)
    target = np.trace(sample) / len(sample) * np.eye(len(sample))
    noise = sum(((np.outer(x, x) - sample) ** 2).sum() for x in centered) / len(centered) ** 2
    return min(1.0, noise / ((sample - target) ** 2).sum())


@pytest.mark.parametrize(("images", "dim"), [(15, 6), (5, 12), (200, 3)])
def test_covariance_equals_loops_and_scikit_learn(images: int, dim: int) -> None:
    features = random_features(images, dim)
    density, reference = fitted(features), LedoitWolf().fit(features.numpy())
    assert reference.shrinkage_ == pytest.approx(naive_shrinkage(features.numpy()))
    np.testing.assert_allclose(density.mean, reference.location_)
    np.testing.assert_allclose(np.linalg.inv(density.precision), reference.covariance_)


def test_distances_equal_solving_for_each_image() -> None:
    features, new = random_features(), random_features(4, seed=1)
    reference = LedoitWolf().fit(features.numpy())
    mean, covariance = (
        torch.from_numpy(reference.location_),
        torch.from_numpy(reference.covariance_),
    )
    expected = [float(((x - mean) @ torch.linalg.solve(covariance, x - mean)).sqrt()) for x in new]
    for sizes in (None, (1, 4, 10)):
        np.testing.assert_allclose(fitted(features, sizes)(new), expected, rtol=1e-9)


def test_held_out_distances_are_those_to_the_other_half() -> None:
    features = random_features(12)
    # the second six are copies of the first
    owners = torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])
    density = ImageDensity(6).double()
    density.update(features)
    even = owners % 2 == 0
    expected = torch.zeros(12)
    expected[even], expected[~even] = (
        fitted(features[chosen])(features[~chosen]).float() for chosen in (~even, even)
    )
    torch.testing.assert_close(
        density.held_out_distances(owners).float(), expected, rtol=1e-4, atol=1e-4
    )


def test_held_out_distances_are_larger_than_those_of_known_images() -> None:
    density, features = (
        ImageDensity(20),
        torch.randn(60, 20, generator=torch.Generator().manual_seed(0)),
    )
    density.update(features)
    held_out = density.held_out_distances(torch.arange(60))
    density.finalize()
    assert held_out.mean() > density(features).mean()


def test_statistics_travel_in_the_state_dict_and_an_unfitted_density_refuses() -> None:
    density, new = fitted(random_features()), random_features(3, seed=2)
    other = ImageDensity(6).double()
    with pytest.raises(RuntimeError, match="not been fitted"):
        other(new)
    other.load_state_dict(density.state_dict())
    torch.testing.assert_close(other(new), density(new))


def test_half_precision_gives_float32() -> None:
    density = fitted(random_features()).float()
    assert density(random_features(3).bfloat16()).dtype == torch.float32


def test_wrong_input_is_named() -> None:
    density = ImageDensity(3)
    with pytest.raises(ValueError, match="instead of"):
        density.update(torch.rand(2, 4))
    with pytest.raises(ValueError, match="NaN"):
        density.update(torch.full((2, 3), torch.nan))
    with pytest.raises(RuntimeError, match="at least 2"):
        density.finalize()
    density.update(torch.ones(4, 3))
    with pytest.raises(RuntimeError, match="collapsed"):
        density.finalize()
