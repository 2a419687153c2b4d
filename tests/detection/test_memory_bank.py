# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Nearest normal neighbors against sorting by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monai_afire.detection.normal_statistics import NormalMemory


def fitted(
    features: torch.Tensor, capacity: int = 20, num_neighbors: int = 2, dim: int = 4
) -> NormalMemory:
    memory = NormalMemory(features.shape[1], features.shape[2], dim, capacity, num_neighbors)
    for batch in features.split(4):
        memory.update(batch)
    memory.finalize()
    return memory


@pytest.mark.parametrize("seed", range(3))
def test_distances_equal_those_found_by_sorting(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(11, 3, 5, generator=generator) * torch.tensor([1.0, 5.0, 0.2, 1.0, 30.0])
    new = torch.randn(4, 3, 5, generator=generator) * 3
    distances = fitted(normal, dim=2)(new)
    for i in range(4):
        for j in range(3):
            values = normal.double().numpy()
            deviations = (values - values.mean(0)).reshape(-1, 5)
            _, singular, directions = np.linalg.svd(deviations, full_matrices=False)
            scale = np.sqrt((singular[:2] ** 2 / len(deviations)).mean())
            differences = (new[i, j].double().numpy() - values[:, j]) @ directions[:2].T / scale
            nearest = np.sort(np.linalg.norm(differences, axis=-1))[:2]
            assert float(distances[i, j]) == pytest.approx(nearest.mean(), rel=2e-3, abs=2e-3)


def test_an_images_own_features_and_copies_do_not_count() -> None:
    normal = torch.randn(10, 2, 4)
    normal[5:] = normal[:5] + 0.01  # copies
    owners = torch.arange(5).repeat(2)
    memory = NormalMemory(2, 4, 4, 20, 2)
    for batch, numbers in zip(normal.split(3), owners.split(3), strict=True):
        memory.update(batch, numbers)
    memory.finalize()
    assert (memory(normal) < memory(normal, owners)).all()
    without_first = NormalMemory(2, 4, 4, 20, 2)
    without_first.load_state_dict(memory.state_dict())
    without_first.references[[0, 5]] = torch.inf
    torch.testing.assert_close(memory(normal, owners)[[0, 5]], without_first(normal)[[0, 5]])


def test_without_numbers_each_image_is_its_own() -> None:
    normal = torch.randn(9, 2, 4)
    memory = fitted(normal)
    assert (memory(normal)[:, 0] < memory(normal, torch.arange(9))[:, 0]).all()


def test_of_more_images_than_fit_evenly_spread_ones_are_kept() -> None:
    normal = torch.randn(15, 2, 4)
    memory = fitted(normal, capacity=6)
    assert memory.num_images == 6
    assert memory.owners[:6].tolist() == [0, 2, 5, 7, 10, 12]
    distances = memory(normal)
    for number in (0, 2, 5):
        assert (distances[number] < memory(normal, torch.arange(15))[number]).all()


def test_copies_take_no_room_from_other_images() -> None:
    """Each batch is of five images, then of their copies; every fifth row is of the first image."""
    normal, owners = torch.randn(20, 2, 4), torch.arange(5).repeat(4)
    memory = NormalMemory(2, 4, 4, capacity=4, num_neighbors=3)
    memory.update(normal, owners)
    memory.finalize()
    assert memory.owners.unique().tolist() == [0, 1, 2, 3]
    assert memory(normal, owners).isfinite().all()


def test_copies_of_too_few_images_are_refused() -> None:
    memory = NormalMemory(2, 4, 4, 20, 2)
    memory.update(torch.randn(8, 2, 4), torch.arange(2).repeat(4))
    with pytest.raises(RuntimeError, match="2 normal image"):
        memory.finalize()


def test_statistics_travel_in_the_state_dict_and_an_unfitted_memory_refuses() -> None:
    memory, new = fitted(torch.randn(8, 2, 4)), torch.randn(3, 2, 4)
    other = NormalMemory(2, 4, 4, 20, 2)
    other.load_state_dict(memory.state_dict())
    torch.testing.assert_close(other(new), memory(new))
    with pytest.raises(RuntimeError, match="not been fitted"):
        NormalMemory(2, 4, 4, 20, 2)(new)


def test_a_second_fit_replaces_the_first() -> None:
    memory, other = fitted(torch.randn(12, 2, 4)), torch.randn(8, 2, 4)
    for batch in other.split(3):
        memory.update(batch)
    memory.finalize()
    torch.testing.assert_close(memory(other[:2]), fitted(other)(other[:2]))


def test_constant_features_do_not_divide_by_zero() -> None:
    normal = torch.randn(8, 2, 4)
    normal[..., 1] = 3.0
    assert fitted(normal)(torch.randn(3, 2, 4)).isfinite().all()


def test_half_precision_input_gives_float32() -> None:
    assert fitted(torch.randn(8, 2, 4))(torch.randn(3, 2, 4).bfloat16()).dtype == torch.float32


def test_a_memory_in_double_precision_measures_the_same() -> None:
    memory, new = fitted(torch.randn(8, 2, 4)), torch.randn(3, 2, 4)
    expected = memory(new)
    torch.testing.assert_close(memory.double()(new.double()), expected.double())


def test_wrong_input_is_named() -> None:
    memory = NormalMemory(2, 4, 4, 20, 2)
    with pytest.raises(ValueError, match="instead of"):
        memory.update(torch.rand(3, 4, 2))
    with pytest.raises(ValueError, match="NaN"):
        memory.update(torch.full((3, 2, 4), torch.nan))
    memory.update(torch.rand(2, 2, 4))
    with pytest.raises(RuntimeError, match="2 normal image"):
        memory.finalize()
