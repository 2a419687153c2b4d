# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe's losses against slow references: values, gradients, degenerate batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from naive import afire, afire_gradients

from monai_afire.losses import (
    AFiReLoss,
    AnomalyRestorationLoss,
    CategoryConsistencyLoss,
    StructureConsistencyLoss,
)

SIMILARITIES = ["paper", "teacher_ce"]

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def random_case(seed: int, shape: tuple[int, ...] = (4, 6, 5), normal_share: float = 0.6) -> Arrays:
    """q (..., L, K), prototypes (L, K), normal (..., L)."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(shape[-1], 2.0), size=shape[:-1])
    prototypes = rng.dirichlet(np.full(shape[-1], 2.0), size=shape[-2])
    return (
        np.clip(q, 1e-3, None),
        np.clip(prototypes, 1e-3, None),
        rng.random(shape[:-1]) < normal_share,
    )


def value_and_gradient(
    loss: torch.nn.Module, q: np.ndarray, *others: np.ndarray
) -> tuple[float, np.ndarray]:
    leaf = torch.tensor(q, requires_grad=True)
    value = loss(leaf, *(torch.tensor(other) for other in others))
    assert value.ndim == 0
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.item(), gradient.numpy()


def score(q: np.ndarray, c: np.ndarray, similarity: str, temperature: float) -> float:
    """log f(q, c), cosine included."""
    negative_entropy = (
        float(q @ c) if similarity == "cosine" else -afire.cross_entropy(q, c, similarity)
    )
    return negative_entropy / temperature


def naive_structure(
    q: np.ndarray, c: np.ndarray, normal: np.ndarray, similarity: str, temperature: float
) -> float:
    """Eq. 12 with prototypes (L, K), or (B, L, K) of each image."""
    terms = []
    for i, j in np.argwhere(normal):
        own = c if c.ndim == 2 else c[i]
        scores = [score(q[i, j], row, similarity, temperature) for row in own]
        terms.append(afire.log_sum_exp(scores) - scores[j])
    return sum(terms) / len(terms) if terms else 0.0


def naive_category(
    q: np.ndarray,
    c: np.ndarray,
    normal: np.ndarray,
    similarity: str,
    temperature: float,
    abnormal_pairs: bool = False,
) -> float:
    """Eq. 14-16 by sets of images; an abnormal anchor has its own similarity to the prototype as a further negative."""
    B, L, _ = q.shape
    terms = []
    for i, j in itertools.product(range(B), range(L)):
        if not (normal[i, j] or abnormal_pairs):
            continue
        alike = [b for b in range(B) if b != i and normal[b, j] == normal[i, j]]
        unlike = [b for b in range(B) if normal[b, j] != normal[i, j]]
        if not alike:
            continue
        to_prototype = [b for b in range(B) if not normal[b, j]] if normal[i, j] else [i]
        prototype = [c[j] if c.ndim == 2 else c[b, j] for b in to_prototype]
        positive = [score(q[i, j], q[b, j], similarity, temperature) for b in alike]
        negative = [score(q[i, j], q[b, j], similarity, temperature) for b in unlike]
        negative += [
            score(q[b, j], p, similarity, temperature)
            for b, p in zip(to_prototype, prototype, strict=True)
        ]
        terms.append(afire.log_sum_exp(positive + negative) - afire.log_sum_exp(positive))
    return sum(terms) / len(terms) if terms else 0.0


def check_against(naive: Callable[[np.ndarray], float], loss: torch.nn.Module, *case: Any) -> None:
    value, gradient = value_and_gradient(loss, *case)
    assert value == pytest.approx(naive(case[0]), abs=1e-9)
    numerical = afire_gradients.numerical_gradient(naive, case[0], step=3e-4)
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-8)


@pytest.mark.parametrize("similarity", [*SIMILARITIES, "cosine"])
@pytest.mark.parametrize("of_each_image", [False, True])
def test_losses_and_gradients_equal_loops(of_each_image: bool, similarity: str) -> None:
    """Prototypes that all images share, and those of each image; the category with and without abnormal pairs."""
    q, c, normal = random_case(1, (5, 3, 4), 0.5)
    q = np.clip(q, 0.05, None)
    c = random_case(6, (5, 3, 4))[0] if of_each_image else c
    settings = (similarity, 0.5)
    structure = StructureConsistencyLoss(0.5, similarity)
    check_against(lambda x: naive_structure(x, c, normal, *settings), structure, q, c, normal)
    for pairs in (False, True):
        category = CategoryConsistencyLoss(0.5, similarity, include_abnormal_pairs=pairs)
        check_against(
            lambda x, pairs=pairs: naive_category(x, c, normal, *settings, pairs),
            category,
            q,
            c,
            normal,
        )


@pytest.mark.parametrize("abnormal_pairs", [False, True])
@pytest.mark.parametrize("similarity", ["paper", "teacher_ce"])
def test_degenerate_batches_are_finite(similarity: str, abnormal_pairs: bool) -> None:
    q_random, c_random, mixed = random_case(0, (4, 5, 6))
    one_hot = np.eye(6)[np.random.default_rng(0).integers(0, 6, (4, 5))]
    masks = [np.zeros_like(mixed), np.ones_like(mixed), mixed]
    for q, c, normal, batch in itertools.product(
        (q_random, one_hot), (c_random, one_hot[0]), masks, (1, 4)
    ):
        for loss in (
            StructureConsistencyLoss(0.05, similarity),
            CategoryConsistencyLoss(0.05, similarity, abnormal_pairs),
        ):
            leaf = torch.tensor(q[:batch], dtype=torch.float32, requires_grad=True)
            value = loss(leaf, torch.tensor(c).float(), torch.tensor(normal[:batch]))
            value.backward()
            assert leaf.grad is not None
            assert torch.isfinite(leaf.grad).all()
            assert value >= -1e-5


def test_batches_without_an_anchor_are_zero_and_need_no_gradient() -> None:
    q, c, normal = random_case(1)
    nothing_normal = np.zeros_like(normal)
    assert value_and_gradient(StructureConsistencyLoss(), q, c, nothing_normal)[0] == 0.0
    for case in ((q, c, nothing_normal), (q[:1], c, normal[:1])):
        value, gradient = value_and_gradient(CategoryConsistencyLoss(), *case)
        assert value == 0.0
        assert not gradient.any()


def outputs_case(seed: int = 0, shape: tuple[int, ...] = (3, 2, 4, 5)) -> dict[str, torch.Tensor]:
    q, c, normal = random_case(seed, shape)
    rng = np.random.default_rng(seed)
    return {
        "abnormal": torch.tensor(~normal),
        "q": torch.tensor(q, requires_grad=True),
        "prototypes": torch.tensor(c),
        "restored": torch.tensor(rng.normal(size=(*shape[:3], 6)), requires_grad=True),
        "target": torch.tensor(rng.normal(size=(shape[0], 1, shape[2], 6))),
    }


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (2, 1, 1, 3)])
def test_whole_loss_with_variants_equals_the_references(
    shape: tuple[int, ...], similarity: str
) -> None:
    B, N, L, K = shape
    outputs = outputs_case(7, shape)
    loss = AFiReLoss(0.5, 2.0, 0.7, temperature=0.4, similarity=similarity, abnormal_weight=3.5)
    total = loss(outputs, label=None)
    gradients = torch.autograd.grad(total, [outputs["q"], outputs["restored"]])

    q, c, normal = (
        outputs["q"].detach().numpy(),
        outputs["prototypes"].numpy(),
        ~outputs["abnormal"].numpy(),
    )
    flat = (q.reshape(B * N, L, K), c, normal.reshape(B * N, L), 0.4, similarity)
    restored = outputs["restored"].detach().numpy().reshape(B * N, L, -1)
    target = np.repeat(outputs["target"].numpy(), N, axis=1).reshape(B * N, L, -1)
    restoration = (restored, target, ~flat[2], 3.5)
    expected = {
        "structure": afire.structure_consistency_loss(*flat),
        "category": afire.category_consistency_loss_variants(q, c, normal, 0.4, similarity),
        "restoration": afire.anomaly_restoration_loss(*restoration),
    }
    expected["total"] = (
        0.5 * expected["structure"] + 2.0 * expected["category"] + 0.7 * expected["restoration"]
    )
    assert total.item() == pytest.approx(expected["total"], abs=1e-9)
    assert {name: term.item() for name, term in loss.terms.items()} == pytest.approx(
        expected, abs=1e-9
    )
    assert not any(term.requires_grad for term in loss.terms.values())

    by_q = 0.5 * afire_gradients.structure_consistency_gradient(*flat).reshape(q.shape)
    by_q += 2.0 * afire_gradients.category_consistency_gradient_variants(
        q, c, normal, 0.4, similarity
    )
    by_restored = 0.7 * afire_gradients.anomaly_restoration_gradient(*restoration).reshape(
        B, N, L, -1
    )
    np.testing.assert_allclose(gradients[0].numpy(), by_q, rtol=0, atol=1e-9)
    np.testing.assert_allclose(gradients[1].numpy(), by_restored, rtol=0, atol=1e-9)


def test_half_precision_is_widened_under_autocast() -> None:
    half = {n: x.detach().half() if x.is_floating_point() else x for n, x in outputs_case().items()}
    exact = {name: x.double() if x.is_floating_point() else x for name, x in half.items()}
    with torch.autocast("cpu", dtype=torch.float16):
        value = AFiReLoss()(half)
    assert value.item() == pytest.approx(AFiReLoss()(exact).item(), rel=1e-4)


def test_wrong_input_is_refused() -> None:
    q, c, normal = (torch.tensor(x) for x in random_case(0))
    for loss in (StructureConsistencyLoss(), CategoryConsistencyLoss()):
        for wrong in ((q, c[:-1], normal), (q, c, normal[:, :-1]), (q, c, normal.long())):
            with pytest.raises(ValueError, match="normal"):
                loss(*wrong)
    with pytest.raises(ValueError, match="restored"):
        AnomalyRestorationLoss()(q, q[:, :-1], normal)
    with pytest.raises(ValueError, match="abnormal_weight"):
        AnomalyRestorationLoss(0.0)


def test_whole_loss_with_prototypes_of_each_image() -> None:
    outputs = outputs_case()
    own = torch.tensor(random_case(8, (3, 4, 5))[0])
    outputs["prototypes"] = own
    loss = AFiReLoss(restoration_weight=0)
    loss(outputs)
    q, normal = outputs["q"].detach().numpy(), ~outputs["abnormal"].numpy()
    repeated = np.repeat(own.numpy(), 2, axis=0)
    structure = naive_structure(q.reshape(6, 4, 5), repeated, normal.reshape(6, 4), "paper", 1.0)
    category = [naive_category(q[:, n], own.numpy(), normal[:, n], "paper", 1.0) for n in range(2)]
    assert loss.terms["structure"].item() == pytest.approx(structure, abs=1e-9)
    assert loss.terms["category"].item() == pytest.approx(sum(category) / 2, abs=1e-9)
