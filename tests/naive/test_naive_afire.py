# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of the slow references themselves, by cases that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from . import afire, afire_gradients

SIMILARITIES = ["paper", "teacher_ce"]


def random_case(
    seed: int, B: int = 4, L: int = 6, K: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    q, prototypes = (
        rng.dirichlet(np.full(K, 3.0), size=(B, L)),
        rng.dirichlet(np.full(K, 3.0), size=L),
    )
    normal = rng.random((B, L)) < 0.6
    normal[:2, 0] = True  # at least one positive pair
    normal[2:, 0] = False
    return np.clip(q, 1e-3, None), np.clip(prototypes, 1e-3, None), normal


def test_log_sum_exp_survives_large_and_empty_input() -> None:
    assert afire.log_sum_exp([1000.0, 1000.0]) == pytest.approx(1000.0 + math.log(2.0))
    assert afire.log_sum_exp([]) == -math.inf


def test_softmax_by_hand() -> None:
    np.testing.assert_allclose(
        afire.softmax([[0.0, 0.1 * math.log(3.0)]], temperature=0.1), [[0.25, 0.75]]
    )


def test_sinkhorn_one_iteration_by_hand() -> None:
    logits = 0.05 * np.log([[1.0, 2.0], [3.0, 4.0]])
    # columns: [1/4, 1/3], [3/4, 2/3] (up to the common 1/2), then rows
    np.testing.assert_allclose(
        afire.sinkhorn_knopp(logits, 0.05, 1), [[3 / 7, 4 / 7], [9 / 17, 8 / 17]]
    )
    np.testing.assert_allclose(
        afire.sinkhorn_knopp(logits, 0.05, 0), [[1 / 3, 2 / 3], [3 / 7, 4 / 7]]
    )


def test_sinkhorn_shares_the_clusters_evenly() -> None:
    logits = np.random.default_rng(0).normal(size=(12, 5))
    q = afire.sinkhorn_knopp(logits + 100.0, 0.7, 300)
    np.testing.assert_allclose(q.sum(axis=1), 1.0)
    np.testing.assert_allclose(q.sum(axis=0), 12 / 5)
    np.testing.assert_allclose(
        afire.sinkhorn_knopp(np.ones((3, 4)), 0.05, 3), np.full((3, 4), 0.25)
    )


def test_prototype_update_copies_then_mixes() -> None:
    q = np.array([[[1.0, 0.0]], [[0.5, 0.5]]])
    first = afire.prototype_update(None, q, 0.9)
    np.testing.assert_allclose(first, [[0.75, 0.25]])
    np.testing.assert_allclose(afire.prototype_update([[0.25, 0.75]], q, 0.9), [[0.3, 0.7]])


@pytest.mark.parametrize("lesion", ["component", "map"])
def test_patch_labels_of_constant_maps(lesion: str) -> None:
    masks = np.zeros((2, 1, 6, 6), dtype=np.float32)
    masks[1] = 0.1  # sums of 0.1 are inexact: equal means must still count as equal
    labels = afire.patch_labels(masks, 3, lesion)
    assert labels.tolist() == [[False] * 4, [True, False, False, False]]


def test_patch_labels_mean_rule_by_hand() -> None:
    mask = np.zeros((4, 6))
    mask[0, 2] = 1.2  # patch means 0, 0.3, 0.2 / 0, 0, 0; image mean 0.5 / 6
    mask[1, 4] = 0.8
    assert afire.patch_labels(mask[None, None], 2).tolist() == [
        [False, True, True, False, False, False]
    ]
    mask[3, 0] = 0.01  # touches nothing: a faint lesion of its own, below the mean
    assert afire.patch_labels(mask[None, None], 2, "map").tolist() == [
        [False, True, True, False, False, False]
    ]
    assert afire.patch_labels(mask[None, None], 2, "component").tolist() == [
        [False, True, True, True, False, False]
    ]


def test_patch_labels_brightest_patch_of_a_lost_lesion() -> None:
    mask = np.zeros((1, 12))
    mask[0, 0:2] = 9.0
    mask[0, 5:8] = [0.1, 0.3, 0.1]  # in patches 2 (mean 0.05) and 3 (mean 0.2)
    assert afire.patch_labels(mask[None, None], (1, 2)).tolist() == [
        [True, False, False, True, False, False]
    ]


def test_lesion_components_join_diagonal_neighbors() -> None:
    mask = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1]])
    assert sorted(len(c) for c in afire.lesion_components(mask)) == [1, 1, 2]


def test_patch_labels_in_three_dimensions_and_errors() -> None:
    masks = np.zeros((1, 1, 2, 2, 4))
    masks[..., 3] = 1.0
    assert afire.patch_labels(masks, 2).tolist() == [[False, True]]
    with pytest.raises(ValueError, match="divisible"):
        afire.patch_labels(np.zeros((1, 1, 5, 4)), 2)
    with pytest.raises(ValueError, match="lesion"):
        afire.patch_labels(masks, 2, "pixel")


def test_head_gives_cosines() -> None:
    hidden = np.array([[[3.0, 4.0], [0.0, 0.0]]])
    vectors = np.array(
        [[[0.0, 2.0], [5.0, 0.0], [-4.0, 3.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]
    )
    np.testing.assert_allclose(
        afire.token_probability_head(hidden, vectors),
        [[[0.8, 0.6, 0.0], [0.0, 0.0, 0.0]]],
        atol=1e-15,
    )


def test_cross_entropy_argument_order() -> None:
    a, c = np.array([1.0, 0.0]), np.array([0.8, 0.2])
    assert afire.cross_entropy(a, c, "paper", 0.0) == pytest.approx(-math.log(0.8))
    assert afire.cross_entropy(c, a[::-1] + 0.0, "teacher_ce", 0.0) == pytest.approx(-math.log(0.2))
    with pytest.raises(ValueError, match="similarity"):
        afire.cross_entropy(a, c, "cosine")


def test_structure_loss_by_hand() -> None:
    q = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    prototypes = np.array([[0.8, 0.2], [0.3, 0.7]])
    # f(q_1, ·) = 0.8, 0.3 and f(q_2, ·) = 0.2, 0.7
    first, second = -math.log(0.8 / 1.1), -math.log(0.7 / 0.9)
    assert afire.structure_consistency_loss(
        q, prototypes, [[True, False]], eps=0.0
    ) == pytest.approx(first)
    assert afire.structure_consistency_loss(
        q, prototypes, [[True, True]], eps=0.0
    ) == pytest.approx((first + second) / 2)
    squared = -math.log(0.64 / (0.64 + 0.09))
    assert afire.structure_consistency_loss(
        q, prototypes, [[True, False]], 0.5, eps=0.0
    ) == pytest.approx(squared)
    one_hot = np.eye(2)
    soft = np.array([[[0.8, 0.2], [0.5, 0.5]]])
    value = afire.structure_consistency_loss(
        soft, one_hot, [[True, False]], similarity="teacher_ce", eps=0.0
    )
    assert value == pytest.approx(-math.log(0.8))


def test_structure_loss_averages_over_tokens_and_not_over_positions() -> None:
    q, prototypes, normal = random_case(1)
    singles = []
    for i, j in np.argwhere(normal):
        only = np.zeros_like(normal)
        only[i, j] = True
        singles.append(afire.structure_consistency_loss(q, prototypes, only))
    assert afire.structure_consistency_loss(q, prototypes, normal) == pytest.approx(
        np.mean(singles)
    )


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_structure_loss_is_lower_at_the_own_prototype(similarity: str) -> None:
    prototypes = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])
    normal = np.ones((1, 3), dtype=bool)
    own = afire.structure_consistency_loss(
        prototypes[None], prototypes, normal, similarity=similarity
    )
    other = afire.structure_consistency_loss(
        prototypes[None, [1, 2, 0]], prototypes, normal, similarity=similarity
    )
    assert own < math.log(3.0) < other


def category_case() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q = np.array([[0.9, 0.1], [0.5, 0.5], [0.25, 0.75], [0.2, 0.8]])[:, None]
    return q, np.array([[0.4, 0.6]]), np.array([[True], [True], [False], [False]])


def test_category_loss_by_hand() -> None:
    q, c, normal = category_case()
    to_prototype = 0.4**0.25 * 0.6**0.75 + 0.4**0.2 * 0.6**0.8
    positive = [0.5**0.9 * 0.5**0.1, 0.9**0.5 * 0.1**0.5]
    cross = [
        0.25**0.9 * 0.75**0.1 + 0.2**0.9 * 0.8**0.1,
        0.25**0.5 * 0.75**0.5 + 0.2**0.5 * 0.8**0.5,
    ]
    expected = [-math.log(p / (p + n + to_prototype)) for p, n in zip(positive, cross, strict=True)]
    assert afire.category_consistency_loss(q, c, normal, eps=0.0) == pytest.approx(
        sum(expected) / 2
    )


def test_category_loss_order_of_arguments_and_temperature() -> None:
    q, c, normal = category_case()
    q, normal = q[:3], normal[:3]
    # the partner's probabilities are the exponents
    positive = [
        (0.9**0.5 * 0.1**0.5) ** 2,
        (0.5**0.9 * 0.5**0.1) ** 2,
    ]
    cross = [(0.9**0.25 * 0.1**0.75) ** 2, (0.5**0.25 * 0.5**0.75) ** 2]
    to_prototype = (0.25**0.4 * 0.75**0.6) ** 2
    expected = [-math.log(p / (p + n + to_prototype)) for p, n in zip(positive, cross, strict=True)]
    value = afire.category_consistency_loss(q, c, normal, 0.5, "teacher_ce", eps=0.0)
    assert value == pytest.approx(sum(expected) / 2)


def test_abnormal_pairs_add_abnormal_anchors() -> None:
    q, c, normal = category_case()
    plain = afire.category_consistency_loss(q, c, normal, eps=0.0)
    positive = [0.2**0.25 * 0.8**0.75, 0.25**0.2 * 0.75**0.8]
    cross = [0.9**0.25 * 0.1**0.75 + 0.5, 0.9**0.2 * 0.1**0.8 + 0.5]
    added = [-math.log(p / (p + n)) for p, n in zip(positive, cross, strict=True)]
    value = afire.category_consistency_loss(q, c, normal, include_abnormal_pairs=True, eps=0.0)
    assert value == pytest.approx((2 * plain + sum(added)) / 4)


def test_category_loss_counts_only_anchors_with_a_positive() -> None:
    q, c, normal = category_case()
    plain = afire.category_consistency_loss(q, c, normal)
    lonely = np.array([[True], [False], [False], [False]])  # one normal token has no positive
    both = [np.concatenate([a, b], axis=1) for a, b in ((q, q), (normal, lonely))]
    assert afire.category_consistency_loss(
        both[0], np.concatenate([c, c]), both[1]
    ) == pytest.approx(plain)
    all_normal = np.ones_like(normal)  # four anchors with loss 0 beside the two
    both[1] = np.concatenate([normal, all_normal], axis=1)
    assert afire.category_consistency_loss(
        both[0], np.concatenate([c, c]), both[1]
    ) == pytest.approx(plain / 3)


def test_variants_are_averaged_and_never_paired() -> None:
    rng = np.random.default_rng(3)
    q, c = rng.dirichlet(np.ones(5), size=(3, 2, 4)), rng.dirichlet(np.ones(5), size=4)
    normal = rng.random((3, 2, 4)) < 0.7
    each = [afire.category_consistency_loss(q[:, n], c, normal[:, n]) for n in range(2)]
    assert afire.category_consistency_loss_variants(q, c, normal) == pytest.approx(sum(each) / 2)
    # one patient: no positives
    assert afire.category_consistency_loss_variants(q[:1], c, normal[:1]) == 0.0


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("B", [1, 3])
def test_degenerate_batches_are_zero_or_finite(fill: bool, B: int) -> None:
    q, c, _ = random_case(4, B=B)
    normal = np.full(q.shape[:2], fill)
    assert afire.category_consistency_loss(q, c, normal) == 0.0
    structure = afire.structure_consistency_loss(q, c, normal)
    assert structure > 0.0 if fill else structure == 0.0


def test_restoration_loss_by_hand() -> None:
    target = np.zeros((1, 2, 4))
    restored = np.array([[[1.0, 1.0, -1.0, -1.0], [4.0, 0.0, 0.0, 0.0]]])  # e = 1 and 4
    assert afire.anomaly_restoration_loss(restored, target, [[False, True]]) == pytest.approx(
        21 / 6
    )
    assert afire.anomaly_restoration_loss(restored, target, [[False, False]]) == pytest.approx(2.5)
    assert afire.anomaly_restoration_loss(restored, target, [[True, True]], 7.0) == pytest.approx(
        2.5
    )
    assert afire.anomaly_restoration_loss(restored, target, [[True, True]], 0.0) == 0.0
    # one mean over the whole batch, not a mean of image means
    both, zeros = np.concatenate([restored, 0 * restored]), np.zeros((2, 2, 4))
    assert afire.anomaly_restoration_loss(
        both, zeros, [[False, True], [False, False]]
    ) == pytest.approx(21 / 8)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("include_abnormal_pairs", [False, True])
def test_contrastive_gradients_equal_differences(
    similarity: str, temperature: float, include_abnormal_pairs: bool
) -> None:
    q, c, normal = random_case(5, B=4, L=3, K=4)
    q = np.clip(q, 0.02, None)
    options = (temperature, similarity)

    def structure(values: np.ndarray) -> float:
        return afire.structure_consistency_loss(values, c, normal, *options)

    def category(values: np.ndarray) -> float:
        return afire.category_consistency_loss(values, c, normal, *options, include_abnormal_pairs)

    by_hand = afire_gradients.structure_consistency_gradient(q, c, normal, *options)
    np.testing.assert_allclose(by_hand, afire_gradients.numerical_gradient(structure, q), atol=1e-8)
    assert np.all(by_hand[~normal] == 0.0)
    by_hand = afire_gradients.category_consistency_gradient(
        q, c, normal, *options, include_abnormal_pairs
    )
    np.testing.assert_allclose(by_hand, afire_gradients.numerical_gradient(category, q), atol=1e-8)
    assert np.abs(by_hand[~normal]).max() > 0.01


def test_other_gradients_equal_differences() -> None:
    rng = np.random.default_rng(6)
    q, c = rng.dirichlet(np.full(3, 5.0), size=(3, 2, 2)), rng.dirichlet(np.full(3, 5.0), size=2)
    normal = rng.random((3, 2, 2)) < 0.6
    restored, target, abnormal = (
        rng.normal(size=(2, 3, 4)),
        rng.normal(size=(2, 3, 4)),
        rng.random((2, 3)) < 0.5,
    )
    logits, weights = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    cases: list[tuple[Callable[[np.ndarray], float], np.ndarray, np.ndarray]] = [
        (
            lambda v: afire.category_consistency_loss_variants(v, c, normal),
            q,
            afire_gradients.category_consistency_gradient_variants(q, c, normal),
        ),
        (
            lambda v: afire.anomaly_restoration_loss(v, target, abnormal),
            restored,
            afire_gradients.anomaly_restoration_gradient(restored, target, abnormal),
        ),
        (
            lambda v: float((afire.softmax(v, 0.5) * weights).sum()),
            logits,
            afire_gradients.softmax_gradient(afire.softmax(logits, 0.5), weights, 0.5),
        ),
    ]
    for function, point, by_hand in cases:
        np.testing.assert_allclose(
            by_hand, afire_gradients.numerical_gradient(function, point), atol=1e-8
        )
        assert np.abs(by_hand).max() > 1e-3


def test_anomaly_score_by_hand() -> None:
    target = np.zeros((2, 2, 1))
    restored = np.sqrt([[[0.0], [0.0]], [[0.0], [math.log(3.0)]]])
    scores, distances = afire.anomaly_score(restored, target)
    np.testing.assert_allclose(scores, [0.0, math.log(2.0)])
    np.testing.assert_allclose(distances, [[0.0, 0.0], [0.0, math.log(3.0)]])
    large, _ = afire.anomaly_score(np.full((1, 3, 1), 1000.0), np.zeros((1, 3, 1)))
    np.testing.assert_allclose(large, [1e6])  # exp(1e6) would overflow


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_anomaly_score_is_minus_log_of_the_printed_normality(reduction: str) -> None:
    rng = np.random.default_rng(7)
    restored, target = rng.normal(size=(3, 4, 6)), rng.normal(size=(3, 4, 6))
    scores, distances = afire.anomaly_score(restored, target, reduction)
    np.testing.assert_allclose(
        scores, afire.anomaly_score_by_definition(restored, target, reduction)
    )
    expected = ((restored - target) ** 2).sum(-1) / (6 if reduction == "mean" else 1)
    np.testing.assert_allclose(distances, expected)
    with pytest.raises(ValueError, match="reduction"):
        afire.anomaly_score(restored, target, "max")


def test_prototype_distance_by_hand() -> None:
    q = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    c = np.array([[0.8, 0.2], [0.25, 0.25]])
    np.testing.assert_allclose(
        afire.prototype_distance(q, c, eps=0.0), [[-math.log(0.8), math.log(4.0)]]
    )
