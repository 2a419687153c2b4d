# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""PEAC's figures of pre-training against loops and cases by hand."""

from __future__ import annotations

import itertools

import pytest
import torch

from monai_afire.metrics.peac import PEACMetrics, order_accuracy, peac_correspondence, peac_metrics
from monai_afire.metrics.pretraining import correspondence_accuracy, embedding_spread
from monai_afire.networks import PEAC
from unit.tiny_networks import tiny_vit


def test_order_accuracy_equals_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, 4, generator=generator)
    order = torch.stack([torch.randperm(4, generator=generator) for _ in range(5)])
    shuffled = torch.tensor([True, False, True, True, False])
    right = [
        int(logits[b, n].argmax()) == int(order[b, n])
        for b, n in itertools.product([0, 2, 3], range(4))
    ]
    assert order_accuracy(logits, order, shuffled).item() == pytest.approx(sum(right) / len(right))


def test_correspondence_accuracy_equals_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(2, 6, 3, generator=generator) * torch.rand(2, 6, 1, generator=generator)
    matches = torch.tensor([[5, 4, -1, 0], [-1, 1, 2, 3]])
    partners = teacher.gather(1, matches.clamp_min(0).unsqueeze(2).expand(-1, -1, 3))
    student = partners / partners.norm(dim=-1, keepdim=True) + 0.8 * torch.randn(
        2, 4, 3, generator=generator
    )
    right = []
    for b, m in itertools.product(range(2), range(4)):
        if matches[b, m] >= 0:
            angles = [
                torch.nn.functional.cosine_similarity(student[b, m], t, dim=0) for t in teacher[b]
            ]
            right.append(int(torch.stack(angles).argmax()) == int(matches[b, m]))
    outputs = {"local_2": student, "teacher_local_1": teacher, "matches_2": matches}
    nearest, found = peac_correspondence(outputs)
    assert torch.equal(found, matches)
    accuracy = correspondence_accuracy(nearest, matches)
    assert accuracy.item() == pytest.approx(sum(right) / len(right))
    assert 0 < accuracy < 1
    longer = outputs | {"local_2": 7 * student, "teacher_local_1": 3 * teacher}
    assert torch.equal(peac_correspondence(longer)[0], nearest)
    assert correspondence_accuracy(nearest, -torch.ones_like(matches)).isnan()


def test_spread_is_the_mean_distance_of_all_pairs() -> None:
    embeddings = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = itertools.product(embeddings, embeddings)
    distances = [1 - float(a @ b) / float(a.norm() * b.norm()) for a, b in pairs]
    assert embedding_spread(embeddings).item() == pytest.approx(sum(distances) / 25, abs=1e-9)


def tiny_outputs(prob: float, images: int = 4, **options: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    network = PEAC(tiny_vit(img_size=16), 6, 10, **options).eval()
    image = torch.rand(images, 1, 16, 16)
    shuffled = torch.arange(images) < round(prob * images)
    offsets = torch.zeros(images, 2, dtype=torch.int64), torch.ones(images, 2, dtype=torch.int64)
    with torch.no_grad():
        return network(
            image, image, image.flip(-1), torch.arange(4).expand(images, 4), shuffled, *offsets
        )


@pytest.mark.parametrize(
    ("prob", "images", "options", "undefined"),
    [
        (0.5, 4, {}, set()),
        (0.0, 4, {}, {"order_accuracy"}),
        (1.0, 1, {}, {"restoration_gain", "global_spread"}),
        (
            0.5,
            4,
            {"classify_order": False, "restore": False},
            {"order_accuracy", "restoration_gain"},
        ),
        (0.5, 4, {"global_consistency": False}, {"global_spread"}),
        (0.5, 4, {"local_consistency": False}, {"correspondence_accuracy", "local_spread"}),
    ],
)
def test_metrics_of_every_part(
    prob: float, images: int, options: dict[str, bool], undefined: set[str]
) -> None:
    figures = peac_metrics(tiny_outputs(prob, images, **options))
    defined = {name: float(value) for name, value in figures.items() if not value.isnan()}
    assert defined.keys() == set(PEACMetrics.names) - undefined
    defined.pop("restoration_gain", None)
    assert all(0 <= value <= 1 for value in defined.values())


def test_metrics_are_those_of_the_parts() -> None:
    outputs = tiny_outputs(0.5)
    outputs["restored"] = (
        outputs["target"] + outputs["corrupted"]
    ) / 2  # half of the way: 3/4 of the squared error
    outputs["restored"][outputs["shuffled"]] = 1e3
    outputs["local_2"] = outputs["teacher_local_1"].roll(-3, dims=1)  # row 0 is the teacher's row 3
    figures = peac_metrics(outputs)
    assert figures["restoration_gain"].item() == pytest.approx(0.75, abs=1e-5)
    assert outputs["matches_2"][0].tolist() == [3, -1, -1, -1]
    assert figures["correspondence_accuracy"] == 1.0
    spread = embedding_spread(outputs["teacher_local_1"].flatten(0, 1))
    assert figures["local_spread"] == spread
    assert figures["global_spread"] == embedding_spread(outputs["global_2"])
    outputs["corrupted"] = outputs["target"]  # nothing was distorted: nothing to restore
    assert peac_metrics(outputs)["restoration_gain"].isnan()
