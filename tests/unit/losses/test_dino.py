# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DINO's loss against loops, by hand, and against lightly's; its two parts tell a collapse."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from naive import dino

from monai_afire.losses import DINOLoss, MultiCropCrossEntropy
from monai_afire.networks import DINO, ViTEncoder

LIGHTLY = (
    "lightly is not installed (pip install --no-deps lightly): DINO's loss is not compared with its"
)


def scores(
    seed: int, images: int = 3, seen: int = 2, crops: int = 5, width: int = 7
) -> tuple[torch.Tensor, ...]:
    """Scores of a student and a teacher, and a center."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((images, crops, width), (images, seen, width), (width,))
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


def as_outputs(
    student: torch.Tensor, teacher: torch.Tensor, center: torch.Tensor
) -> dict[str, torch.Tensor]:
    return {
        "student": (student / 0.1).log_softmax(-1),
        "teacher": ((teacher - center) / 0.4).softmax(-1),
    }


@pytest.mark.parametrize(("seen", "crops"), [(2, 5), (2, 2), (1, 3), (3, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_loss_and_gradient_equal_loops(seed: int, seen: int, crops: int) -> None:
    student, teacher, center = scores(seed, seen=seen, crops=crops)
    student.requires_grad_()
    loss_function = DINOLoss()
    loss = loss_function(as_outputs(student, teacher, center))
    expected = dino.dino_loss(student, teacher, center, 0.1, 0.4)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    ours, theirs = (torch.autograd.grad(value, student)[0] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert ours[:, 1:].abs().min() > 0
    rows = [dino.softmax(row - center, 0.4) for row in teacher.flatten(0, 1)]
    entropy = sum(map(dino.entropy, rows)) / len(rows)
    assert float(loss_function.terms["entropy"]) == pytest.approx(entropy)
    assert float(loss_function.terms["divergence"]) == pytest.approx(
        float(expected.detach()) - entropy
    )


def test_hand_computed() -> None:
    """One image; the teacher is certain of prototype 0 in both crops, the third crop is the student's alone."""
    teacher = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    student = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.125, 0.875]]]).log()
    # pairs (0,1), (0,2), (1,0), (1,2): log 4 + log 8 + log 2 + log 8 = 9 log 2
    assert float(MultiCropCrossEntropy()(student, teacher)) == pytest.approx(9 * math.log(2) / 4)


def lightlys_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """lightly's file of the loss alone, whose package asks for torchvision and more; skips without it."""
    found = importlib.util.find_spec("lightly")
    if found is None or not found.submodule_search_locations:
        pytest.skip(LIGHTLY)
    root = Path(found.submodule_search_locations[0])
    modules = {}
    for name, path in (("center", "models/modules/center.py"), ("dino", "loss/dino_loss.py")):
        spec = importlib.util.spec_from_file_location(f"lightlys_{name}", root / path)
        assert spec is not None
        assert spec.loader is not None
        modules[name] = importlib.util.module_from_spec(spec)
        if name == "dino":
            package = ModuleType("lightly.models.modules")
            package.center = modules["center"]  # type: ignore[attr-defined]
            for parent in ("lightly", "lightly.models"):
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
            monkeypatch.setitem(sys.modules, "lightly.models.modules", package)
            monkeypatch.setitem(sys.modules, "lightly.models.modules.center", modules["center"])
        spec.loader.exec_module(modules[name])
    return modules["dino"]


def test_network_and_loss_equal_lightlys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, gradients and the center over three steps."""
    theirs = (
        lightlys_module(monkeypatch)
        .DINOLoss(output_dim=7, teacher_temp=0.4, student_temp=0.1)
        .double()
    )
    encoder = ViTEncoder(img_size=8, patch_size=8, hidden_size=8, num_layers=1, num_heads=2)
    network = DINO(
        encoder, num_prototypes=7, head_dim=4, bottleneck_dim=4, teacher_temperature=0.4
    ).double()
    for seed in range(3):
        student, teacher, _ = scores(seed)
        student.requires_grad_()
        targets = network._teacher_distribution(teacher.flatten(0, 1)).unflatten(
            0, teacher.shape[:2]
        )
        loss = DINOLoss()({"student": (student / 0.1).log_softmax(-1), "teacher": targets})
        expected = theirs(list(teacher.unbind(1)), list(student.unbind(1)), teacher_temp=0.4)
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
        ours, other = (torch.autograd.grad(value, student)[0] for value in (loss, expected))
        torch.testing.assert_close(ours, other, rtol=1e-6, atol=1e-10)
        torch.testing.assert_close(network.center, theirs.center.flatten(), rtol=1e-10, atol=1e-12)
