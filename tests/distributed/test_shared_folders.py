# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Audit and comparison by several processes, some of them killed, end with the bytes of one undisturbed process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from apps.compare.test_stored_tokens import counting
from bundles.bundle_runs import environment, write_images
from imported_processes import start_ranks

from distributed.two_ranks import needs_gloo
from monai_afire.apps.audit import audit, audit_images
from monai_afire.apps.compare import encode_images, stored_tokens
from monai_afire.transforms import LoadRadiographd

pytestmark = needs_gloo

IMAGES, SIZE = 7, 2  # images, and those of a batch
MANY = 140  # images of a command, whose batches are larger
TIMEOUT = 120  # seconds until processes that hang are ended
Task = Callable[[Path, Path], Any]


def audited(images: Path, folder: Path) -> int:
    return audit_images(images, output_dir=folder).images


def encoded(images: Path, folder: Path) -> tuple[int, ...]:
    items = [{"image": str(path)} for path in sorted(images.iterdir())]
    found = encode_images(items, [counting("first"), counting("second", side=16)], folder, "")
    return found["second"].shape


TASKS = [audited, encoded]


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(place: str) -> None:
    """Let this process die by SIGKILL: at any image, amid a file of a batch, or when all are there."""
    if place == "an image":
        load, count = LoadRadiographd.__call__, iter(range(random.randrange(3)))
        LoadRadiographd.__call__ = lambda self, data: (
            load(self, data) if next(count, None) is not None else die()
        )  # type: ignore[method-assign]
    elif place == "file":
        torch.save = lambda value, path: (Path(path).write_bytes(b"half of it"), die())  # type: ignore[assignment]
    else:
        stored_tokens.saved_batches = audit.saved_batches = die  # type: ignore[attr-defined]


def note_reading(path: Path) -> None:
    """Let this process write down which images it reads."""
    load = LoadRadiographd.__call__

    def noted(self: LoadRadiographd, data: Any) -> Any:
        with path.open("a") as file:
            file.write(Path(data["image"]).name + "\n")
        return load(self, data)

    LoadRadiographd.__call__ = noted  # type: ignore[method-assign]


def work(
    rank: int,
    count: int,
    task: Task,
    images: Path,
    folder: Path,
    log: Path,
    victim: int,
    place: str,
) -> None:
    """One of some processes."""
    torch.set_num_threads(1)
    audit._BATCH = stored_tokens._BATCH = SIZE
    if rank == victim:
        die_at(place)
    note_reading(log / f"read_{rank}")
    if count > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{log}/store", rank=rank, world_size=count
        )
    (log / f"result_{rank}").write_text(str(task(images, folder)))


def run(
    task: Task, images: Path, folder: Path, count: int = 1, victim: int = -1, place: str = ""
) -> tuple[list[int], list[str], set[str]]:
    """Exit codes of processes that work together, the images that they read, and what each returned."""
    log = folder.with_name(f"log_{time.monotonic_ns()}")
    log.mkdir()
    context = start_ranks(work, count, task, images, folder, log, victim, place, count=count)
    for process in context.processes:
        process.join(TIMEOUT)
        if process.exitcode is None:
            process.kill()
            pytest.fail("a process hangs")
    names = [name for path in log.glob("read_*") for name in path.read_text().split()]
    codes = [process.exitcode or 0 for process in context.processes]
    return codes, sorted(names), {path.read_text() for path in log.glob("result_*")}


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


@pytest.fixture(scope="module", params=TASKS)
def whole(
    request: pytest.FixtureRequest, images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A task, and the files that one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("whole")
    codes, _, results = run(request.param, images, folder)
    assert codes == [0]
    return request.param, files(folder), results


@pytest.mark.slow
def test_processes_write_what_one_writes_even_if_one_has_no_batch(
    whole: Any, images: Path, tmp_path: Path
) -> None:
    task, expected, results = whole
    codes, names, found = run(task, images, tmp_path / "out", count=5)
    assert codes == [0] * 5
    assert names == sorted(path.name for path in images.iterdir()), "each was read once"
    assert found == results, "all processes return the same"
    assert files(tmp_path / "out") == expected


@pytest.mark.parametrize(("victim", "place"), [(1, "an image"), (0, "file"), (0, "all are there")])
@pytest.mark.slow
def test_a_killed_run_goes_on(
    whole: Any, images: Path, tmp_path: Path, victim: int, place: str
) -> None:
    task, expected, _ = whole
    codes, _, results = run(task, images, tmp_path / "out", 2, victim, place)
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] > 0, "the other one ends, too"
    assert not results
    done = {int(path.stem) for path in (tmp_path / "out").rglob("*.pt")}
    codes, names, _ = run(task, images, tmp_path / "out", count=1 + victim)
    assert set(codes) == {0}
    assert files(tmp_path / "out") == expected
    assert len(names) == sum(start - start % SIZE not in done for start in range(IMAGES)), (
        "only what was left is read"
    )


def apart(images: Path, folder: Path) -> str:
    """As machines that see different folders under the same name."""
    with pytest.raises(RuntimeError) as error:
        audited(images, folder / f"machine_{dist.get_rank()}")
    return str(error.value)


def test_machines_that_do_not_share_the_folder_are_refused(images: Path, tmp_path: Path) -> None:
    _, _, errors = run(apart, images, tmp_path / "out", 2)
    assert any("2.pt is missing: all processes need" in error for error in errors)


def test_a_changed_image_is_measured_again(images: Path, tmp_path: Path) -> None:
    copies = tmp_path / "images"
    copies.mkdir()
    for path in images.iterdir():
        (copies / path.name).write_bytes(path.read_bytes())
    codes, *_ = run(audited, copies, tmp_path / "out", victim=0, place="all are there")
    assert codes == [-signal.SIGKILL]
    (copies / "image_3.png").write_bytes(b"broken")
    run(audited, copies, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["findings"]["unreadable"] == 1


def labeled(images: Path) -> Path:
    """A list of these images."""
    items = [
        {"image": f"image_{n}.png", "label": [n % 2], "patient_id": f"p{n}"} for n in range(MANY)
    ]
    sections = {"training": items[20:], "test": items[:20]}
    (images / "list.json").write_text(json.dumps(sections))
    return images / "list.json"


def command(words: str, images: Path, folder: Path, processes: int = 0) -> subprocess.Popen[str]:
    """The command, as a user starts it."""
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        if processes
        else []
    )
    call = [
        sys.executable,
        *launcher,
        "-m",
        "monai_afire",
        *words.format(images).split(),
        "--output_dir",
        str(folder),
    ]
    variables = {**environment(), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        call, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="finds the launcher's processes as Linux has them"
)
@pytest.mark.parametrize(
    "words", ["audit {}", "compare {}/list.json released --field_of_view image"]
)
def test_commands_under_torchrun(tmp_path: Path, words: str) -> None:
    images = tmp_path / "images"
    write_images(images, MANY, size=256)
    labeled(images)
    one = command(words, images, tmp_path / "one")
    printed, errors = one.communicate(timeout=10 * TIMEOUT)
    assert one.returncode == 0, errors[-3000:]

    out, deadline = tmp_path / "out", time.monotonic() + TIMEOUT
    launcher = command(words, images, out, processes=2)
    while not [*out.rglob("*.pt")]:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(random.choice(children)), signal.SIGKILL)
    launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode != 0
    launcher = command(words, images, out, processes=3)
    again, errors = launcher.communicate(timeout=10 * TIMEOUT)
    assert launcher.returncode == 0, errors[-3000:]
    assert again.replace(str(out), "") == printed.replace(str(tmp_path / "one"), ""), (
        "the main process alone prints"
    )
    assert files(out) == files(tmp_path / "one")
