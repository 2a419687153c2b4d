# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of ACE's slow references, by cases that can be worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from . import ace

SIDE, CORNER = math.exp(-0.5), math.exp(-1.0)  # targets of a direct and of a diagonal neighbor


def random_tensors(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]


def assert_map(values: Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64))


def test_crop_patches_by_hand() -> None:
    offset = torch.tensor([3, 10])
    assert ace.crop_patches(offset, 2, 1) == [[(3, 10)], [(3, 11)], [(4, 10)], [(4, 11)]]
    patches = ace.crop_patches(offset, 4, 2)
    assert patches[1] == [(3, 12), (3, 13), (4, 12), (4, 13)]
    assert patches[2] == [(5, 10), (5, 11), (6, 10), (6, 11)]
    with pytest.raises(ValueError, match="5 cells"):
        ace.crop_patches(offset, 5, 2)


def test_composition_target_by_hand() -> None:
    # k1 = 4: 2x2 composed patches; k2 = 8: 4x4 patches. Crop 1 begins at row 1, column 2 of crop 2's patches.
    composition, _ = ace.matching_targets(torch.tensor([[4, 5]]), torch.tensor([[2, 1]]), (4, 8))
    assert composition.shape == (1, 16, 4)
    around: list[list[float]] = [
        [0, CORNER, SIDE, CORNER],
        [0, SIDE, 1, SIDE],
        [0, CORNER, SIDE, CORNER],
        [0, 0, 0, 0],
    ]
    right: list[list[float]] = [
        [0, 0, CORNER, SIDE],
        [0, 0, SIDE, 1],
        [0, 0, CORNER, SIDE],
        [0, 0, 0, 0],
    ]
    # a map of crop 2's patches per composed patch
    maps = composition[0].reshape(4, 4, 4).permute(2, 0, 1)
    assert_map(maps[0], around)
    assert_map(maps[1], right)
    assert_map(maps[2], [[0, 0, 0, 0], *around[:3]])
    assert_map(maps[3], [[0, 0, 0, 0], *right[:3]])


def test_decomposition_target_by_hand() -> None:
    # k1 = 2: 2x2 patches of one cell; k2 = 4: 2x2 patches split into 4x4. Crop 1 begins at cell (1, 2) of crop 2.
    _, decomposition = ace.matching_targets(torch.tensor([[1, 2]]), torch.tensor([[0, 0]]), (2, 4))
    assert decomposition.shape == (1, 4, 16)
    maps = decomposition[0].reshape(4, 4, 4)  # a map of crop 2's sub-patches per patch of crop 1
    around: list[list[float]] = [
        [0, CORNER, SIDE, CORNER],
        [0, SIDE, 1, SIDE],
        [0, CORNER, SIDE, CORNER],
        [0, 0, 0, 0],
    ]
    right: list[list[float]] = [
        [0, 0, CORNER, SIDE],
        [0, 0, SIDE, 1],
        [0, 0, CORNER, SIDE],
        [0, 0, 0, 0],
    ]
    assert_map(maps[0], around)
    assert_map(maps[1], right)
    assert_map(maps[2], [[0, 0, 0, 0], *around[:3]])
    assert_map(maps[3], [[0, 0, 0, 0], *right[:3]])


def test_targets_outside_the_overlap_count_by_distance() -> None:
    # crop 1 ends where crop 2 begins: no common cell, but neighbors
    composition, decomposition = ace.matching_targets(
        torch.tensor([[0, 0]]), torch.tensor([[0, 2]]), (2, 4)
    )
    assert_map(composition[0].reshape(2, 2), [[SIDE, 0], [CORNER, 0]])
    assert decomposition[0, 1].reshape(4, 4)[:, 0].tolist() == pytest.approx([SIDE, CORNER, 0, 0])
    assert not decomposition[0, 0].any()


def test_odd_offsets_shift_by_half_a_patch() -> None:
    # [A1] avoids this; the formula still holds: distances of 1/2 and 3/2 of crop 2's patches
    composition, decomposition = ace.matching_targets(
        torch.tensor([[0, 1]]), torch.tensor([[0, 0]]), (2, 4)
    )
    half = math.exp(-0.125)
    assert_map(composition[0].reshape(2, 2), [[half, half], [half * SIDE, half * SIDE]])
    assert decomposition[0, 0, 1] == 1.0  # whole cells always correspond


@pytest.mark.parametrize(("kernel_size", "reach"), [(1, 0), (3, 1), (5, 2)])
def test_window_is_a_square(kernel_size: int, reach: int) -> None:
    zero = torch.zeros(1, 2, dtype=torch.int64)
    _, decomposition = ace.matching_targets(zero, zero - 4, (2, 10), kernel_size, 2.0)
    first = decomposition[0, 0].reshape(10, 10)
    for row in range(10):
        for column in range(10):
            near = max(abs(row - 4), abs(column - 4)) <= reach
            squares = (row - 4) ** 2 + (column - 4) ** 2
            assert first[row, column].item() == pytest.approx(
                math.exp(-squares / 8) if near else 0.0
            )


def test_target_is_one_exactly_where_the_cells_are_the_same() -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        offset_2 = torch.randint(0, 4, (1, 2), generator=generator)
        offset_1 = offset_2 + 2 * torch.randint(-1, 4, (1, 2), generator=generator)
        composition, decomposition = ace.matching_targets(offset_1, offset_2, (4, 8))
        same = [
            [set(big) == set(composed) for composed in ace.crop_patches(offset_1[0], 4, 2)]
            for big in ace.crop_patches(offset_2[0], 8, 2)
        ]
        assert (composition[0] == 1.0).tolist() == same
        small, split = ace.crop_patches(offset_1[0], 4, 1), ace.crop_patches(offset_2[0], 8, 1)
        assert (decomposition[0] == 1.0).tolist() == [[a == b for b in split] for a in small]


def test_sizes_of_the_paper() -> None:
    composition, decomposition = ace.matching_targets(
        torch.tensor([[4, 2]]), torch.tensor([[0, 0]]), (14, 28)
    )
    assert composition.shape == (1, 196, 49)
    assert decomposition.shape == (1, 196, 784)
    # 49 composed patches that all have a partner; those at no border of crop 2 have their eight neighbors as well
    assert (composition == 1.0).sum() == 49
    assert (composition[0, :, 0] > 0).sum() == 9
    assert (decomposition == 1.0).sum() == 196


def test_three_dimensions() -> None:
    offset = torch.zeros(1, 3, dtype=torch.int64)
    composition, decomposition = ace.matching_targets(offset, offset, (2, 4))
    assert composition.shape == (1, 8, 1)
    assert decomposition.shape == (1, 8, 64)
    assert composition[0, :, 0].tolist() == pytest.approx(
        [math.exp(-n / 2) for n in (0, 1, 1, 2, 1, 2, 2, 3)]
    )


def test_log_sigmoid_does_not_overflow() -> None:
    numbers = torch.tensor([0.0, math.log(3.0), 800.0, -800.0], dtype=torch.float64)
    values = [ace.log_sigmoid(number).item() for number in numbers]
    assert values == pytest.approx([-math.log(2.0), math.log(0.75), 0.0, -800.0])


def matching_case() -> tuple[Tensor, Tensor, Tensor, float]:
    """Logits log 3, 0 and -log 3 of one teacher's patch with three student's patches: M = 3/4, 1/2, 1/4."""
    teacher = torch.tensor([[[5.0, 0.0]]])
    student = torch.tensor([[[1.0, 0.0], [0.0, 0.1], [-2.0, 0.0]]])
    return teacher, student, torch.tensor([[[1.0, 0.5, 0.0]]]), math.log(math.log(3.0))


def test_matching_logits_by_hand() -> None:
    teacher, student, _, log_scale = matching_case()
    expected = torch.tensor([[[math.log(3.0), 0.0, -math.log(3.0)]]], dtype=torch.float64)
    torch.testing.assert_close(ace.matching_logits(teacher, student, log_scale), expected)
    clip = ace.matching_logits(teacher, student, math.log(1 / 0.07))
    assert clip[0, 0, 0].item() == pytest.approx(1 / 0.07)
    assert ace.matching_logits(torch.zeros(1, 1, 2), student, 0.0).tolist() == [[[0.0, 0.0, 0.0]]]


def test_matching_loss_by_hand() -> None:
    teacher, student, target, log_scale = matching_case()
    positive, negative = (
        math.log(4 / 3) + 0.5 * math.log(2.0),
        0.5 * math.log(2.0) + math.log(4 / 3),
    )
    value = ace.matching_loss(teacher, student, target, log_scale, 0.9)
    assert value.item() == pytest.approx((0.9 * positive + 0.1 * negative) / 3)
    missed = torch.tensor([[[0.0, 0.0, 1.0]]])
    expected = 0.99 * math.log(4.0) + 0.01 * (math.log(4.0) + math.log(2.0))
    assert ace.matching_loss(teacher, student, missed, log_scale, 0.99).item() == pytest.approx(
        expected / 3
    )
    assert ace.matching_loss(
        teacher, student, missed, log_scale, 0.99, "row_sum"
    ).item() == pytest.approx(expected)
    with pytest.raises(ValueError, match="reduction"):
        ace.matching_loss(teacher, student, missed, log_scale, 0.99, "sum")


def test_matching_loss_reductions_of_a_batch() -> None:
    teacher, student, log_scale = random_tensors(0, (2, 4, 3), (2, 6, 3), ())
    target = torch.rand(2, 4, 6, generator=torch.Generator().manual_seed(1))
    mean = ace.matching_loss(teacher, student, target, log_scale, 0.9)
    torch.testing.assert_close(
        6.0 * mean, ace.matching_loss(teacher, student, target, log_scale, 0.9, "row_sum")
    )
    singles = [
        ace.matching_loss(teacher[b : b + 1], student[b : b + 1], target[b : b + 1], log_scale, 0.9)
        for b in range(2)
    ]
    torch.testing.assert_close(mean, (singles[0] + singles[1]) / 2)


def test_matching_loss_gradient_by_hand() -> None:
    teacher, student, target, log_scale = matching_case()
    scale = torch.tensor(log_scale, dtype=torch.float64, requires_grad=True)
    ace.matching_loss(teacher, student, target, scale, 0.9, "row_sum").backward()
    # d/dz = -α·T·(1-M) + (1-α)·(1-T)·M, and dz/ds = z
    slopes = [-0.9 * 0.25, -0.9 * 0.5 * 0.5 + 0.1 * 0.5 * 0.5, 0.1 * 0.25]
    logits = [math.log(3.0), 0.0, -math.log(3.0)]
    assert scale.grad is not None
    assert scale.grad.item() == pytest.approx(
        sum(a * b for a, b in zip(slopes, logits, strict=True))
    )


def test_overlap_patches_by_hand() -> None:
    # crop 1 of 2x2 cells at column 2 of crop 2 (4x4 cells, 2x2 patches): all of it inside
    inside = ace.overlap_patches(torch.tensor([[0, 2]]), torch.tensor([[0, 0]]), (2, 4))
    assert inside == [([0, 1, 2, 3], [1])]
    # crop 1 of 4x4 cells at (2, -2) of crop 2 (8x8 cells, 4x4 patches): its right half, crop 2's first column
    corner = ace.overlap_patches(torch.tensor([[2, -2]]), torch.tensor([[0, 0]]), (4, 8))
    assert corner == [([2, 3, 6, 7, 10, 11, 14, 15], [4, 8])]
    # one cell to the right, crop 1 covers no patch of crop 2 completely
    assert ace.overlap_patches(torch.tensor([[0, 1]]), torch.tensor([[0, 0]]), (2, 4)) == [
        ([0, 1, 2, 3], [])
    ]
    assert ace.overlap_patches(torch.tensor([[9, 9]]), torch.tensor([[0, 0]]), (2, 4)) == [([], [])]


def test_overlap_has_four_small_patches_for_each_large_one() -> None:
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        offset_2 = torch.randint(0, 4, (2, 2), generator=generator)
        offset_1 = offset_2 + 2 * torch.randint(-1, 4, (2, 2), generator=generator)
        for first, second in ace.overlap_patches(offset_1, offset_2, (4, 8)):
            assert len(first) == 4 * len(second) > 0


def test_pool_overlap_by_hand() -> None:
    features = torch.tensor([[[1.0, 0.0], [3.0, 4.0], [100.0, 100.0]]])
    assert ace.pool_overlap(features, [[0, 1]]).tolist() == [[2.0, 2.0]]
    with pytest.raises(ValueError, match="image 0"):
        ace.pool_overlap(features, [[]])


def test_global_term_by_hand() -> None:
    student = torch.tensor([[0.0, 0.1 * math.log(3.0)]], dtype=torch.float64)  # 1/4, 3/4
    teacher = torch.tensor([[0.04 * math.log(4.0), 0.0]], dtype=torch.float64)  # 4/5, 1/5
    expected = 0.8 * math.log(4.0) + 0.2 * math.log(4 / 3)
    assert ace.global_consistency_term(student, teacher).item() == pytest.approx(expected)
    # 9/10, 1/10
    center = 0.04 * torch.tensor([[math.log(4.0) - math.log(9.0), 0.0]], dtype=torch.float64)
    value = ace.global_consistency_term(student, teacher, center=center)
    assert value.item() == pytest.approx(0.9 * math.log(4.0) + 0.1 * math.log(4 / 3))
    both = ace.global_consistency_term(
        torch.cat([student, 0 * student]), torch.cat([teacher, teacher])
    )
    assert both.item() == pytest.approx((expected + math.log(2.0)) / 2)
    large = ace.global_consistency_term(1e4 * student, teacher, 0.1, 0.04)
    assert large.item() == pytest.approx(0.8 * 1e4 * math.log(3.0))


def test_global_loss_pools_the_overlap_and_takes_both_directions() -> None:
    student_1, teacher_1, student_2, teacher_2 = random_tensors(
        2, (1, 4, 3), (1, 4, 3), (1, 4, 3), (1, 4, 3)
    )
    offsets = (torch.tensor([[0, 2]]), torch.tensor([[0, 0]]))  # all of crop 1, patch 1 of crop 2
    there = ace.global_consistency_term(student_1.mean(dim=1), teacher_2[:, 1], 0.2, 0.3)
    back = ace.global_consistency_term(student_2[:, 1], teacher_1.mean(dim=1), 0.2, 0.3)
    tensors = (student_1, teacher_2, student_2, teacher_1, *offsets, (2, 4), 0.2, 0.3)
    torch.testing.assert_close(ace.global_consistency_loss(*tensors), (there + back) / 2)
    torch.testing.assert_close(
        ace.global_consistency_loss(*tensors, symmetrise="sum"), there + back
    )
    with pytest.raises(ValueError, match="symmetrise"):
        ace.global_consistency_loss(*tensors, symmetrise="no")


def test_global_loss_is_lowest_where_student_and_teacher_agree() -> None:
    (logits,) = random_tensors(3, (2, 5))
    entropy = ace.global_consistency_term(logits, logits, 0.1, 0.1)
    assert entropy < ace.global_consistency_term(logits.flip(1), logits, 0.1, 0.1)
    (gradient,) = torch.autograd.grad(
        ace.global_consistency_term(logits, logits.detach(), 0.1, 0.1), logits
    )
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0.0)


def test_gradients_equal_differences() -> None:
    student_1, teacher_1, student_2, teacher_2 = random_tensors(
        4, (2, 4, 3), (2, 4, 3), (2, 4, 3), (2, 4, 3)
    )
    (log_scale,) = random_tensors(5, ())
    offset_1, offset_2 = torch.tensor([[0, 2], [2, 2]]), torch.tensor([[0, 0], [2, 0]])
    composition, _ = ace.matching_targets(offset_1, offset_2, (2, 4))

    def matching(teacher: Tensor, student: Tensor, scale: Tensor) -> Tensor:
        return ace.matching_loss(teacher, student[:, :1], composition, scale, 0.9)

    def consistency(*tensors: Tensor) -> Tensor:
        first, second, third, fourth = tensors
        return ace.global_consistency_loss(
            first, second, third, fourth, offset_1, offset_2, (2, 4), 0.5, 0.7
        )

    assert torch.autograd.gradcheck(matching, (teacher_2, student_1, log_scale))
    assert torch.autograd.gradcheck(consistency, (student_1, teacher_2, student_2, teacher_1))


def test_update_center_by_hand() -> None:
    outputs = [torch.tensor([[1.0, 2.0], [3.0, 2.0]]), torch.tensor([[5.0, 2.0], [7.0, 6.0]])]
    center = ace.update_center(torch.tensor([[2.0, 0.0]]), outputs, 0.75)
    assert center.tolist() == pytest.approx([0.75 * 2.0 + 0.25 * 4.0, 0.25 * 3.0])


def test_total_loss_by_hand() -> None:
    first, second, third = (torch.tensor(value, dtype=torch.float64) for value in (10.0, 2.0, 3.0))
    assert ace.total_loss(first, second, third) == 6.0
    assert ace.total_loss(first, second, third, weights=(0.0, 0.5, 2.0)) == 7.0
