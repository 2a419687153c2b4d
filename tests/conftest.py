# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

# the tests' networks are tiny: waking a second thread costs more than it does, and there is a process for each core
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
torch.set_num_threads(1)

# how long a draw takes says how busy the machine is, not whether the code is right
hypothesis.settings.register_profile("without_deadline", deadline=None)
hypothesis.settings.load_profile("without_deadline")

REPOSITORY_ROOT = Path(__file__).resolve().parents[1]
SHARED_IS_MISSING = "the folder shared/ with real radiographs and tools is not here"


def find_shared() -> Path | None:
    """The folder `shared/` with real radiographs and tools that may lie beside (or inside) the repository."""
    candidates = [
        os.environ.get("MONAI_AFIRE_SHARED"),
        REPOSITORY_ROOT.parent / "shared",
        REPOSITORY_ROOT / "shared",
    ]
    return next((Path(c) for c in candidates if c and Path(c).is_dir()), None)


@pytest.fixture(autouse=True)
def settings_of_a_new_process() -> Iterator[None]:
    """A run chooses threads and precision for its whole process: the next test has PyTorch's again."""
    yield
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="session")
def repository_root() -> Path:
    return REPOSITORY_ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real test data; a test that asks for it is skipped where the folder is missing."""
    shared = find_shared()
    if shared is None or not (shared / "data").is_dir():
        pytest.skip(SHARED_IS_MISSING)
    return shared / "data"
