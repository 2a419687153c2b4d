# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""PEAC's losses against slow references: values, gradients, degenerate batches, and no waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from naive import peac
from torch._subclasses.fake_tensor import FakeTensorMode

from monai_afire.losses import AppearanceRestorationLoss, LocalConsistencyLoss, PEACLoss
from monai_afire.transforms import matching_patches

SEEDS = range(3)
GRIDS = [(3, 2), (1, 3)]  # B, cells per axis of a crop
H, P = 4, 5

Outputs = dict[str, torch.Tensor]


def random_outputs(
    seed: int, batch: int = 3, cells: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Outputs, torch.Tensor, torch.Tensor]:
    """What the network gives for random crops, and their offsets; some pairs do not overlap."""
    generator = torch.Generator().manual_seed(seed)
    patches = cells**2

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    offset_1, offset_2 = (
        torch.randint(0, cells + 1, (batch, 2), generator=generator) for _ in range(2)
    )
    outputs = {
        "order": torch.stack([torch.randperm(patches, generator=generator) for _ in range(batch)]),
        "shuffled": torch.rand(batch, generator=generator) < 0.5,
        "order_logits": normal(batch, patches, patches),
        "restored": normal(batch, patches, P),
        "target": normal(batch, patches, P),
        "matches_1": matching_patches(offset_1, offset_2, (cells, cells)),
        "matches_2": matching_patches(offset_2, offset_1, (cells, cells)),
    }
    for prefix in ("", "teacher_"):
        for crop in (1, 2):
            outputs[f"{prefix}global_{crop}"] = normal(batch, H)
            outputs[f"{prefix}local_{crop}"] = normal(batch, patches, H)
    return outputs, offset_1, offset_2


def with_gradient(outputs: Mapping[str, torch.Tensor]) -> tuple[Outputs, list[str]]:
    """The same with the student's tensors as leaves, and their names."""
    names = ["order_logits", "restored", "global_1", "global_2", "local_1", "local_2"]
    return dict(outputs) | {name: outputs[name].clone().requires_grad_() for name in names}, names


def naive_terms(outputs: Outputs, offset_1: torch.Tensor, offset_2: torch.Tensor) -> Outputs:
    shuffled = outputs["shuffled"]
    cells = round(outputs["order"].shape[1] ** 0.5)
    crossed = ("{}_1", "teacher_{}_2", "{}_2", "teacher_{}_1")
    of_crops, of_patches = (
        [outputs[name.format(part)] for name in crossed] for part in ("global", "local")
    )
    order = outputs["order_logits"], outputs["order"], shuffled
    place = offset_1, offset_2, cells, shuffled
    return {
        "order": peac.order_classification_loss(*order),
        "restoration": peac.appearance_restoration_loss(
            outputs["restored"], outputs["target"], None
        ),
        "global": peac.global_consistency_loss(*of_crops),
        "local": peac.local_consistency_loss(*of_patches, *place, reduce="all"),
    }


@pytest.mark.parametrize("shape", GRIDS)
def test_every_term_and_their_sum_equal_the_reference(shape: tuple[int, int]) -> None:
    weights = (0.7, 1.3, 0.4, 2.0)
    for seed in SEEDS:
        case, offset_1, offset_2 = random_outputs(seed, *shape)
        outputs, names = with_gradient(case)
        loss = PEACLoss(*weights)
        total = loss(outputs)
        gradients = torch.autograd.grad(total, [outputs[name] for name in names])
        reference, _ = with_gradient(case)
        expected = naive_terms(reference, offset_1, offset_2)
        expected_total = peac.total_loss(*expected.values(), weights=weights)
        for name, value in expected.items():
            torch.testing.assert_close(
                loss.terms[name], value.detach(), rtol=0, atol=1e-10, msg=name
            )
        torch.testing.assert_close(loss.terms["total"], expected_total.detach(), rtol=0, atol=1e-10)
        leaves = [reference[name] for name in names]
        references = torch.autograd.grad(
            expected_total, leaves, allow_unused=True, materialize_grads=True
        )
        for name, gradient, wanted in zip(names, gradients, references, strict=True):
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("overlap", ["one cell", "nothing"])
@pytest.mark.parametrize("embeddings", ["zero", "huge"])
def test_degenerate_batches_are_finite(overlap: str, shuffled: bool, embeddings: str) -> None:
    batch, dtype = 1, torch.bfloat16
    case, _, _ = random_outputs(0, batch, cells=3)
    shift = {"one cell": 2, "nothing": 3}[overlap]
    offset_1, offset_2 = torch.full((batch, 2), shift), torch.zeros(batch, 2, dtype=torch.int64)
    case |= {
        "shuffled": torch.full((batch,), shuffled),
        "matches_1": matching_patches(offset_1, offset_2, (3, 3)),
        "matches_2": matching_patches(offset_2, offset_1, (3, 3)),
    }
    scale = {"zero": 0.0, "huge": 1e6}[embeddings]
    case |= {
        name: (value * scale).to(dtype) for name, value in case.items() if value.is_floating_point()
    }
    loss = PEACLoss()
    outputs, names = with_gradient(case)
    loss(outputs).backward()
    assert all(term.dtype == torch.float32 and term.isfinite() for term in loss.terms.values())
    assert all(outputs[name].grad.isfinite().all() for name in names)  # type: ignore[union-attr]
    if shuffled or overlap == "nothing":
        assert loss.terms["local"] == 0


@pytest.mark.parametrize("name", ["order", "restoration", "global", "local"])
def test_a_term_without_weight_or_outputs_is_left_out(name: str) -> None:
    case, _, _ = random_outputs(0)
    needed = {"order": "order_", "restoration": "rest", "global": "global", "local": "local"}[name]
    without = {key: value for key, value in case.items() if needed not in key}
    weights: dict[str, Any] = {
        f"{term}_weight": float(term != name)
        for term in ("order", "restoration", "global", "local")
    }
    loss, whole = PEACLoss(**weights), PEACLoss()
    total, everything = loss(without), whole(case)
    assert set(whole.terms) - set(loss.terms) == {name}
    torch.testing.assert_close(total, everything - whole.terms[name])
    torch.testing.assert_close(whole(without), total)


def test_shapes_that_would_be_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match="target"):
        AppearanceRestorationLoss()(torch.rand(2, 4, 5), torch.rand(2, 1, 5))
    with pytest.raises(ValueError, match="matches"):
        LocalConsistencyLoss()(torch.rand(2, 4, 3), torch.rand(2, 4, 3), torch.zeros(2, 1).long())


def test_nothing_waits_for_the_device() -> None:
    """Fake tensors have shapes but no values: whatever depends on a value on the host fails."""
    case, offset_1, offset_2 = random_outputs(0)
    with FakeTensorMode() as mode:
        fake: Outputs = {name: mode.from_tensor(value) for name, value in case.items()}
        fake["matches_1"] = matching_patches(
            mode.from_tensor(offset_1), mode.from_tensor(offset_2), (2, 2)
        )
        outputs, _ = with_gradient(fake)
        PEACLoss()(outputs).backward()
