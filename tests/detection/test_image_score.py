# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Scores of one's own in a detector, and that each output of the network is computed once and only if needed."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from monai_afire.apps.exchange import export_network
from monai_afire.detection import SCORES, AnomalyDetector, ImageScore, TokenMap
from monai_afire.detection.described_images import DescribedImages
from monai_afire.detection.image_score import MeasuredImages, ScoreSettings
from monai_afire.detection.normal_statistics import TokenDensity
from monai_afire.detection.scores import SCORE_NAMES
from monai_afire.networks import AFiRe, ViTEncoder


class Brightness(TokenMap):
    """Mahalanobis distance of a patch's mean and spread to normal ones."""

    name = "brightness"
    in_heat_map = True
    statistics: TokenDensity

    def __init__(self, settings: ScoreSettings) -> None:
        super().__init__(settings)
        self.statistics = TokenDensity(settings.num_tokens, 2, shrinkage=0.01)

    def look(self, images: DescribedImages) -> torch.Tensor:
        return torch.stack([images.patches.mean(-1), images.patches.std(-1)], -1)

    def update(self, images: DescribedImages) -> None:
        self.statistics.update(self.look(images))

    def measure_tokens(
        self, seen: torch.Tensor, owners: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.statistics(seen)


class Hottest(ImageScore):
    """The hottest token."""

    name = "hottest"

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        return images.fused_map.amax(1)


class ImageMean(ImageScore):
    """Of the image itself, of which a fit keeps nothing."""

    name = "image_mean"

    def measure(self, images: MeasuredImages) -> torch.Tensor:
        return images.described.image.mean((1, 2, 3))


class OwnDetector(AnomalyDetector):
    """A subset of the scores, in another order, with two more."""

    score_kinds = (Brightness, *SCORES[3:5], Hottest)


class OneTooMany(AnomalyDetector):
    """A score that says nothing about the normal images of the fit."""

    score_kinds = (*SCORES, ImageMean)


def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)


def network() -> AFiRe:
    built = AFiRe(encoder(), 8, 16, 16, 1, 2)
    with torch.no_grad():
        built.bank.update(torch.rand(4, 16, 8).softmax(-1))
    return built.eval()


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, 32, 32, generator=torch.Generator().manual_seed(seed))


def own_detector() -> AnomalyDetector:
    detector = OwnDetector(encoder(), score_fusion=["hottest"], memory_size=40).eval()
    detector.fit(images(30).split(8))
    return detector


def naive_brightness(normal: np.ndarray, new: np.ndarray) -> np.ndarray:
    """(M, 16) of new images, patch by patch; plain covariance, as the default shrinkage of 1 % has its own test."""

    def described(each: np.ndarray) -> np.ndarray:
        rows = (each - 0.449) / 0.226
        patches = [
            rows[:, 0, r : r + 8, c : c + 8].reshape(len(rows), -1)
            for r in range(0, 32, 8)
            for c in range(0, 32, 8)
        ]
        return np.stack([np.stack([p.mean(1), p.std(1, ddof=1)], -1) for p in patches], 1)

    seen = described(normal)
    mean = seen.mean(0)
    deviations = (seen - mean).reshape(-1, 2)
    covariance = deviations.T @ deviations / ((len(normal) - 1) * 16)
    covariance = 0.99 * covariance + 0.01 * np.trace(covariance) / 2 * np.eye(2)
    difference = described(new) - mean
    return np.sqrt(np.einsum("nld,de,nle->nl", difference, np.linalg.inv(covariance), difference))


def test_scores_of_a_subclass_stand_beside_the_known_ones() -> None:
    detector, new = own_detector(), images(4, seed=1)
    assert detector.map_names == ("brightness", "token_density", "token_neighbors")
    assert detector.score_names == (*detector.map_names, "hottest", "fused")
    outputs = detector(new)
    normal_map, new_map = (
        naive_brightness(images(30).double().numpy(), each.double().numpy())
        for each in (images(30), new)
    )
    expected = (new_map - normal_map.mean(0)) / normal_map.std(0, ddof=1)
    np.testing.assert_allclose(outputs["maps"][:, 0], expected, rtol=1e-3, atol=1e-3)
    interior = expected.reshape(4, 4, 4)[:, 1:3, 1:3].mean((1, 2))
    np.testing.assert_allclose(outputs["scores"][:, 0], interior, rtol=1e-3, atol=1e-3)
    # by default the heat map is the mean of the maps that say so
    heat = (outputs["maps"][:, 0] + outputs["maps"][:, 2]) / 2
    torch.testing.assert_close(outputs["maps"][:, -1], heat)
    torch.testing.assert_close(outputs["scores"][:, 3], heat.amax(1))
    hottest = (heat.amax(1) - detector.score_mean[3]) / detector.score_std[3]
    torch.testing.assert_close(outputs["scores"][:, -1], hottest)
    known = AnomalyDetector(encoder(), memory_size=40).eval()
    known.fit(images(30).split(8))
    torch.testing.assert_close(outputs["maps"][:, 1:3], known(new)["maps"][:, :2])


def test_statistics_of_an_own_score_travel_in_the_state_dict() -> None:
    detector = own_detector()
    state = detector.state_dict()
    assert {"brightness.mean", "density.mean", "token_memory.references"} <= set(state)
    assert not any(name.startswith(("image_density", "residual_memory")) for name in state)
    other = OwnDetector(encoder(), score_fusion=["hottest"], memory_size=40).eval()
    other.load_state_dict(state)
    assert torch.equal(other(images(3, seed=1))["scores"], detector(images(3, seed=1))["scores"])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_measures_by_its_own_statistics(again: object) -> None:
    detector, new = own_detector(), images(3, seed=1)
    expected = detector(new)["scores"]
    other = again(detector)  # type: ignore[operator]
    assert torch.equal(other(new)["scores"], expected)
    other.fit(images(30, seed=7).split(8))
    assert not torch.equal(other(new)["scores"], expected)
    assert torch.equal(detector(new)["scores"], expected)


def test_an_own_score_is_exported(tmp_path: Path) -> None:
    detector, path = own_detector(), tmp_path / "detector.pt2"
    export_network(detector, path, (1, 32, 32))
    graph, new = torch.export.load(path).module(), images(5, seed=1)
    torch.testing.assert_close(graph(new)["scores"], detector(new)["scores"], rtol=1e-4, atol=1e-4)


def test_a_score_of_the_images_needs_one_of_the_normal_images() -> None:
    with pytest.raises(RuntimeError, match="needs measure_normal"):
        OneTooMany(network(), memory_size=40).fit([images(30)])


def test_names_that_are_taken_are_refused() -> None:
    class Twice(AnomalyDetector):
        score_kinds = (*SCORES, Hottest, Hottest)

    class NamedFused(Hottest):
        name = "fused"

    class Fused(AnomalyDetector):
        score_kinds = (*SCORES, NamedFused)

    class KeptAsViews(Brightness):
        kept_as = "views"

    class Views(AnomalyDetector):
        score_kinds = (*SCORES, KeptAsViews)

    for kind in (Twice, Fused):
        with pytest.raises(ValueError, match="a name of its own"):
            kind(encoder())
    with pytest.raises(ValueError, match=r"'views' already: .* another kept_as"):
        Views(encoder())


def count_passes(detector: AnomalyDetector, batch: torch.Tensor) -> Counter[str]:
    """How often each part of the network runs for a batch."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> object:
        return lambda module, arguments, output: counts.update([name])

    for name, part in detector.network.named_children():
        part.register_forward_hook(counted(name))
    detector(batch)
    return counts


@pytest.mark.parametrize(
    ("score_fusion", "of_a_view"),
    [
        (("token_mean_density", "token_neighbors"), {"encoder"}),
        (("token_density",), {"teacher_encoder"}),
        (("restoration_mean",), {"encoder", "decoder"}),
        (("masked_restoration",), {"encoder", "decoder"}),
        (("prototype_distance",), {"encoder", "head"}),
        (("focal",), {"encoder", "decoder", "head"}),
    ],
)
def test_a_view_costs_the_passes_that_the_fusion_needs(
    score_fusion: tuple[str, ...], of_a_view: set[str]
) -> None:
    detector = AnomalyDetector(network(), memory_size=40, score_fusion=score_fusion).eval()
    detector.fit([images(30)])
    one = {"encoder": 1, "teacher_encoder": 1, "head": 1, "decoder": 2}  # plain and masked
    assert count_passes(copy.deepcopy(detector), images(2)) == one
    detector.views = 3
    expected = Counter(one) + Counter(dict.fromkeys(of_a_view, 2))
    assert count_passes(detector, images(2)) == expected


def test_an_output_of_the_network_is_computed_once() -> None:
    class Counting(nn.Module):
        def __init__(self, encoder: nn.Module) -> None:
            super().__init__()
            self.encoder, self.calls = encoder, 0
            encoder.register_forward_hook(self.count)

        def count(self, *_: object) -> None:
            self.calls += 1

    frozen = Counting(encoder())
    described = DescribedImages(frozen, images(2), torch.ones(16).bool())
    assert described.patches.shape == (2, 16, 64)
    assert frozen.calls == 0
    assert described.student_tokens is described.teacher_tokens
    assert described.mean_feature.shape == (2, 24)
    assert frozen.calls == 1


def test_names_follow_from_the_classes() -> None:
    assert tuple(kind.name for kind in SCORES) == SCORE_NAMES[:-1]
    assert AnomalyDetector(network()).score_names == SCORE_NAMES
    assert AnomalyDetector(network()).map_names == SCORE_NAMES[:6]
