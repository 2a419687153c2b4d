# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Inference by several processes ends with the bytes of one that nobody disturbed."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from apps.results.test_resumed_tables import Items, batches, engine_of, files, writer_of
from ignite.engine import Engine, Events

from integration.bundle_runs import write_images
from integration.distributed.two_ranks import needs_gloo, run_on_two_ranks
from integration.tiny_runs import run, run_workflow, words_of

pytestmark = needs_gloo

SIZE = 2  # of a batch


@pytest.fixture
def items(tmp_path: Path) -> Items:
    (tmp_path / "in").mkdir()
    for number in range(21):
        (tmp_path / f"in/{number:02d}.png").write_bytes(bytes([number]))
    return [{"image": str(path)} for path in sorted((tmp_path / "in").iterdir())]


def judge(
    rank: int,
    world_size: int,
    folder: Path,
    items: Items,
    resume: bool = False,
    shift: float = 0,
    killed: int = 0,
) -> torch.Tensor:
    """One process of a run; returns which images it computed. `killed` is the iteration in which the last one dies."""
    writer = writer_of(folder, items, resume)
    engine = engine_of(writer, shift)

    def die(engine: Engine) -> None:
        if engine.state.iteration == killed and rank == world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    engine.add_event_handler(Events.ITERATION_STARTED, die)
    left = writer.remaining(SIZE)
    engine.run(batches(left, SIZE))
    if world_size > 1:
        writer.exit_if_rejected()  # torchrun would take exit code 2 for a failure
    return torch.tensor([item["index"] for item in left])


def judge_by_two(tmp_path: Path, folder: Path, **options: object) -> list[list[int]]:
    store = tmp_path / f"store_{time.monotonic_ns()}"
    store.mkdir()
    return [x.tolist() for x in run_on_two_ranks(partial(judge, folder=folder, **options), store)]


@pytest.mark.parametrize("count", [21, 1])
def test_two_processes_write_what_one_writes(tmp_path: Path, items: Items, count: int) -> None:
    judge(0, 1, tmp_path / "one", items[:count])
    judged = judge_by_two(tmp_path, tmp_path / "two", items=items[:count])
    assert files(tmp_path / "two") == files(tmp_path / "one")
    if count > 1:
        assert sorted([*judged[0], *judged[1]]) == [*range(count)], "each was computed once"


def judge_apart(rank: int, world_size: int, folder: Path, items: Items) -> torch.Tensor:
    """As two machines that see different folders under the same name."""
    return judge(rank, world_size, folder / f"machine_{rank}", items)


def test_machines_that_do_not_share_the_folder_are_refused(tmp_path: Path, items: Items) -> None:
    with pytest.raises(
        mp.ProcessRaisedException, match=r"10 of 21 images have no result.* the same folder"
    ):
        run_on_two_ranks(partial(judge_apart, folder=tmp_path, items=items), tmp_path)


@pytest.mark.parametrize("processes", [1, 2])
def test_any_number_of_processes_resumes_a_killed_run(
    tmp_path: Path, items: Items, processes: int
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(mp.ProcessExitedException):
        judge_by_two(tmp_path, folder, items=items, killed=4)
    with (folder / "resume.rank1.jsonl").open("a") as record:
        record.write('{"half of')
    judge(0, 1, tmp_path / "whole", items)
    if processes == 2:
        with pytest.raises(mp.ProcessRaisedException):
            judge_by_two(tmp_path, folder, items=items, resume=True, shift=0.3)
        judged = judge_by_two(tmp_path, folder, items=items, resume=True)
    else:
        judged = [judge(0, 1, folder, items, resume=True).tolist()]
    assert files(folder) == files(tmp_path / "whole")
    assert all(len(images) < len(items) for images in judged), "others had results"
    starts = {index for images in judged for index in images[::SIZE]}
    assert all(index % SIZE == 0 for index in starts), "batches stay whole"


@pytest.mark.slow
def test_a_worklist_of_two_processes(folder: Path) -> None:
    names = write_images(Path("images"), 9, size=96)
    Path("images", names[3]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    options = {"dataset_dir": str(folder / "images"), "batch_size": 2, "device": "cpu"}
    with pytest.raises(SystemExit):
        run_workflow("afire", "inference", **options, output_dir="one")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = ["-m", "monai_afire_cli", "run", "afire", "inference"]
    code, output = run([*launcher, *words, *words_of({**options, "output_dir": "two"})])
    assert code == 0, output[-3000:]
    assert output.count("1 of 9 files were rejected") == 1
    assert files(folder / "two") == files(folder / "one"), "tables, page and pictures"
