# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE's losses against slow references: values, gradients, the places of the matching target, degenerate batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from naive import ace

from monai_afire.losses import (
    ACELoss,
    MatchingLoss,
    composition_alpha,
    decomposition_alpha,
    matching_target,
)
from monai_afire.networks import patchify
from monai_afire.transforms import GridCropPair


def random_offsets(
    seed: int, crops: tuple[int, int], images: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Any offsets at which crops may lie, odd differences and empty overlaps included."""
    generator = torch.Generator().manual_seed(seed)
    offset_1, offset_2 = torch.randint(0, crops[1] + 2, (2, images, 2), generator=generator)
    return offset_1, offset_2


def random_outputs(
    seed: int, cells: int = 4, images: int = 3, width: int = 5
) -> dict[str, torch.Tensor]:
    """What the network returns, at double precision, with logits that are leaves of the graph."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tokens = cells**2
    offset_1, offset_2 = random_offsets(seed, (cells, 2 * cells), images)
    return {
        "offset_1": offset_1,
        "offset_2": offset_2,
        "composition_logits": (4 * normal(images, tokens, tokens // 4)).requires_grad_(),
        "decomposition_logits": (4 * normal(images, tokens, tokens * 4)).requires_grad_(),
        "global_student": normal(images, 2, width).log_softmax(-1).requires_grad_(),
        "global_teacher": normal(images, 2, width).softmax(-1),
    }


def naive_matching(logits: torch.Tensor, target: torch.Tensor, alpha: float) -> torch.Tensor:
    """Eq. 5, two-sided, from logits: sum over the student's patches, mean over the teacher's."""
    terms = []
    for index in np.ndindex(*logits.shape):
        x, hit = logits[index], float(target[index])
        terms.append(
            -alpha * hit * ace.log_sigmoid(x) - (1 - alpha) * (1 - hit) * ace.log_sigmoid(-x)
        )
    return ace.sum_of(terms) / (logits.shape[0] * logits.shape[1])


@pytest.mark.parametrize("cells", [2, 6])
@pytest.mark.parametrize(("sigma", "kernel_size"), [(1.0, 3), (0.7, 1), (2.0, 5)])
def test_target_equals_loops_over_patches(cells: int, sigma: float, kernel_size: int) -> None:
    crops = (cells, 2 * cells)
    offsets = random_offsets(0, crops)
    composition, decomposition = ace.matching_targets(*offsets, crops, kernel_size, sigma)
    for patch_cells, expected in ((2, composition.mT), (1, decomposition)):
        target = matching_target(
            *offsets, crops, patch_cells, sigma, kernel_size, dtype=torch.float64
        )
        torch.testing.assert_close(target, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_target_of_coordinate_images(seed: int) -> None:
    """Cut the pair out of an image whose pixels name their place: the target is the Gaussian of true distances."""
    cell, cells = 2, 4
    grid = 3 * cells
    axes = torch.meshgrid(*[torch.arange(grid * cell, dtype=torch.float64)] * 2, indexing="ij")
    crop = GridCropPair(
        grid, cell, (cells, 2 * cells), None, jitter=False, align=2
    ).set_random_state(seed)
    crop_1, crop_2, *offsets = crop(torch.stack(axes))
    offset_1, offset_2 = (torch.as_tensor(offset)[None] for offset in offsets)
    for patch_cells in (1, 2):
        places = [
            patchify(image[None], patch_cells * cell)[0].unflatten(-1, (2, -1)).mean(-1)
            for image in (crop_1, crop_2)
        ]
        steps = (places[0].unsqueeze(1) - places[1].unsqueeze(0)) / (patch_cells * cell)
        expected = torch.exp(-steps.square().sum(-1) / 2) * (steps.abs() <= 1).all(-1)
        target = matching_target(
            offset_1, offset_2, (cells, 2 * cells), patch_cells, dtype=torch.float64
        )[0]
        torch.testing.assert_close(target, expected, rtol=0, atol=1e-12)
        # an aligned pair that overlaps has whole patches in common
        assert (target == 1).sum() == (steps == 0).all(-1).sum() > 0


def test_extreme_logits_are_finite() -> None:
    logits = torch.tensor([[[-1e4, 1e4, 0.0, 1e4, -1e4]]]).half().requires_grad_()
    loss = MatchingLoss(0.99)(logits, torch.tensor([[[0.0, 1.0, 0.5, 0.0, 1.0]]]))
    loss.backward()
    assert loss.item() == pytest.approx(0.01 * 1e4 + 0.99 * 1e4 + math.log(2) / 2, rel=5e-3)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(("cells", "images"), [(4, 3), (2, 1)])
def test_whole_loss_equals_loops(cells: int, images: int) -> None:
    outputs = random_outputs(1, cells, images)
    loss = ACELoss(0.3, 2.0, 0.5, 0.6, 0.7, sigma=0.5, kernel_size=5)
    value = loss(outputs)
    composition, decomposition = ace.matching_targets(
        outputs["offset_1"], outputs["offset_2"], (cells, 2 * cells), 5, 0.5
    )
    crossed = outputs["global_teacher"].flip(1)
    terms = (
        -(crossed * outputs["global_student"]).sum() / (2 * images),
        naive_matching(outputs["composition_logits"], composition, 0.6),
        naive_matching(outputs["decomposition_logits"], decomposition, 0.7),
    )
    expected = ace.total_loss(*terms, weights=(0.3, 2.0, 0.5))
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-9)
    leaves = [
        outputs[name] for name in ("global_student", "composition_logits", "decomposition_logits")
    ]
    gradients = [torch.autograd.grad(x, leaves) for x in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-9)
    names = ("total", "global", "composition", "decomposition")
    assert list(loss.terms) == list(names)
    for name, term in zip(names, (expected, *terms), strict=True):
        torch.testing.assert_close(loss.terms[name], term.detach(), rtol=0, atol=1e-9)
        assert not loss.terms[name].requires_grad


@pytest.mark.parametrize("pairs", [1, 2500])
def test_a_few_images_at_a_time_are_the_same(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 pairs of an image in the decomposition: by one, and by two."""
    names = ("composition_logits", "decomposition_logits")
    found = []
    for limit in (10**9, pairs):
        monkeypatch.setattr("monai_afire.losses.ace.PAIRS_AT_ONCE", limit)
        outputs, loss = random_outputs(1, cells=4, images=5), ACELoss(0)
        gradients = torch.autograd.grad(loss(outputs), [outputs[name] for name in names])
        found.append([loss.terms["composition"], loss.terms["decomposition"], *gradients])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="target"):
        MatchingLoss()(torch.zeros(2, 3, 4), torch.zeros(2, 4, 3))
    outputs = random_outputs(0) | {"composition_logits": torch.zeros(3, 15, 4)}
    with pytest.raises(ValueError, match="15"):
        ACELoss()(outputs)


def counted(grid: int, patch_cells: int, alpha: float) -> float:
    """Negatives to positives of the loss for the teacher's patches that have most neighbors, from a target."""
    # the small crop in the middle of the large one
    offset = torch.full((1, 2), (grid // 4) * 2)
    target = matching_target(
        offset, torch.zeros_like(offset), (grid, 2 * grid), patch_cells, dtype=torch.float64
    )
    # teacher's patches in rows: those of the large crop in the composition, of the small one in the decomposition
    rows = target[0].mT if patch_cells == 2 else target[0]
    inside = rows[rows.sum(1).isclose(rows.sum(1).max())]
    return float(((1 - alpha) * (1 - inside).sum(1) / (alpha * inside.sum(1))).mean())


@pytest.mark.parametrize("grid", [28, 8])
def test_alpha_keeps_the_papers_balance(grid: int) -> None:
    assert [round(counted(14, 2, 0.9), 1), round(counted(14, 1, 0.99), 1)] == [1.0, 1.6]
    assert counted(grid, 2, composition_alpha(grid)) == pytest.approx(counted(14, 2, 0.9))
    assert counted(grid, 1, decomposition_alpha(grid)) == pytest.approx(counted(14, 1, 0.99))
