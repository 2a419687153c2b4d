# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Schedules, teacher update, gradient clipping and AdamW of AFiRe's pre-training (App. D), as plain float64 loops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .afire import Array

__all__ = [
    "adamw_step",
    "clip_grad_norm",
    "cosine_schedule",
    "ema_update",
    "scaled_learning_rate",
    "teacher_momentum",
    "teacher_temperature",
    "weight_decay",
]


def cosine_schedule(
    step: float,
    total_steps: int,
    start: float,
    end: float,
    warmup_steps: int = 0,
    warmup_start: float = 0.0,
) -> float:
    """Linear warm-up, then half a cosine from `start` to `end`; steps count from 0 to total_steps - 1.

    Convention: step 0 has `warmup_start` (without warm-up: `start`), step `warmup_steps` has exactly `start`, step
    total_steps - 1 has exactly `end`, and so has every later step. A schedule whose last step is its `warmup_steps`
    (a single step, say) ends at `start`.
    """
    if step < warmup_steps:
        return warmup_start + (start - warmup_start) * step / warmup_steps
    length = total_steps - 1 - warmup_steps
    if length <= 0:
        return start
    progress = min((step - warmup_steps) / length, 1.0)
    return end + (start - end) * (1.0 + math.cos(math.pi * progress)) / 2.0


def scaled_learning_rate(batch_size: int, learning_rate: float = 5e-4) -> float:
    """Linear scaling rule: 0.0005 · batch / 256, `batch_size` being the images of all ranks in one optimizer step."""
    return learning_rate * batch_size / 256.0


def teacher_momentum(step: float, total_steps: int, start: float = 0.99, end: float = 1.0) -> float:
    """λ of [E3]: cosine from 0.99 to 1 per optimizer step."""
    return cosine_schedule(step, total_steps, start, end)


def weight_decay(step: float, total_steps: int, start: float = 0.04, end: float = 0.4) -> float:
    """Weight decay: cosine from 0.04 to 0.4, without warm-up."""
    return cosine_schedule(step, total_steps, start, end)


def teacher_temperature(
    epoch: float, start: float = 0.04, end: float = 0.07, warmup_epochs: int = 30
) -> float:
    """τ_t, linear: `start` in epoch 0, `end` from epoch `warmup_epochs` on (not one epoch earlier)."""
    if epoch >= warmup_epochs:
        return end
    return start + (end - start) * epoch / warmup_epochs


def ema_update(
    teacher: Mapping[str, ArrayLike], student: Mapping[str, ArrayLike], decay: float
) -> dict[str, NDArray]:
    """[E3]: θT <- decay · θT + (1 - decay) · θS for each name of the teacher; integer entries (counters) are copied."""
    updated: dict[str, NDArray] = {}
    for name, value in teacher.items():
        old, new = np.asarray(value), np.asarray(student[name])
        if not np.issubdtype(old.dtype, np.floating):
            updated[name] = new.copy()
            continue
        result = np.empty(old.shape, dtype=np.float64)
        for index in np.ndindex(*old.shape):
            result[index] = decay * float(old[index]) + (1.0 - decay) * float(new[index])
        updated[name] = result
    return updated


def adamw_step(
    param: ArrayLike,
    grad: ArrayLike,
    state: Mapping[str, Any] | None,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Array, dict[str, Any]]:
    """One AdamW step with decoupled weight decay: (new parameter, new state); `state` None before the first step.

    The state holds `step` (number of steps taken), `exp_avg` and `exp_avg_sq`. The decay lr · weight_decay · θ acts
    before the update.
    """
    old, g = np.asarray(param, dtype=np.float64), np.asarray(grad, dtype=np.float64)
    taken = 0 if state is None else int(state["step"])
    first = np.zeros_like(old) if state is None else np.array(state["exp_avg"], dtype=np.float64)
    second = (
        np.zeros_like(old) if state is None else np.array(state["exp_avg_sq"], dtype=np.float64)
    )
    new = np.empty_like(old)
    for index in np.ndindex(*old.shape):
        first[index] = betas[0] * first[index] + (1.0 - betas[0]) * g[index]
        second[index] = betas[1] * second[index] + (1.0 - betas[1]) * g[index] ** 2
        mean = first[index] / (1.0 - betas[0] ** (taken + 1))
        spread = second[index] / (1.0 - betas[1] ** (taken + 1))
        new[index] = old[index] * (1.0 - lr * weight_decay) - lr * mean / (math.sqrt(spread) + eps)
    return new, {"step": taken + 1, "exp_avg": first, "exp_avg_sq": second}


def clip_grad_norm(
    grads: Mapping[str, ArrayLike], max_norm: float
) -> tuple[dict[str, Array], float]:
    """Scales all gradients together so that their common Euclidean norm is at most `max_norm`: (clipped, norm before).

    The factor is min(1, max_norm / (norm + 1e-6)), as PyTorch has it.
    """
    arrays = {name: np.asarray(grad, dtype=np.float64) for name, grad in grads.items()}
    norm = math.sqrt(sum(float(v) ** 2 for grad in arrays.values() for v in grad.flat))
    factor = min(1.0, max_norm / (norm + 1e-6))
    return {name: grad * factor for name, grad in arrays.items()}, norm
