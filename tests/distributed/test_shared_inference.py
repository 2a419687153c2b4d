# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Inference by several processes ends with the bytes of one that nobody disturbed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from apps.results.test_resumed_tables import ITEMS, Landmarks, batches, tables
from bundles.bundle_runs import command, copy_bundles, environment, run_bundle, write_images
from ignite.engine import Engine, Events
from monai_afire.utils.folder_lock import LOCK_FILE

from distributed.two_ranks import needs_gloo, run_on_two_ranks

pytestmark = needs_gloo

IMAGES = [
    *ITEMS,
    *({"image": f"/data/n{index}.png", "index": index} for index in range(len(ITEMS), 21)),
]
SIZE = 2  # of a batch
TIMEOUT = 240  # seconds until a run that hangs is ended


def judge(
    rank: int,
    world_size: int,
    folder: Path,
    count: int = 21,
    resume: bool = False,
    shift: float = 0,
    killed: int = 0,
) -> torch.Tensor:
    """One process of a run; returns which images it computed. `killed` is the iteration in which the last one dies."""
    writer = Landmarks(IMAGES[:count], str(folder), resume)
    engine = Engine(lambda engine, batch: None)

    def die(engine: Engine) -> None:
        if engine.state.iteration == killed and rank == world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    engine.add_event_handler(Events.ITERATION_STARTED, die)
    writer.attach(engine)
    data = batches(writer.remaining(SIZE), SIZE)
    for batch in data:
        batch["image"] += shift
    engine.run(data)
    if world_size > 1:
        writer.exit_if_rejected()  # torchrun would take exit code 2 for a failure
    return torch.tensor([index for batch in data for index in batch["index"].tolist()])


def judge_by_two(tmp_path: Path, folder: Path, **options: object) -> list[list[int]]:
    store = tmp_path / f"store_{time.monotonic_ns()}"
    store.mkdir()
    return [x.tolist() for x in run_on_two_ranks(partial(judge, folder=folder, **options), store)]


@pytest.mark.parametrize("count", [21, 4, 1])
def test_two_processes_write_what_one_writes(tmp_path: Path, count: int) -> None:
    judge(0, 1, tmp_path / "one", count)
    judged = judge_by_two(tmp_path, tmp_path / "two", count=count)
    assert tables(tmp_path / "two") == tables(tmp_path / "one")
    if count > 1:
        assert sorted([*judged[0], *judged[1]]) == [*range(count)], "each was computed once"


def judge_apart(rank: int, world_size: int, folder: Path) -> torch.Tensor:
    """As two machines that see different folders under the same name."""
    return judge(rank, world_size, folder / f"machine_{rank}")


def test_machines_that_do_not_share_the_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        mp.ProcessRaisedException, match=r"10 of 21 images have no result: .* the same folder"
    ):
        run_on_two_ranks(partial(judge_apart, folder=tmp_path), tmp_path)
    assert list((tmp_path / "machine_1" / "parts").glob("*.pt")), "nothing is lost"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes leave of which one was killed before its fourth batch."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(mp.ProcessExitedException):
        judge_by_two(folder, folder / "out", killed=4)
    assert list((folder / "out" / "parts").glob("*.pt"))
    return folder / "out"


def copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


@pytest.mark.parametrize("processes", [1, 2])
def test_any_number_of_processes_resumes_a_killed_run(
    tmp_path: Path, killed: Path, processes: int
) -> None:
    judge(0, 1, tmp_path / "whole")
    folder = copy(killed, tmp_path / "out")
    if processes == 2:
        judged = judge_by_two(tmp_path, folder, resume=True)
    else:
        judged = [judge(0, 1, folder, resume=True).tolist()]
    assert tables(folder) == tables(tmp_path / "whole")
    assert all(len(images) < len(IMAGES) for images in judged), "others had results"
    starts = {index for images in judged for index in images[::SIZE]}
    assert all(index % SIZE == 0 for index in starts), "batches stay whole"


def test_two_processes_resume_what_one_began(tmp_path: Path) -> None:
    judge(0, 1, tmp_path / "whole")
    judge(0, 1, tmp_path / "out", count=3)
    judge_by_two(tmp_path, tmp_path / "out", resume=True)
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")


def test_each_process_refuses_other_weights_before_it_writes(tmp_path: Path, killed: Path) -> None:
    folder = copy(killed, tmp_path / "out")
    with pytest.raises(mp.ProcessRaisedException, match="the weights or the settings"):
        judge_by_two(tmp_path, folder, resume=True, shift=0.3)
    judge(0, 1, folder, resume=True)
    judge(0, 1, tmp_path / "whole")
    assert tables(folder) == tables(tmp_path / "whole"), "nothing was mixed"


def test_what_a_killed_run_has_left_is_refused_by_a_new_one(tmp_path: Path, killed: Path) -> None:
    folder = copy(killed, tmp_path / "out")
    before = files(folder)
    with pytest.raises(FileExistsError, match="of another run"):
        judge(0, 1, folder)
    assert files(folder) == before


CONFIGS = ["bundles/afire/configs/inference.json"]


def launch(folder: Path, **overrides: object) -> subprocess.Popen[str]:
    """Two processes of the bundle, as a user starts them."""
    _, *module = command(str(CONFIGS), overrides)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    variables = {**environment(), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*launcher, *module],
        cwd=folder,
        env=variables,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_one(launcher: subprocess.Popen[str], sign: Path) -> None:
    """Kill the last process that a launcher has started, when batches are finished."""
    deadline = time.monotonic() + TIMEOUT
    while len(list(sign.glob("*.pt"))) < 3:
        assert launcher.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)


def files(folder: Path) -> dict[str, bytes]:
    """What is in a folder but the lock, which a killed process may leave and the next one takes over."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK_FILE
    }


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="finds the launcher's processes as Linux has them"
)
def test_worklist_of_two_processes_one_of_which_is_killed(tmp_path: Path) -> None:
    folder = copy_bundles(tmp_path)
    names = write_images(folder / "images", 41, size=96)
    (folder / "images" / names[3]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    options = {"dataset_dir": folder / "images", "batch_size": 2}
    one = run_bundle(folder, str(CONFIGS[:2]), {**options, "output_dir": folder / "one"})
    assert one.returncode == 2, one.stderr[-3000:]

    launcher = launch(folder, **options, output_dir=folder / "two")
    kill_one(launcher, folder / "two" / "parts")
    launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode != 0
    assert not (folder / "two" / "worklist.csv").exists()
    launcher = launch(folder, **options, output_dir=folder / "two", resume=True)
    _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 0, errors[-3000:]
    assert errors.count("1 of 41 files were rejected") == 1
    assert files(folder / "two") == files(folder / "one"), "tables, page and pictures"
