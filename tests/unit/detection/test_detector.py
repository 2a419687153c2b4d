# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The detector against slow versions of its scores, and its statistics in the state dict."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from integration.distributed.two_ranks import needs_gloo, run_on_two_ranks
from scipy.stats import spearmanr
from sklearn.covariance import LedoitWolf

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.detection import AnomalyDetector
from monai_afire.inferers import AutocastInferer
from monai_afire.networks import AFiRe
from unit.tiny_networks import tiny_vit


def make_network(seed: int = 0, **options: object) -> AFiRe:
    torch.manual_seed(seed)
    network = AFiRe(tiny_vit(), 6, 12, 16, 1, 2, **options)
    with torch.no_grad():
        network.bank.update(torch.rand(4, 16, 6).softmax(-1))
        for parameter in network.teacher_encoder.parameters():
            # teacher and student must not be mistaken
            parameter += 0.05 * torch.randn_like(parameter)
    return network.eval()


SCORE_NAMES = AnomalyDetector(make_network()).score_names


@pytest.fixture
def normal_images() -> torch.Tensor:
    return torch.rand(30, 1, 32, 32, generator=torch.Generator().manual_seed(1))


def fitted(normal_images: torch.Tensor, **options: object) -> AnomalyDetector:
    detector = AnomalyDetector(make_network(), **options).eval()  # type: ignore[arg-type]
    detector.fit(normal_images.split(7))
    return detector


@torch.no_grad()
def naive_masked_errors(network: AFiRe, image: torch.Tensor) -> torch.Tensor:
    """(L, 8, 8): errors of each patch, restored with the tokens of even steps in rows and columns hidden."""
    hidden = torch.tensor(
        [
            [(k // 4 - j // 4) % 2 == 0 and (k % 4 - j % 4) % 2 == 0 for k in range(16)]
            for j in range(16)
        ]
    )
    student = network.encoder(image[None]).expand(16, -1, -1)
    restored = network.decoder(student, hidden)
    x = ((image - 0.449) / 0.226)[0]
    patches = [x[r : r + 8, c : c + 8] for r in range(0, 32, 8) for c in range(0, 32, 8)]
    return torch.stack([patches[j] - restored[j, j].view(8, 8) for j in range(16)])


@torch.no_grad()
def naive_raw_maps(network: AFiRe, density: torch.nn.Module, image: torch.Tensor) -> np.ndarray:
    """(4, L) of one image, token by token: all but the neighbors."""
    student = network.encoder(image[None])
    x = ((image - 0.449) / 0.226)[0]
    patches = [x[r : r + 8, c : c + 8].flatten() for r in range(0, 32, 8) for c in range(0, 32, 8)]
    restored = network.decoder(student)[0]
    q = torch.softmax(network.head(student)[0] / 0.1, -1)
    masked = naive_masked_errors(network, image)
    teacher = network.teacher_encoder(image[None])[0]
    rows = np.zeros((4, 16))
    for j in range(16):
        rows[0, j] = float(((restored[j] - patches[j]) ** 2).sum())
        rows[1, j] = float((masked[j] ** 2).sum())
        logarithms = [math.log(float(p) + 1e-8) for p in network.bank.prototypes[j]]
        rows[2, j] = -sum(float(q[j, k]) * logarithms[k] for k in range(6))
        difference = (teacher[j] - density.mean[j]).double()
        rows[3, j] = math.sqrt(float(difference @ density.precision.double() @ difference))
    return rows


def naive_coarse_errors(network: AFiRe, image: torch.Tensor) -> np.ndarray:
    """(L, 16): mean error of each 2 x 2 pixels of each patch, restored with every second one hidden."""
    corners = [(r, c) for r in range(0, 8, 2) for c in range(0, 8, 2)]
    errors = naive_masked_errors(network, image)
    return np.array([[float(e[r : r + 2, c : c + 2].mean()) for r, c in corners] for e in errors])


def naive_neighbors(normal: np.ndarray, every: np.ndarray, dim: int) -> np.ndarray:
    """(M, L): mean distance to the three nearest normal images', along the directions of most variance."""
    deviations = (normal - normal.mean(0)).reshape(-1, normal.shape[-1])
    _, singular, directions = np.linalg.svd(deviations, full_matrices=False)
    directions = directions[:dim].T / np.sqrt(np.mean(singular[:dim] ** 2 / len(deviations)))
    result = np.zeros(every.shape[:2])
    for i, features in enumerate(every):
        for j in range(features.shape[0]):
            # `every` begins with the normal ones
            others = [n for n in range(len(normal)) if n != i]
            distances = sorted(
                np.linalg.norm((features[j] - normal[n, j]) @ directions) for n in others
            )
            result[i, j] = np.mean(distances[:3])
    return result


def naive_mean_token_distances(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the first 30 images (normal) to a Gaussian of those of the other parity; of the others to one of all 30."""
    vectors = tokens[:, [5, 6, 9, 10]].mean(1)  # of 4 x 4 tokens those off the border
    normal, new = vectors[:30], vectors[30:]
    even = np.arange(30) % 2 == 0
    held_out = np.zeros(30)
    for half in (even, ~even):
        held_out[half] = np.sqrt(LedoitWolf().fit(normal[~half]).mahalanobis(normal[half]))
    return held_out, np.sqrt(LedoitWolf().fit(normal).mahalanobis(new))


def test_scores_and_maps_equal_the_naive_ones(normal_images: torch.Tensor) -> None:
    fusion = ("restoration", "token_neighbors")
    both = ("token_mean_density", "token_neighbors")
    detector = fitted(normal_images, k_fraction=0.2, fusion=fusion, score_fusion=both)
    images = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(2))
    every = torch.cat([normal_images, images])
    rows = [naive_raw_maps(detector.network, detector.density, image) for image in every]
    with torch.no_grad():
        tokens = detector.network.encoder(every).numpy()
    residuals = np.stack([naive_coarse_errors(detector.network, image) for image in every])
    neighbors = [
        naive_neighbors(tokens[:30], tokens, 24),
        naive_neighbors(residuals[:30], residuals, 16),
    ]
    every_raw = np.concatenate([np.stack(rows), np.stack(neighbors, 1)], 1)
    raw_normal, raw = every_raw[:30], every_raw[30:]
    inside = [5, 6, 9, 10]
    top_3 = lambda values: np.sort(values)[-3:].mean()  # noqa: E731
    aggregate = lambda values: values[inside].mean()  # noqa: E731
    held_out, distances = naive_mean_token_distances(tokens)
    standard = [(rows - raw_normal.mean(0)) / raw_normal.std(0, ddof=1) for rows in raw_normal]
    neighbor_scores = [aggregate(maps[4]) for maps in standard]
    outputs = detector(images)
    for index, rows in enumerate(raw):
        maps = (rows - raw_normal.mean(0)) / raw_normal.std(0, ddof=1)
        heat = (maps[0] + maps[4]) / 2
        eq_51 = math.log(np.mean(np.exp(rows[0])))
        expected = [
            eq_51,
            *(aggregate(maps[i]) for i in range(1, 6)),
            rows[0].mean() / 64,
            distances[index],
            top_3(heat),
        ]
        fused = (distances[index] - held_out.mean()) / held_out.std(ddof=1)
        fused += (aggregate(maps[4]) - np.mean(neighbor_scores)) / np.std(neighbor_scores, ddof=1)
        np.testing.assert_allclose(
            outputs["scores"][index], [*expected, fused / 2], rtol=5e-3, atol=1e-2
        )
        np.testing.assert_allclose(outputs["maps"][index], [*maps, heat], rtol=5e-3, atol=2e-2)
    torch.testing.assert_close(outputs["tokens"], detector.network.teacher_encoder(images))


def test_statistics_travel_in_the_state_dict(normal_images: torch.Tensor) -> None:
    detector = fitted(normal_images)
    detector.fit_thresholds(detector(normal_images)["scores"].detach())
    other = AnomalyDetector(make_network(seed=5)).eval()
    other.load_state_dict(detector.state_dict())
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(other(images), detector(images), rtol=0, atol=0)
    torch.testing.assert_close(other.thresholds, detector.thresholds)
    torch.testing.assert_close(other.heat_range, detector.heat_range)


def test_images_that_cannot_be_judged_are_refused(normal_images: torch.Tensor) -> None:
    detector = AnomalyDetector(make_network()).eval()
    with pytest.raises(RuntimeError, match="fitted"):
        detector(normal_images)
    with pytest.raises(RuntimeError, match="list or a loader"):
        detector.fit(batch for batch in normal_images.split(7))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_scores_are_finite_and_differ_for_hostile_images(
    normal_images: torch.Tensor, value: float
) -> None:
    detector = fitted(normal_images)
    with torch.no_grad():
        detector.network.decoder.to_pixels.weight.mul_(1e4)  # Eq. 51 as printed would overflow
    images = torch.full((6, 1, 32, 32), value)
    # nearly the same image six times: a corner of a patch, as what one pixel moves may be less than float32 can tell
    images[:, 0, :4, :4] = torch.linspace(0, 1, 6).view(6, 1, 1)
    outputs = detector(images)
    assert outputs["maps"].isfinite().all()
    assert all(len(column.unique()) == 6 for column in outputs["scores"].T)


def test_positions_that_never_change_do_not_divide_by_zero() -> None:
    images = torch.rand(12, 1, 32, 32)
    images[:, :, :, :16] = 0.0
    detector = fitted(images)
    assert detector(images)["scores"].isfinite().all()


def test_quantile_threshold_keeps_the_specificity() -> None:
    detector = AnomalyDetector(make_network())
    scores = torch.randn(400, len(SCORE_NAMES), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(400) >= 300
    scores[labels] += 100  # abnormal ones must not move the quantile of the normal ones
    detector.fit_thresholds(scores, labels, specificity=0.9)
    below = (scores[:300] < detector.thresholds).float().mean(0)
    assert ((below - 0.9).abs() < 0.01).all()
    detector.fit_thresholds(scores, labels, specificity=None)  # the best F1
    assert ((detector.thresholds > 10) & (detector.thresholds <= scores[300:].amin(0))).all()


@pytest.mark.parametrize(
    ("labels", "specificity", "words"),
    [(torch.ones(4), 0.95, "normal"), (torch.zeros(4), None, "abnormal")],
)
def test_thresholds_need_the_right_images(
    labels: torch.Tensor, specificity: float | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        AnomalyDetector(make_network()).fit_thresholds(torch.rand(4, 10), labels, specificity)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"fusion": ("restoration_mean",)}, "fusion"),
        ({"score_fusion": ("fused",)}, "score_fusion"),
        ({"layers": "first"}, "layers"),
        ({"k_fraction": 0.0}, "k_fraction"),
        ({"field_of_view": "heart"}, "field_of_view"),
        ({"network": make_network(restore=False)}, "decoder"),
    ],
)
def test_wrong_settings_are_named(options: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        AnomalyDetector(**{"network": make_network(), **options})


def test_heat_map_is_upsampled_in_place() -> None:
    detector = AnomalyDetector(make_network())
    token_map = torch.zeros(1, 16)
    token_map[0, 6] = 1.0  # second row, third column of 4 x 4
    heat = detector.heat_map(torch.rand(1, 1, 32, 32), token_map)
    assert heat.shape == (1, 1, 32, 32)
    row, column = divmod(int(heat.argmax()), 32)
    assert 8 <= row < 16
    assert 16 <= column < 24
    # normal images, too, are hot at the border, where no score looks
    heat = detector.heat_map(torch.rand(1, 1, 32, 32), torch.ones(1, 16))
    assert heat[..., 14:18, 14:18].eq(1).all()
    assert heat[..., 0].eq(0).all()


def test_half_precision_ranks_the_phantom_alike() -> None:
    phantoms = [draw_chest_phantom(seed, 32).image for seed in range(24)]
    images = torch.stack([torch.as_tensor(image) for image in phantoms])
    detector = fitted(images[:14])
    with torch.no_grad():
        expected = detector(images)["scores"]
        scores = AutocastInferer(dtype=torch.bfloat16)(images, detector)["scores"]
    assert scores.dtype == torch.float32
    for number, name in enumerate(SCORE_NAMES):
        correlation = spearmanr(expected[:, number], scores[:, number]).statistic
        # the Gaussian of the mean tokens also looks where they hardly vary, which rounding does not spare
        least = 0.99 if name in ("token_mean_density", "fused") else 0.998
        assert correlation >= least, f"{name}: {correlation:.5f}"


def fit_on_rank(rank: int, world_size: int) -> dict[str, torch.Tensor]:
    """The images are the same on both ranks, as in the bundle that fits a detector on several GPUs."""
    images = torch.rand(30, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    detector = fitted(images)
    detector.fit_thresholds(detector(images)["scores"])
    return detector.state_dict()


@pytest.mark.slow
@needs_gloo
def test_every_process_fits_the_detector_of_one(tmp_path: Path) -> None:
    expected = fit_on_rank(0, 1)
    for state in run_on_two_ranks(fit_on_rank, tmp_path):
        # NaN: no scores of normal images
        torch.testing.assert_close(state, expected, equal_nan=True)
