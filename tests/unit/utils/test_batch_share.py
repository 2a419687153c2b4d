# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The share that each process has of a recipe's global batch, and the learning rate that goes with it."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from monai_afire.optimizers import scaled_lr
from monai_afire.utils import per_process_batch


@pytest.mark.parametrize(
    ("processes", "steps", "share"), [(1, 1, 64), (8, 1, 8), (4, 2, 8), (1, 64, 1)]
)
def test_every_division_of_a_global_batch_has_one_learning_rate(
    processes: int, steps: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: processes)
    assert per_process_batch(64, steps) == share
    assert scaled_lr(5e-4, share, steps) == pytest.approx(5e-4 * 64 / 256)
    with pytest.raises(
        ValueError, match=r"divided among .* processes and .* accumulation_steps: give --batch_size"
    ):
        per_process_batch(64, 3 * steps)
