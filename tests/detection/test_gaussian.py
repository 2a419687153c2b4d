# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The token density against loops, in any order of batches, saved and loaded, and misused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monai_afire.detection.normal_statistics import TokenDensity


def random_tokens(
    images: int = 12, num_tokens: int = 3, dim: int = 4, seed: int = 0
) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    mix, place = rng.normal(size=(dim, dim)), 5 * rng.normal(size=(num_tokens, dim))
    return torch.tensor(rng.normal(size=(images, num_tokens, dim)) @ mix + place)


def fitted(
    tokens: torch.Tensor, sizes: tuple[int, ...] | None = None, shrinkage: float = 0.01
) -> TokenDensity:
    density = TokenDensity(*tokens.shape[1:], shrinkage).double()
    for batch in tokens.split(list(sizes) if sizes else tokens.shape[0]):
        density.update(batch)
    density.finalize()
    return density


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


@pytest.mark.parametrize("shrinkage", [0.0, 0.01, 0.3, 1.0])
def test_distances_equal_loops(shrinkage: float) -> None:
    train, test = random_tokens(), random_tokens(5, seed=1)
    expected = naive_distances(train.numpy(), test.numpy(), shrinkage)
    np.testing.assert_allclose(fitted(train, shrinkage=shrinkage)(test), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted(train, (1, 4, 7), shrinkage)(test), expected, rtol=1e-9)


def test_distances_by_hand() -> None:
    # variances 4/3 and 16/3
    tokens = torch.tensor([[[1.0, 2.0]], [[-1.0, 2.0]], [[1.0, -2.0]], [[-1.0, -2.0]]])
    density = fitted(tokens, shrinkage=0.0)
    distances = density(
        torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]], [[0.0, 2.0]]], dtype=torch.float64)
    )
    assert distances.flatten().tolist() == pytest.approx([0.0, 3**0.5, 0.75**0.5])


def test_order_of_the_batches_and_a_large_offset_do_not_matter() -> None:
    tokens = random_tokens(20)
    one = fitted(tokens)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    other = fitted(tokens[order], (1, 1, 5, 13))
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.precision, other.precision, rtol=1e-10, atol=1e-10)
    far = fitted(tokens + 1e6, (3,) * 6 + (2,))  # a plain sum of squares would keep 4 digits
    torch.testing.assert_close(far.precision, one.precision, rtol=1e-6, atol=1e-6)


def test_state_dict_carries_the_fit_and_float32_keeps_it() -> None:
    density, test = fitted(random_tokens()), random_tokens(5, seed=1)
    state = density.state_dict()
    assert sorted(state) == ["mean", "num_images", "precision"]
    loaded = TokenDensity(3, 4)
    loaded.load_state_dict(state)
    assert loaded.num_images == 12
    torch.testing.assert_close(loaded(test).double(), density(test), rtol=1e-4, atol=1e-4)
    half = loaded(test.bfloat16())
    assert half.dtype == torch.float32


def test_half_precision_module_is_fitted_in_float64() -> None:
    tokens = random_tokens(20).float()
    density = TokenDensity(3, 4, shrinkage=0.01)
    density.update(tokens[:10])
    density.half().float()
    density.update(tokens[10:])
    density.finalize()
    torch.testing.assert_close(
        density.precision.double(), fitted(tokens).precision, rtol=1e-6, atol=1e-6
    )


def test_more_images_can_follow_and_reset_forgets() -> None:
    tokens, other = random_tokens(10), random_tokens(6, seed=3)
    density = fitted(tokens[:4])
    density.update(tokens[4:])
    density.update(tokens[:0])
    density.finalize()
    torch.testing.assert_close(density.precision, fitted(tokens).precision)
    density.reset()
    density.update(other)
    density.finalize()
    torch.testing.assert_close(density.precision, fitted(other).precision)
    assert density.num_images == 6


def test_abnormal_tokens_are_farther_and_a_fit_changes_no_input() -> None:
    tokens = random_tokens(50)
    before = tokens.clone()
    density = fitted(tokens)
    shifted = tokens.clone()
    shifted[:, 1] += 30
    assert torch.equal(tokens, before)
    distances, normal = density(shifted), density(tokens)
    assert (distances[:, 1] > normal[:, 1].max()).all()
    assert torch.equal(distances[:, [0, 2]], normal[:, [0, 2]])
    # of the training images: the mean of d² is D (n - 1) / n, up to the shrinkage
    assert fitted(tokens, shrinkage=0.0)(tokens).square().mean().item() == pytest.approx(
        4 * 49 / 50, rel=1e-9
    )


def test_misuse() -> None:
    density = TokenDensity(3, 4)
    with pytest.raises(RuntimeError, match="not been fitted"):
        density(torch.zeros(1, 3, 4))
    with pytest.raises(RuntimeError, match="0 normal image"):
        density.finalize()
    for shape in ((2, 4, 4), (2, 3, 5), (3, 4)):
        with pytest.raises(ValueError, match="instead of"):
            density.update(torch.zeros(shape))
    bad = torch.zeros(3, 3, 4)
    bad[1, 0, 0], bad[2, 2, 3] = torch.nan, torch.inf
    with pytest.raises(ValueError, match=r"image\(s\) \[1, 2\]"):
        density.update(bad)
    density.update(torch.ones(5, 3, 4))
    with pytest.raises(RuntimeError, match="singular"):
        density.finalize()
