# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What each process of ``test_several_machines.py`` runs: a training that nobody disturbs, then one that is."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from unit.handlers.miniature_training import make_trainer

from monai_afire.utils import destroy_process_group, join_process_group

EPOCHS, BATCHES, GLOBAL_BATCH = 4, 5, 8
KILLED_AT = (7, 16)  # iterations in the midst of the second and of the fourth epoch
DISTURBED = "DISTURBED"  # variable of the machine that something happens to


def wait_for_it(engine: Engine, folder: Path) -> None:
    """On the disturbed machine: say that the iteration has come, and wait to be killed."""
    iteration = engine.state.iteration
    if (
        os.environ.get(DISTURBED)
        and iteration in KILLED_AT
        and not over(folder, iteration).exists()
    ):
        (folder / f"iteration_{iteration}" / f"{dist.get_rank()}_{os.getpid()}").touch()
        while True:
            time.sleep(0.05)


def over(folder: Path, iteration: int) -> Path:
    """A file that the test makes when it has done to this iteration what it wanted."""
    return folder / f"over_{iteration}"


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    join_process_group(torch.device("cpu"))
    sizes: dict[str, Any] = {
        "num_items": BATCHES * GLOBAL_BATCH,
        "batch_size": GLOBAL_BATCH // dist.get_world_size(),
    }
    if not (folder / "whole.pt").exists():
        whole = make_trainer(folder / "whole", epochs=EPOCHS, **sizes)
        whole.run()
        dist.barrier()
        if dist.get_rank() == 0:
            torch.save(whole.network.module.state_dict(), folder / "whole.pt")  # type: ignore[union-attr]
    # nothing but the checkpoint may count
    resume = (folder / "parts/models/checkpoint.pt").exists()
    trainer = make_trainer(
        folder / "parts", epochs=EPOCHS, seed=99 * resume, resume=resume, **sizes
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, wait_for_it, folder)
    trainer.run()
    destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
