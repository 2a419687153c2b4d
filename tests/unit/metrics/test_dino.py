# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of DINO against loops; what they say of a collapse."""

from __future__ import annotations

import pytest
import torch

from monai_afire.metrics import crop_accuracy
from monai_afire.metrics.dino import dino_metrics


def difference(row: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Of one image's scores from the mean of all images', both without their own mean."""
    return (row - row.mean()) - torch.stack([other - other.mean() for other in rows]).mean(0)


def naive_accuracy(student: torch.Tensor, teacher: torch.Tensor) -> float:
    """Image by image and pair by pair."""
    right = []
    for image, views in enumerate(student):
        for place in range(teacher.shape[1]):
            for crop, view in enumerate(views):
                if crop != place:
                    mine = difference(view, student[:, crop])
                    scores = [other[place].log() for other in teacher]
                    known = [difference(score, torch.stack(scores)) for score in scores]
                    cosines = [
                        float(mine @ other / (mine.norm() * other.norm())) for other in known
                    ]
                    right.append(cosines.index(max(cosines)) == image)
    return sum(right) / len(right)


@pytest.mark.parametrize(("seen", "crops"), [(2, 5), (1, 2)])
def test_accuracy_equals_loops(seen: int, crops: int) -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = (3 * torch.randn(9, seen, 6, generator=generator)).softmax(-1)
    base = torch.cat([teacher, teacher[:, :1].repeat(1, crops - seen, 1)], 1).log()
    student = (base + 6 * torch.randn(base.shape, generator=generator)).log_softmax(-1)
    accuracy = float(crop_accuracy(student, teacher))
    assert accuracy == pytest.approx(naive_accuracy(student, teacher))
    assert 1 / 9 < accuracy < 1


def outputs(teacher: torch.Tensor, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    student = torch.cat([teacher, teacher], 1).clamp_min(1e-9).log()
    return {"student": student, "teacher": teacher, "teacher_tokens": tokens}


def test_one_prototype_per_image_is_the_best() -> None:
    teacher = torch.eye(8).unsqueeze(1).repeat(1, 2, 1)
    tokens = torch.eye(8).view(8, 1, 1, 8).repeat(1, 2, 4, 1)
    found = {name: float(value) for name, value in dino_metrics(outputs(teacher, tokens)).items()}
    assert found == pytest.approx(
        {
            "crop_accuracy": 1,
            "chance": 1 / 8,
            "teacher_information": 1,
            "teacher_entropy": 0,
            "feature_spread": 7 / 8,
        }
    )


@pytest.mark.parametrize(("peak", "entropy"), [(0.0, 1.0), (1e3, 0.0)])
def test_a_collapse_is_told(peak: float, entropy: float) -> None:
    scores = torch.zeros(6, 2, 8)
    scores[..., 2] = peak
    found = dino_metrics(outputs(scores.softmax(-1), torch.ones(6, 2, 4, 3)))
    assert found["crop_accuracy"] == found["chance"]
    assert found["teacher_information"] < 1e-6
    assert found["feature_spread"] < 1e-6
    assert float(found["teacher_entropy"]) == pytest.approx(entropy, abs=1e-6)
