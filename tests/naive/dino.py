# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DINO's loss, center and moving average as plain loops, written from the paper (Eq. 1 to 4, Algorithm 1).

Letters: B images, G crops of the teacher, V crops of the student (those of the teacher first), K prototypes. Everything
takes torch tensors, returns tensors that autograd can differentiate and leaves its arguments unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = [
    "batch_normalized_head_scores",
    "dino_loss",
    "ema",
    "entropy",
    "head_scores",
    "moved_center",
    "softmax",
]


def softmax(scores: Tensor, temperature: float) -> Tensor:
    """Probabilities (K,) of scores (K,)."""
    peak = max(float(score) for score in scores.detach())
    exponentials = [((score - peak) / temperature).exp() for score in scores]
    return torch.stack(exponentials) / torch.stack(exponentials).sum()


def dino_loss(
    student: Tensor, teacher: Tensor, center: Tensor, student_temp: float, teacher_temp: float
) -> Tensor:
    """Mean cross-entropy over images and pairs of different crops, from scores (B,V,K) and (B,G,K)."""
    terms = []
    for image in range(len(teacher)):
        for seen in range(teacher.shape[1]):
            target = softmax(teacher[image, seen].detach() - center, teacher_temp)
            for crop in range(student.shape[1]):
                if crop != seen:
                    guess = softmax(student[image, crop], student_temp)
                    terms.append(
                        -sum(
                            (t * g.log() for t, g in zip(target, guess, strict=True)),
                            torch.zeros(()),
                        )
                    )
    return torch.stack(terms).mean()


def entropy(probabilities: Tensor) -> float:
    """In nats, of (K,)."""
    return -sum(float(p) * math.log(float(p)) for p in probabilities if p > 0)


def moved_center(center: Tensor, teacher: Tensor, momentum: float) -> Tensor:
    """Eq. 4 for scores (B,G,K) of the global batch."""
    mean = torch.zeros_like(center)
    for image in teacher.detach():
        for scores in image:
            mean = mean + scores / (teacher.shape[0] * teacher.shape[1])
    return momentum * center + (1 - momentum) * mean


def ema(
    teacher: Mapping[str, Tensor], student: Mapping[str, Tensor], decay: float
) -> dict[str, Tensor]:
    """The teacher's weights after a step of the student."""
    return {name: decay * value + (1 - decay) * student[name] for name, value in teacher.items()}


def head_scores(weights: Mapping[str, Tensor], embedding: Tensor) -> Tensor:
    """The head (appendix C) on one embedding (D,), from its state dict: (K,)."""
    hidden = embedding
    layers = sorted({int(name.split(".")[2]) for name in weights if name.startswith("mlp.layers.")})
    for layer in layers:
        hidden = (
            weights[f"mlp.layers.{layer}.weight"] @ hidden + weights[f"mlp.layers.{layer}.bias"]
        )
        if layer != layers[-1]:
            hidden = gelu(hidden)
    return prototype_scores(weights, hidden)


def batch_normalized_head_scores(weights: Mapping[str, Tensor], embeddings: Tensor) -> Tensor:
    """The same with batch normalization before each GELU, on a batch of embeddings (N,D) in training: (N,K)."""
    rows = list(embeddings)
    for linear in (0, 3):
        rows = [
            weights[f"mlp.layers.{linear}.weight"] @ row + weights[f"mlp.layers.{linear}.bias"]
            for row in rows
        ]
        mean = sum(rows, torch.zeros(())) / len(rows)
        variance = sum(((row - mean) ** 2 for row in rows), torch.zeros(())) / len(rows)
        gain, shift = (weights[f"mlp.layers.{linear + 1}.{name}"] for name in ("weight", "bias"))
        rows = [gelu((row - mean) / (variance + 1e-5).sqrt() * gain + shift) for row in rows]
    narrow = [weights["mlp.layers.6.weight"] @ row + weights["mlp.layers.6.bias"] for row in rows]
    return torch.stack([prototype_scores(weights, row) for row in narrow])


def gelu(values: Tensor) -> Tensor:
    """x Φ(x)."""
    return values * (1 + torch.erf(values / math.sqrt(2))) / 2


def prototype_scores(weights: Mapping[str, Tensor], narrow: Tensor) -> Tensor:
    """Scores (K,) of the narrow end (C,) of the MLP."""
    hidden = narrow / narrow.norm()
    gains, directions = (weights[f"last_layer.parametrizations.weight.original{i}"] for i in (0, 1))
    return torch.stack(
        [g[0] * (v @ hidden) / v.norm() for g, v in zip(gains, directions, strict=True)]
    )
