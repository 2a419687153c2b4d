# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE's figures of merit: against loops over patches, at both ends of their range, with parts missing."""

from __future__ import annotations

import pytest
import torch
from naive import ace

from monai_afire.metrics.ace import ace_correspondence, ace_metrics

CELLS, CROPS = 4, (4, 8)


def offsets(seed: int, images: int = 3) -> dict[str, torch.Tensor]:
    """Aligned pairs that overlap."""
    generator = torch.Generator().manual_seed(seed)
    offset_2 = torch.randint(0, 5, (images, 2), generator=generator)
    return {
        "offset_1": offset_2 + 2 * torch.randint(-1, 4, (images, 2), generator=generator),
        "offset_2": offset_2,
    }


def naive_accuracy(logits: torch.Tensor, target: torch.Tensor) -> float:
    """Columns whose largest logit is in the row of the exact match, among the columns that have one."""
    right = counted = 0
    for image in range(len(logits)):
        for j in range(logits.shape[2]):
            exact = [i for i in range(logits.shape[1]) if target[image, i, j] == 1]
            if exact:
                counted += 1
                right += int(logits[image, :, j].argmax()) == exact[0]
    return right / max(counted, 1)


@pytest.mark.parametrize("seed", range(2))
def test_accuracies_equal_loops(seed: int) -> None:
    place = offsets(seed)
    targets = ace.matching_targets(place["offset_1"], place["offset_2"], CROPS)
    outputs = dict(place)
    for name, target in zip(("composition", "decomposition"), targets, strict=True):
        torch.manual_seed(seed)
        outputs[f"{name}_logits"] = target + 0.6 * torch.randn(target.shape)
    metrics = ace_metrics(outputs)
    for name, target in zip(("composition", "decomposition"), targets, strict=True):
        expected = naive_accuracy(outputs[f"{name}_logits"], target)
        assert metrics[f"{name}_accuracy"].item() == pytest.approx(expected)
        assert 0.1 < expected < 0.9
    assert metrics["chance"].item() == pytest.approx(1 / 16)


def test_global_information_tells_a_collapse() -> None:
    place = offsets(0, images=4)
    apart = torch.eye(8).view(4, 2, 8)
    alike = torch.softmax(torch.randn(8), 0).expand(4, 2, 8)
    for teacher, expected in ((apart, 1.0), (alike, 0.0)):
        metrics = ace_metrics(place | {"global_teacher": teacher})
        assert float(metrics["global_information"]) == pytest.approx(expected, abs=1e-6)


def test_no_overlap_counts_nothing() -> None:
    place = offsets(0)
    place["offset_1"] = place["offset_2"] + 20
    metrics = ace_metrics(place | {"composition_logits": torch.randn(3, 16, 4)})
    assert list(metrics) == ["composition_accuracy", "chance"]
    assert metrics["composition_accuracy"].isnan()


def test_correspondence_names_the_nearest_and_the_right_patch() -> None:
    place = offsets(3)
    targets = ace.matching_targets(place["offset_1"], place["offset_2"], CROPS)
    for part, target in zip(("composition", "decomposition"), targets, strict=True):
        nearest, matches = ace_correspondence(place | {f"{part}_logits": target}, part)
        assert torch.equal(matches >= 0, (target == 1).any(1))
        assert torch.equal(nearest[matches >= 0], matches[matches >= 0])
