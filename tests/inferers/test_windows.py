# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Volumes larger than the network's input, against a loop over windows written out."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from torch import nn

from monai_afire.inferers import AutocastInferer, WindowInferer, network_inferer
from monai_afire.transforms import fit_images, image_loader

SIDES = (4, 6, 4)


class PlaceNetwork(nn.Module):
    """Two channels that depend on the place within the window; every call is counted, and no other size taken."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.randn(2, 1, *SIDES, generator=torch.Generator().manual_seed(0))
        self.windows = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[2:] == SIDES
        self.windows += len(x)
        return (x * self.weight[:, 0]).tanh() + x.mean((2, 3, 4), keepdim=True)


def volume(*sides: int, batch: int = 1) -> torch.Tensor:
    return torch.rand(batch, 1, *sides, generator=torch.Generator().manual_seed(1))


def bell(side: int) -> list[float]:
    return [math.exp(-(((place - (side - 1) / 2) / (0.125 * side)) ** 2) / 2) for place in range(side)]


def starts(side: int, window: int, overlap: float) -> list[int]:
    step = max(1, int(window * (1 - overlap)))
    return sorted({min(start, side - window) for start in range(0, side - window + step, step)})


def naive(image: torch.Tensor, network: PlaceNetwork, overlap: float) -> torch.Tensor:
    """One window after the other, voxel by voxel."""
    sides = image.shape[2:]
    total, weights = torch.zeros(2, *sides, dtype=torch.float64), torch.zeros(sides, dtype=torch.float64)
    bells = [bell(side) for side in SIDES]
    corners = itertools.product(*(starts(side, window, overlap) for side, window in zip(sides, SIDES, strict=True)))
    for x, y, z in corners:
        with torch.no_grad():
            output = network(image[:, :, x : x + SIDES[0], y : y + SIDES[1], z : z + SIDES[2]])[0].double()
        for i, j, k in itertools.product(*(range(side) for side in SIDES)):
            # MONAI gives no voxel less than a thousandth, so that each has some weight
            weight = max(bells[0][i] * bells[1][j] * bells[2][k], 1e-3)
            total[:, x + i, y + j, z + k] += weight * output[:, i, j, k]
            weights[x + i, y + j, z + k] += weight
    return total / weights


@pytest.mark.parametrize("sides", [(8, 12, 8), (9, 7, 5), (4, 6, 11), (5, 6, 4)])
@pytest.mark.parametrize(("overlap", "batch_size"), [(0.0, 1), (0.25, 3), (0.5, 100)])
def test_the_windows_are_those_of_a_loop(sides: tuple[int, ...], overlap: float, batch_size: int) -> None:
    image = volume(*sides)
    found = WindowInferer(SIDES, overlap, batch_size, enabled=False)(image, PlaceNetwork())
    assert found.shape == (1, 2, *sides)
    torch.testing.assert_close(found[0].double(), naive(image, PlaceNetwork(), overlap), rtol=0, atol=1e-5)


def test_an_image_of_one_window_is_as_without_windows_to_the_bit() -> None:
    image, network = volume(*SIDES, batch=2), PlaceNetwork()
    for enabled in (False, True):
        whole = AutocastInferer(enabled)(image, network)
        assert torch.equal(WindowInferer(SIDES, 0.5, 1, enabled)(image, network), whole)


def test_further_arguments_reach_the_network() -> None:
    def network(window: torch.Tensor, factor: float, shift: float = 0.0) -> torch.Tensor:
        return factor * window + shift

    for image in (volume(*SIDES), volume(8, 12, 8)):
        found = WindowInferer(SIDES, 0.25, 2, enabled=False)(image, network, 2.0, shift=1.0)
        torch.testing.assert_close(found, 2 * image + 1)


def test_twice_the_size_without_overlap_takes_eight_windows_and_each_is_as_alone() -> None:
    image, network = volume(8, 12, 8), PlaceNetwork()
    found = WindowInferer(SIDES, 0.0, 3, enabled=False)(image, network)
    assert network.windows == 8
    alone = network(image[:, :, 4:, :6, 4:])
    torch.testing.assert_close(found[:, :, 4:, :6, 4:], alone)


def test_bfloat16_stays_near() -> None:
    network = nn.Conv3d(1, 2, 3, padding=1)
    image = volume(9, 7, 5)
    with torch.no_grad():
        found, exact = (WindowInferer(SIDES, 0.5, 2, enabled)(image, network) for enabled in (True, False))
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("shape", [(3, 6, 4), (8, 5, 8), (8, 12)])
def test_what_no_window_fits_into_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"windows of \(4, 6, 4\) need images .* at least as large"):
        WindowInferer(SIDES)(volume(*shape), PlaceNetwork())


@pytest.mark.parametrize("overlap", [-0.1, 1.0, float("nan")])
def test_an_overlap_out_of_range_is_refused(overlap: float) -> None:
    with pytest.raises(ValueError, match="overlap must be in"):
        WindowInferer(SIDES, overlap)


def test_a_bundle_runs_windows_only_where_asked() -> None:
    assert type(network_inferer(False, size=16)) is AutocastInferer
    inferer = network_inferer(False, cover=True, size=[4, 6, 4], overlap=0.5, batch_size=2)
    assert isinstance(inferer, WindowInferer)
    assert (inferer.size, inferer.enabled, inferer.windows.sw_batch_size) == (SIDES, False, 2)


def load(path: Path, sides: tuple[int, ...]) -> dict[str, torch.Tensor]:
    values = np.random.default_rng(0).random(sides, dtype=np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([2.0, 2.0, 2.0, 1.0])), path)
    return image_loader("image", spatial_dims=3)({"image": str(path)})


def test_volumes_to_cover_are_padded_never_cropped(tmp_path: Path) -> None:
    small, large = load(tmp_path / "s.nii", (3, 4, 2)), load(tmp_path / "l.nii", (5, 9, 3))
    cover, crop = (fit_images("image", SIDES, 3, spacing=2.0, cover=cover) for cover in (True, False))
    # one that fits is the same, and lies in the same place
    padded, expected = cover(small)["image"], crop(small)["image"]
    assert torch.equal(padded, expected)
    torch.testing.assert_close(padded.affine, expected.affine)
    assert cover(large)["image"].shape == (1, 5, 9, 4)
    torch.testing.assert_close(cover(large)["image"][0, :, :, 0:3].as_tensor(), large["image"][0].as_tensor())
    finer = fit_images("image", SIDES, 3, spacing=1.0, cover=True)(large)["image"]
    assert finer.shape == (1, 9, 17, 5)
    with pytest.raises(ValueError, match="give spacing"):
        fit_images("image", SIDES, 3, cover=True)
