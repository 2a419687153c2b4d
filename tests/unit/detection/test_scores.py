# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A map of one's own in a detector, and that each output of the network is computed once and only if needed."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from monai_afire.apps.exchange import export_network
from monai_afire.detection import TOKEN_MAPS, AnomalyDetector, TokenMap
from monai_afire.networks import AFiRe, ViTEncoder
from unit.tiny_networks import tiny_vit


def brightness(detector: AnomalyDetector, patches: torch.Tensor) -> torch.Tensor:
    return patches.mean(-1)


class OwnDetector(AnomalyDetector):
    """A map of one's own beside two known ones."""

    token_maps: ClassVar = {
        "brightness": TokenMap("patches", brightness, in_heat_map=True),
        **{name: TOKEN_MAPS[name] for name in ("token_density", "token_neighbors")},
    }


def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return tiny_vit()


def network() -> AFiRe:
    built = AFiRe(encoder(), 8, 16, 16, 1, 2)
    with torch.no_grad():
        built.bank.update(torch.rand(4, 16, 8).softmax(-1))
    return built.eval()


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, 32, 32, generator=torch.Generator().manual_seed(seed))


def own_detector() -> AnomalyDetector:
    detector = OwnDetector(encoder(), score_fusion=["brightness"], memory_size=40).eval()
    detector.fit(images(30).split(8))
    return detector


def test_a_map_of_ones_own_stands_beside_the_known_ones() -> None:
    detector, new = own_detector(), images(4, seed=1)
    assert detector.map_names == ("brightness", "token_density", "token_neighbors")
    assert detector.score_names == (*detector.map_names, "token_mean_density", "focal", "fused")
    outputs = detector(new)
    patches = [
        images(count, seed).unfold(2, 8, 8).unfold(3, 8, 8).mean((1, 4, 5)).flatten(1) / 0.226
        for count, seed in ((30, 0), (4, 1))
    ]
    expected = (patches[1] - patches[0].mean(0)) / patches[0].std(0)
    torch.testing.assert_close(outputs["maps"][:, 0], expected, rtol=1e-3, atol=1e-3)
    interior = expected.reshape(4, 4, 4)[:, 1:3, 1:3].mean((1, 2))
    torch.testing.assert_close(outputs["scores"][:, 0], interior, rtol=1e-3, atol=1e-3)
    # by default the heat map is the mean of the maps that say so
    heat = (outputs["maps"][:, 0] + outputs["maps"][:, 2]) / 2
    torch.testing.assert_close(outputs["maps"][:, -1], heat)
    known = AnomalyDetector(encoder(), memory_size=40).eval()
    known.fit(images(30).split(8))
    torch.testing.assert_close(outputs["maps"][:, 1:3], known(new)["maps"][:, :2])


def test_a_copy_measures_by_its_own_statistics() -> None:
    detector, new = own_detector(), images(3, seed=1)
    expected = detector(new)["scores"]
    other = copy.deepcopy(detector)
    assert torch.equal(other(new)["scores"], expected)
    other.fit(images(30, seed=7).split(8))
    assert not torch.equal(other(new)["scores"], expected)
    assert torch.equal(detector(new)["scores"], expected)


@pytest.mark.slow
def test_a_map_of_ones_own_is_exported(tmp_path: Path) -> None:
    detector, path = own_detector(), tmp_path / "detector.pt2"
    export_network(detector, path, (1, 32, 32))
    graph, new = torch.export.load(path).module(), images(5, seed=1)
    torch.testing.assert_close(graph(new)["scores"], detector(new)["scores"], rtol=1e-4, atol=1e-4)


def count_passes(detector: AnomalyDetector, batch: torch.Tensor) -> Counter[str]:
    """How often each part of the network runs for a batch."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> object:
        return lambda module, arguments, output: counts.update([name])

    for name, part in detector.network.named_children():
        part.register_forward_hook(counted(name))
    detector(batch)
    return counts


def test_each_part_of_the_network_runs_once() -> None:
    detector = AnomalyDetector(network(), memory_size=40).eval()
    detector.fit([images(30)])
    once = {"encoder": 1, "teacher_encoder": 1, "head": 1, "decoder": 2}  # plain and masked
    assert count_passes(detector, images(2)) == once
