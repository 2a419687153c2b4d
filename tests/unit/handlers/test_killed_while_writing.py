# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Processes that are killed while they write a checkpoint leave a whole file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

KILLS = 8
SIZE = 2_000_000  # numbers: writing takes longer than noticing that it has begun

WRITER = """
import os, signal, sys, time
from pathlib import Path
import torch
from monai_afire.networks.weights.checkpoint_files import write_pickle

torch.set_num_threads(1)
folder, kills, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def filled(number):
    return torch.full((size,), float(number))

def write(number):
    write_pickle({"number": number, "values": filled(number)}, folder / "checkpoint.pt")

number, struck = 0, 0
while struck < kills:
    child = os.fork()
    if not child:
        while True:
            number += 1
            write(number)
    while not list(folder.rglob("*.pt")):  # on a busy machine the first whole file takes a while
        time.sleep(0.01)
    time.sleep(0.05)
    while not list(folder.rglob(".*.tmp")):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    partial = list(folder.rglob(".*.tmp"))  # it was killed before the rename
    struck += len(partial) > 0
    number += 1000
    for file in partial:
        file.unlink()
    for file in folder.rglob("*.pt"):
        content = torch.load(file, weights_only=True)  # raises for half a file
        assert bool((content["values"] == content["number"]).all())
print(struck)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_kills_that_strike_while_writing_leave_whole_files(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path), str(KILLS), str(SIZE)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout) >= KILLS
    assert list(tmp_path.rglob("*.pt")), "nothing was ever complete"
    assert all(torch.load(path, weights_only=True) for path in tmp_path.rglob("*.pt"))
