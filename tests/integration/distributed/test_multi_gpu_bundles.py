# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Every bundle by several processes: one log, one set of files, an end when a rank fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from integration.bundle_runs import write_images
from integration.distributed.two_ranks import free_port, launch_variables, needs_gloo
from integration.tiny_runs import (
    TIMEOUT,
    in_fast_suite,
    monai_command,
    run,
    run_workflow,
    tiny,
)
from monai_afire.utils import destroy_process_group

pytestmark = needs_gloo


@pytest.fixture
def only_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What ``torchrun --nproc_per_node=1`` tells the process that it starts."""
    for name, value in launch_variables(0, 1, free_port()).items():
        monkeypatch.setenv(name, value)
    yield
    destroy_process_group()


def train(bundle: str) -> dict[str, torch.Tensor]:
    """A tiny training of two epochs; the second one waits for gradients that the first has not brought."""
    run_workflow(bundle, "train", **tiny(bundle, epochs=2, name="run", output_dir="run"))
    assert not dist.is_initialized(), "finalize leaves the group"
    return torch.load("run/models/model.pt", weights_only=True)


@pytest.mark.usefixtures("only_rank")
@pytest.mark.parametrize("bundle", in_fast_suite("mae"))
def test_a_launched_process_joins_its_group(bundle: str) -> None:
    weights = train(bundle)
    # a finding without a positive among so few validation images has no threshold
    trained = [value for name, value in weights.items() if not name.endswith("thresholds")]
    assert all(bool(value.isfinite().all()) for value in trained)
    assert not any(name.startswith("module.") for name in weights)


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_run() -> None:
    names = write_images(Path("images"), 10)
    Path("images", names[0]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    items = [{"image": name} for name in names]
    Path("list.json").write_text(json.dumps({"training": items[:8], "validation": items[8:]}))
    data = {"dataset_dir": "images", "datalist": "list.json", "cache": "none"}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    started = time.monotonic()
    code, output = run([*launcher, *monai_command("ace", tiny("ace", epochs=2, **data))])
    assert code != 0
    assert time.monotonic() - started < TIMEOUT
    assert names[0] in output, "the file that one of the ranks could not read"
    assert "ChildFailedError" in output
