# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of PEAC's slow references, by cases that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from . import peac

EAST, NORTH, WEST = [2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]


def random_embeddings(seed: int, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(4)
    ]


def test_batch_mean_in_both_readings() -> None:
    terms = [torch.tensor(value) for value in (1.0, 2.0, 6.0)]
    assert peac.batch_mean(terms, [True, False, True], "active") == pytest.approx(3.5)
    assert peac.batch_mean(terms, [True, False, True], "all") == pytest.approx(7 / 3)
    assert (
        peac.batch_mean(terms, [False] * 3, "active")
        == peac.batch_mean(terms, [False] * 3, "all")
        == 0.0
    )
    assert peac.batch_mean([], [], "all") == 0.0
    with pytest.raises(ValueError, match="reduce"):
        peac.batch_mean(terms, [True] * 3, "mean")


def test_order_loss_by_hand() -> None:
    logits = torch.zeros(3, 2, 2)
    logits[0, 0, 1] = logits[0, 1, 1] = math.log(3.0)  # probabilities 1/4, 3/4 in both patches
    order = torch.tensor([[1, 0], [0, 1], [1, 0]])
    first, other = (math.log(4 / 3) + math.log(4.0)) / 2, math.log(2.0)
    shuffled = torch.tensor([True, False, True])
    assert peac.order_classification_loss(logits, order, shuffled).item() == pytest.approx(
        (first + other) / 2
    )
    assert peac.order_classification_loss(logits, order, shuffled, "all").item() == pytest.approx(
        (first + other) / 3
    )
    only_first = torch.tensor([True, False, False])
    assert peac.order_classification_loss(logits, order, only_first).item() == pytest.approx(first)
    assert peac.order_classification_loss(logits, order, torch.zeros(3, dtype=torch.bool)) == 0.0


def test_order_loss_of_large_logits_and_its_gradient() -> None:
    logits = torch.tensor([[[2000.0, 0.0], [0.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    value = peac.order_classification_loss(logits, torch.tensor([[1, 0]]), torch.tensor([True]))
    value.backward()
    assert value.item() == pytest.approx((2000.0 + math.log(2.0)) / 2)
    assert logits.grad is not None  # (probability - one-hot) / N
    torch.testing.assert_close(
        logits.grad, torch.tensor([[[0.5, -0.5], [-0.25, 0.25]]], dtype=torch.float64)
    )


def test_appearance_loss_by_hand() -> None:
    target = torch.full((2, 2, 4), 0.5)
    restored = target.clone()
    restored[0, 0] += torch.tensor([1.0, 1.0, -1.0, -1.0])  # 1 in this patch
    restored[0, 1, 3] += 4.0  # 16 / 4 in this one
    restored[1, 0, 0] -= 2.0  # 1 and 0
    assert peac.appearance_restoration_loss(restored, target).item() == pytest.approx(
        (2.5 + 0.5) / 2
    )
    distorted = torch.tensor([False, True])
    assert peac.appearance_restoration_loss(restored, target, distorted).item() == pytest.approx(
        0.5
    )
    assert peac.appearance_restoration_loss(
        restored, target, distorted, "all"
    ).item() == pytest.approx(0.25)


def test_global_loss_by_hand() -> None:
    first, second = torch.tensor([EAST, EAST]), torch.tensor([NORTH, WEST])
    assert peac.global_consistency_term(first, second).item() == pytest.approx((2.0 + 4.0) / 2)
    assert peac.global_consistency_term(first, 7.0 * first).item() == pytest.approx(0.0)
    diagonal = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    value = peac.global_consistency_loss(first, second, first, diagonal)
    assert value.item() == pytest.approx(3.0 + 2.0 - math.sqrt(2.0))  # a sum of both directions
    assert peac.global_consistency_term(torch.zeros(1, 2), first[:1]).item() == pytest.approx(2.0)


def test_global_term_is_the_distance_of_the_unit_vectors() -> None:
    a, b, _, _ = random_embeddings(0, 3, 5)
    units = [v / torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (a, b)]
    expected = ((units[0] - units[1]) ** 2).sum(dim=1).mean()
    torch.testing.assert_close(peac.global_consistency_term(a, b), expected)


def test_matched_patches_by_hand() -> None:
    # crop 1 one row below crop 2 and one column to its left, 3x3 patches each:
    offset_1, offset_2 = torch.tensor([[5, 2]]), torch.tensor([[4, 3]])
    assert peac.patch_cells(offset_1[0], 2) == [(5, 2), (5, 3), (6, 2), (6, 3)]
    assert peac.matched_patches(offset_1, offset_2, 3) == [[(1, 3), (2, 4), (4, 6), (5, 7)]]
    same = torch.tensor([[1, 1]])
    assert peac.matched_patches(same, same, 2) == [[(n, n) for n in range(4)]]
    assert peac.matched_patches(same, same + 2, 2) == [[]]
    # rows differ only: exchanging x and y would give other pairs
    assert peac.matched_patches(torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), 2) == [
        [(2, 0), (3, 1)]
    ]


def test_matched_patches_cover_the_overlap() -> None:
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        offset_1, offset_2 = (torch.randint(0, 5, (1, 2), generator=generator) for _ in range(2))
        pairs = peac.matched_patches(offset_1, offset_2, 4)[0]
        sides = [max(0, 4 - abs(int(step))) for step in (offset_1 - offset_2)[0]]
        assert len(pairs) == sides[0] * sides[1]
        assert len({m for m, _ in pairs}) == len({n for _, n in pairs}) == len(pairs)


def local_case() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Three images of 1x2 matched patches; pair terms: image 0 gives 0 and 4, 1 gives 2 and 2, 2 gives 4 and 4."""
    student = torch.zeros(3, 4, 2)
    teacher = torch.zeros(3, 4, 2)
    student[:, 2:] = torch.tensor(EAST)  # the lower row of crop 1 is the upper row of crop 2
    teacher[:, :2] = torch.tensor([[EAST, WEST], [NORTH, NORTH], [WEST, WEST]])
    teacher[:, 2:] = torch.tensor(NORTH)  # outside the overlap: no influence
    return student, teacher, torch.zeros(3, 2, dtype=torch.int64), torch.tensor([[1, 0]] * 3)


def test_local_loss_by_hand() -> None:
    student, teacher, offset_1, offset_2 = local_case()
    pairs = peac.matched_patches(offset_1, offset_2, 2)
    shuffled = torch.tensor([False, True, False])
    assert peac.local_consistency_term(student, teacher, pairs, shuffled).item() == pytest.approx(
        (2 + 4) / 2
    )
    assert peac.local_consistency_term(
        student, teacher, pairs, shuffled, "all"
    ).item() == pytest.approx((2 + 4) / 3)
    printed = peac.local_consistency_term(student, teacher, pairs, shuffled, "all", "sum")
    assert printed.item() == pytest.approx((4 + 8) / 3)
    everything = torch.ones(3, dtype=torch.bool)
    assert peac.local_consistency_term(student, teacher, pairs, everything) == 0.0
    apart: list[list[tuple[int, int]]] = [
        [],
        pairs[1],
        pairs[2],
    ]  # an image without a pair is a 0 that counts
    assert peac.local_consistency_term(
        student, teacher, apart, ~everything
    ).item() == pytest.approx((0 + 2 + 4) / 3)


def test_pairs_are_averaged_within_an_image_before_images_are() -> None:
    student, teacher = torch.tensor(EAST).repeat(2, 4, 1), torch.tensor(EAST).repeat(2, 4, 1)
    teacher[1] = torch.tensor(NORTH)
    # 4 pairs and 1 pair
    offset_1, offset_2 = (
        torch.zeros(2, 2, dtype=torch.int64),
        torch.tensor([[0, 0], [1, 1]]),
    )
    options = (offset_1, offset_2, 2, torch.zeros(2, dtype=torch.bool))
    value = peac.local_consistency_loss(student, teacher, student, student, *options)
    assert value.item() == pytest.approx((0.0 + 2.0) / 2)


def test_local_loss_in_both_directions() -> None:
    student_1, teacher_2, offset_1, offset_2 = local_case()
    north = torch.tensor(NORTH).repeat(3, 4, 1)
    student_2, teacher_1 = torch.zeros(3, 4, 2), torch.zeros(3, 4, 2)
    student_2[:, :2], teacher_1[:, 2:] = (
        north[:, :2],
        torch.tensor([[NORTH, NORTH], [EAST, NORTH], [NORTH, EAST]]),
    )
    shuffled, shuffled_2 = torch.tensor([False, True, False]), torch.tensor([True, False, False])
    tensors = (student_1, teacher_2, student_2, teacher_1, offset_1, offset_2, 2)
    # second direction: 0, 1, 1 for the three images
    assert peac.local_consistency_loss(*tensors, shuffled).item() == pytest.approx(
        3.0 + (0 + 1) / 2
    )
    assert peac.local_consistency_loss(*tensors, shuffled, shuffled_2).item() == pytest.approx(
        3.0 + (1 + 1) / 2
    )
    assert peac.local_consistency_loss(*tensors, shuffled, None, "all").item() == pytest.approx(
        2.0 + (0 + 1) / 3
    )


def test_exchanging_the_crops_changes_nothing() -> None:
    student_1, teacher_2, student_2, teacher_1 = random_embeddings(1, 2, 9, 4)
    offset_1, offset_2 = torch.tensor([[0, 3], [2, 2]]), torch.tensor([[1, 1], [2, 3]])
    shuffled = torch.tensor([False, False])
    there = (student_1, teacher_2, student_2, teacher_1, offset_1, offset_2, 3, shuffled)
    back = (student_2, teacher_1, student_1, teacher_2, offset_2, offset_1, 3, shuffled)
    torch.testing.assert_close(
        peac.local_consistency_loss(*there), peac.local_consistency_loss(*back)
    )


def test_gradients_equal_differences_and_vanish_where_nothing_is_matched() -> None:
    student_1, teacher_2, student_2, teacher_1 = random_embeddings(2, 2, 4, 3)
    offset_1, offset_2 = torch.zeros(2, 2, dtype=torch.int64), torch.tensor([[1, 0], [0, 0]])
    shuffled = torch.tensor([False, True])

    def local(*tensors: Tensor) -> Tensor:
        first, second, third, fourth = tensors
        return peac.local_consistency_loss(
            first, second, third, fourth, offset_1, offset_2, 2, shuffled
        )

    cases: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [
        (local, (student_1, teacher_2, student_2, teacher_1)),
        (peac.global_consistency_loss, tuple(random_embeddings(3, 2, 3))),
        (peac.appearance_restoration_loss, (student_1, teacher_2)),
    ]
    for function, tensors in cases:
        assert torch.autograd.gradcheck(function, tensors)
    (gradient,) = torch.autograd.grad(local(student_1, teacher_2, student_2, teacher_1), student_1)
    moved = gradient.abs().sum(dim=2) > 0
    assert moved.tolist() == [[False, False, True, True], [False] * 4]


def test_three_dimensions() -> None:
    pairs = peac.matched_patches(torch.tensor([[0, 0, 0]]), torch.tensor([[0, 1, 1]]), 2)
    assert pairs == [[(3, 0), (7, 4)]]


def test_float32_is_raised_to_float64_and_left_alone() -> None:
    logits = torch.randn(1, 3, 3)
    copy = logits.clone()
    value = peac.order_classification_loss(logits, torch.tensor([[0, 1, 2]]), torch.tensor([True]))
    assert value.dtype == peac.global_consistency_term(logits[0], logits[0]).dtype == torch.float64
    assert torch.equal(logits, copy)


def test_total_loss_by_hand() -> None:
    a, b, c, d = (torch.tensor(value) for value in (1.0, 2.0, 3.0, 4.0))
    assert peac.total_loss(a, b, c, d) == 10.0
    assert peac.total_loss(a, b, c, d, weights=(1.0, 10.0, 100.0, 0.5)) == 323.0
    with pytest.raises(ValueError, match="zip"):
        peac.total_loss(a, b, c, d, weights=(1.0,))
