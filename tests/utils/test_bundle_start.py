# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The first steps of a bundle's run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from monai_afire.utils import bundle_root, default_num_workers


def test_bundle_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundle_root("afire") == "."
    (tmp_path / "bundles/afire/configs").mkdir(parents=True)
    assert bundle_root("afire") == "bundles/afire"


def test_loader_processes_are_for_gpus() -> None:
    assert default_num_workers(torch.device("cpu")) == default_num_workers("cpu") == 0
    assert 1 <= default_num_workers("cuda:1") <= 8
