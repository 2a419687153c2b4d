# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Audit and comparison by several processes end with the bytes of one process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from imported_processes import start_ranks

from integration.bundle_runs import write_images
from integration.distributed.two_ranks import free_port, launch_variables, needs_gloo
from monai_afire.apps.audit import __main__ as audit
from monai_afire.apps.audit import measurements
from monai_afire.apps.compare import __main__ as compare
from monai_afire.apps.compare import encoders
from monai_afire.transforms import LoadRadiographd

pytestmark = [needs_gloo, pytest.mark.slow]

IMAGES, TRAINING, BATCH = (
    41,
    29,
    16,
)  # of the last two processes, one has a smaller batch and one has none
TIMEOUT = 300  # seconds until processes that hang are ended
COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "audit": (audit.main, "{}/images"),
    "compare": (compare.main, "{}/images/list.json untrained --field_of_view image"),
}


def note_reading(path: Path) -> None:
    """Let this process write down which images it reads."""
    load = LoadRadiographd.__call__

    def noted(self: LoadRadiographd, data: Any) -> Any:
        with path.open("a") as file:
            file.write(Path(data["image"]).name + "\n")
        return load(self, data)

    LoadRadiographd.__call__ = noted  # type: ignore[method-assign]


def work(rank: int, count: int, port: int, command: str, folder: Path, log: Path) -> None:
    """One of some processes, as ``torchrun`` starts them."""
    torch.set_num_threads(1)
    measurements._BATCH = encoders._BATCH = BATCH
    encoders._SIDE = 64
    note_reading(log / f"read_{rank}")
    if count > 1:
        os.environ.update(launch_variables(rank, count, port))
    os.dup2(os.open(log / f"printed_{rank}", os.O_WRONLY | os.O_CREAT), 1)
    os.chdir(log)
    main, words = COMMANDS[command]
    assert main([*words.format(folder).split(), "--output_dir", "out"]) == 0


def run(command: str, folder: Path, count: int) -> Path:
    """The folder of what some processes have written."""
    log = folder / f"by_{count}"
    log.mkdir()
    context = start_ranks(work, count, free_port(), command, folder, log, count=count)
    for process in context.processes:
        process.join(TIMEOUT)
        if process.exitcode is None:
            process.kill()
            pytest.fail("a process hangs")
        assert process.exitcode == 0
    return log


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in (folder / "out").rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write_list(images: Path) -> None:
    names = write_images(images, IMAGES, size=64)
    (images / names[1]).write_bytes((images / names[-1]).read_bytes())
    items = [
        {"image": name, "label": [number % 2], "patient_id": f"p{number}"}
        for number, name in enumerate(names)
        if number != 1
    ]
    sections = {"training": items[:TRAINING], "test": items[TRAINING:]}
    (images / "list.json").write_text(json.dumps(sections))


@pytest.mark.parametrize("command", COMMANDS)
def test_processes_write_what_one_writes(command: str, tmp_path: Path) -> None:
    write_list(tmp_path / "images")
    one, four = run(command, tmp_path, 1), run(command, tmp_path, 4)
    assert files(one)
    assert files(four) == files(one)
    printed = [(four / f"printed_{rank}").read_text() for rank in range(4)]
    assert printed[0] == (one / "printed_0").read_text()
    assert printed[1:] == [""] * 3, "the main process alone prints"
    alone = (one / "read_0").read_text().split()
    read = [name for path in four.glob("read_*") for name in path.read_text().split()]
    assert sorted(read) == sorted(alone), "none is read twice"
