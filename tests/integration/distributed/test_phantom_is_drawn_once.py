# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The main rank draws the phantom while the others wait for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from integration.distributed.two_ranks import needs_gloo, run_on_two_ranks
from monai_afire.data.phantom import PhantomSet, phantom_set

ARGUMENTS = {"num_patients": {"test": 1}, "image_size": 64, "progress": False}


def slowly_drawn(folder: Path, **arguments: Any) -> Path:
    """Stands for the drawing; long enough for a rank that does not wait to come and draw, too."""
    begun = Path(folder).parents[1] / "begun"
    begun.touch(exist_ok=False)
    time.sleep(0.5)
    Path(folder).mkdir()
    return Path(folder, "datalist.json")


class Draw:
    """A function of the ranks that knows the folder, and can be sent to another process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, rank: int, world_size: int) -> str:
        with mock.patch.object(phantom_set, "export_phantom", slowly_drawn):
            return str(PhantomSet(self.folder, ARGUMENTS).datalist())


@pytest.mark.slow
@needs_gloo
def test_two_ranks_draw_once(tmp_path: Path) -> None:
    phantom = tmp_path / "phantom"
    first, second = run_on_two_ranks(Draw(phantom), tmp_path)
    assert first == second


def test_a_single_process_does_not_wait(tmp_path: Path) -> None:
    assert Path(Draw(tmp_path / "phantom")(0, 1)).parents[1] == tmp_path / "phantom"
