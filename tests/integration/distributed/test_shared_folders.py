# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Audit and comparison by several processes end with the bytes of one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from apps.compare.test_compared_encoders import counting
from imported_processes import run_python, start_ranks

from integration.bundle_runs import environment, write_images
from integration.distributed.two_ranks import needs_gloo
from monai_afire.apps.audit import audit_images, measurements
from monai_afire.apps.compare import encode_images, encoders
from monai_afire.transforms import LoadRadiographd

pytestmark = needs_gloo

IMAGES, SIZE = 7, 2  # images, and those of a batch
MANY = 70  # images of a command, whose batches are larger
TIMEOUT = 120  # seconds until processes that hang are ended
Task = Callable[[Path, Path], Any]


def audited(images: Path, folder: Path) -> int:
    return audit_images(images, output_dir=folder)["images"]


def encoded(images: Path, folder: Path) -> tuple[int, ...]:
    items = [{"image": str(path)} for path in sorted(images.iterdir())]
    folder.mkdir(exist_ok=True)
    found = encode_images(items, [counting("first"), counting("second", side=16)], folder, "")
    return found["second"].shape


TASKS = [audited, encoded]


def note_reading(path: Path) -> None:
    """Let this process write down which images it reads."""
    load = LoadRadiographd.__call__

    def noted(self: LoadRadiographd, data: Any) -> Any:
        with path.open("a") as file:
            file.write(Path(data["image"]).name + "\n")
        return load(self, data)

    LoadRadiographd.__call__ = noted  # type: ignore[method-assign]


def work(rank: int, count: int, task: Task, images: Path, folder: Path, log: Path) -> None:
    """One of some processes."""
    torch.set_num_threads(1)
    measurements._BATCH = encoders._BATCH = SIZE
    note_reading(log / f"read_{rank}")
    if count > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{log}/store", rank=rank, world_size=count
        )
    (log / f"result_{rank}").write_text(str(task(images, folder)))


def run(task: Task, images: Path, folder: Path, count: int = 1) -> tuple[list[str], set[str]]:
    """The images that processes that work together read, and what each returned."""
    log = folder.with_name(f"log_{time.monotonic_ns()}")
    log.mkdir()
    context = start_ranks(work, count, task, images, folder, log, count=count)
    for process in context.processes:
        process.join(TIMEOUT)
        if process.exitcode is None:
            process.kill()
            pytest.fail("a process hangs")
        assert process.exitcode == 0
    names = [name for path in log.glob("read_*") for name in path.read_text().split()]
    return sorted(names), {path.read_text() for path in log.glob("result_*")}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_images(folder, IMAGES, size=64)
    (folder / "image_1.png").write_bytes((folder / "image_0.png").read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_processes_write_what_one_writes_even_if_one_has_no_batch(
    task: Task, images: Path, tmp_path: Path
) -> None:
    _, expected = run(task, images, tmp_path / "one")
    names, found = run(task, images, tmp_path / "out", count=5)
    assert names == sorted(path.name for path in images.iterdir()), "each was read once"
    assert found == expected, "all processes return the same"
    assert files(tmp_path / "out") == files(tmp_path / "one")


def labeled(images: Path) -> Path:
    """A list of these images."""
    items = [
        {"image": f"image_{n}.png", "label": [n % 2], "patient_id": f"p{n}"} for n in range(MANY)
    ]
    sections = {"training": items[20:], "test": items[:20]}
    (images / "list.json").write_text(json.dumps(sections))
    return images / "list.json"


def command(launcher: list[str], words: str, images: Path, folder: Path) -> str:
    """What the command prints."""
    call = ["-m", "monai_afire_cli", *words.format(images).split(), "--output_dir", str(folder)]
    variables = {**environment(), "OMP_NUM_THREADS": "1"}
    done = run_python([*launcher, *call], images.parent, variables, timeout=10 * TIMEOUT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.replace(str(folder), "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["audit {}", "compare {}/list.json released --field_of_view image"]
)
def test_commands_under_torchrun(tmp_path: Path, words: str) -> None:
    images = tmp_path / "images"
    write_images(images, MANY, size=256)
    labeled(images)
    printed = command([], words, images, tmp_path / "one")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    found = command(launcher, words, images, tmp_path / "out")
    assert found == printed, "the main process alone prints"
    assert files(tmp_path / "out") == files(tmp_path / "one")
