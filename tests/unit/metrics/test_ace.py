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


@pytest.mark.parametrize("seed", range(5))
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


def test_ends_of_the_range() -> None:
    place = offsets(1)
    composition, decomposition = ace.matching_targets(place["offset_1"], place["offset_2"], CROPS)
    for sign, expected in ((1, 1.0), (-1, 0.0)):
        logits = {
            "composition_logits": sign * composition,
            "decomposition_logits": sign * decomposition,
        }
        metrics = ace_metrics(place | logits)
        assert metrics["composition_accuracy"] == metrics["decomposition_accuracy"] == expected


def test_global_information_tells_a_collapse() -> None:
    place = offsets(0, images=4)
    apart = torch.eye(8).view(4, 2, 8)
    assert ace_metrics(place | {"global_teacher": apart})[
        "global_information"
    ].item() == pytest.approx(1.0)
    alike = torch.softmax(torch.randn(8), 0).expand(4, 2, 8)
    assert ace_metrics(place | {"global_teacher": alike})[
        "global_information"
    ].item() == pytest.approx(0.0, abs=1e-6)


def test_parts_may_be_missing() -> None:
    assert ace_metrics(offsets(0)) == {}
    metrics = ace_metrics(offsets(0) | {"decomposition_logits": torch.randn(3, 16, 64)})
    assert list(metrics) == ["decomposition_accuracy", "chance"]


def test_no_overlap_counts_nothing() -> None:
    place = offsets(0)
    place["offset_1"] = place["offset_2"] + 20
    metrics = ace_metrics(place | {"composition_logits": torch.randn(3, 16, 4)})
    assert metrics["composition_accuracy"].isnan()


def test_nothing_waits_for_the_device() -> None:
    outputs = offsets(0) | {
        "composition_logits": torch.randn(3, 16, 4),
        "decomposition_logits": torch.randn(3, 16, 64),
    }
    for value in ace_metrics({name: value.to("meta") for name, value in outputs.items()}).values():
        assert value.device.type == "meta"
        assert not value.requires_grad


def test_correspondence_names_the_nearest_and_the_right_patch() -> None:
    place = offsets(3)
    targets = ace.matching_targets(place["offset_1"], place["offset_2"], CROPS)
    for part, target in zip(("composition", "decomposition"), targets, strict=True):
        nearest, matches = ace_correspondence(place | {f"{part}_logits": target}, part)
        assert torch.equal(matches >= 0, (target == 1).any(1))
        assert torch.equal(nearest[matches >= 0], matches[matches >= 0])
