# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
All that is worth knowing about a GPU in a few minutes: does everything hold there, how fast is it, and real weights.

    python -m tests.benchmarks.gpu_suite --minutes 9 --out results [--stage checks speed train]
    python -m tests.benchmarks.gpu_suite --minutes 2 --out results --size tiny --device cpu    # in miniature

"checks" runs the tests that are marked ``gpu``; "speed" measures each method's whole step at the papers' size, the
parts and inference; "train" pre-trains for the minutes that are left, from a file of images that
``python -m tests.benchmarks.gpu_suite.packed_images`` has made, and writes weights in pieces. What is known is in
``results.json`` and ``results.md`` at every moment, so that a limit of time costs only what was not yet measured.

A machine without a network needs monai, pytorch-ignite, nibabel, pydicom, fire and what they need as wheels; itk is not
needed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from monai_afire.utils import join_process_group, run_device
from monai_afire.utils.device import default_device
from tests.benchmarks.gpu_suite.checks import run_checks
from tests.benchmarks.gpu_suite.results import Deadline, Results
from tests.benchmarks.gpu_suite.speed import WAYS, measure_speed
from tests.benchmarks.gpu_suite.training import train
from tests.benchmarks.timing import machine

STAGES = {"checks": run_checks, "speed": measure_speed, "train": train}


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9, help="after which nothing new is begun")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--stage", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument(
        "--size", choices=("paper", "tiny"), default="paper", help="networks of the speed stage"
    )
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="of taking a step"
    )
    parser.add_argument("--device", default=str(default_device()))
    parser.add_argument("--images", type=Path, help="packed file to train from")
    parser.add_argument("--bundle", default="afire", help="to train")
    parser.add_argument(
        "--train_options", nargs="*", default=[], metavar="KEY=VALUE", help="of the training"
    )
    parser.add_argument(
        "--overlays", nargs="*", default=[], help="configs of the bundle after train.json"
    )
    parser.add_argument(
        "--prefixes", nargs="*", default=[""], help="of the weights that are kept, such as teacher_"
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> Results:
    """Run the stages, one after the other."""
    options = parse_options(words)
    options.out.mkdir(parents=True, exist_ok=True)
    join_process_group(run_device())  # for its precision of products
    deadline = Deadline(60 * options.minutes)
    results = Results(options.out, {"machine": machine(options.device), "size": options.size})
    for stage in options.stage:
        start = time.perf_counter()
        STAGES[stage](options, results, deadline)
        results.add("seconds", stage, round(time.perf_counter() - start, 1))
    return results


if __name__ == "__main__":
    main()
