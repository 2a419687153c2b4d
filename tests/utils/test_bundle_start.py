# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The first steps of a bundle's run."""

from __future__ import annotations

import torch

from monai_afire.utils import default_num_workers


def test_loader_processes_are_for_gpus() -> None:
    assert default_num_workers(torch.device("cpu")) == default_num_workers("cpu") == 0
    assert 1 <= default_num_workers("cuda:1") <= 8
