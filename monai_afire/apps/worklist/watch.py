# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire watch IN OUT``: score the radiographs that arrive in a folder, each once."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigWorkflow

from monai_afire.apps.results.result_tables import RECORD, FileState, file_state, read_record
from monai_afire.apps.worklist.anomaly_result import KINDS
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.networks.weights.description import TASKS
from monai_afire.networks.weights.finding import RELEASED, find_weights, released_file
from monai_afire.utils.files import write_text
from monai_afire.utils.text import innermost_cause, literal

__all__ = ["main", "watch_folder"]

_BUNDLE = released_file("detector.safetensors").parents[1]
_LIST = "arrivals.json"
_MOST_TRIES = 3  # of a file that is there and cannot be opened


def watch_folder(
    folder: str | os.PathLike,
    output_dir: str | os.PathLike,
    interval: float = 10.0,
    weights: str = RELEASED,
    **overrides: Any,
) -> None:
    """
    Score the radiographs that arrive in a folder, each once, until an exception, such as ``KeyboardInterrupt``.

    A file is scored when neither its size nor its time changed between two looks. One that changes later is scored
    again, and its old result replaced; the result of one that goes away stays. All results are those of one run of the
    bundle's ``inference.json``, which each new look resumes. While the folder is away, such as a share without its
    network, the watch waits.

    Args:
        folder: where files arrive, in subfolders, too; it is only read.
        output_dir: where results are written.
        interval: seconds between two looks.
        weights: of the detector, see :func:`monai_afire.networks.find_weights`; they are looked up once.
        overrides: settings of ``inference.json``.

    Raises:
        FileNotFoundError: when there are no such weights.
        DatalistError: when there is no such folder, or the output folder lies in it.
        RuntimeError: when a file cannot be scored, or the results in the output folder are of other weights or
            settings; its cause says why.
    """
    source, out = Path(folder).absolute(), Path(output_dir).absolute()
    if out.resolve().is_relative_to(source.resolve()):
        raise DatalistError(f"{out} lies in {source}, where results would count as arrivals")
    if not source.is_dir():
        raise DatalistError(f"{source}: no such folder: check the name, or connect its disk")
    torch.empty(0, device=overrides.get("device"))  # refused before the first file arrives
    weights = str(find_weights(weights, TASKS["AnomalyDetector"], _BUNDLE))
    settings = {"weights": weights, "writer::root": str(source), **overrides}
    needed, before = [source], _arrivals(source)
    tries: Counter[tuple[str, int]] = Counter()
    while True:
        time.sleep(interval)
        if _were_away(needed, interval):
            tries.clear()
        try:
            now, scored = _arrivals(source), _scored(out)
            settled = {path: state for path, state in now.items() if before.get(path) == state}
            before = now
            left = [
                (path, state[1]) for path, state in settled.items() if scored.get(path) != state
            ]
            if any(tries[arrival] < _MOST_TRIES for arrival in left):
                _score(settled, out, settings)
                needed = [source, out / RECORD]
                tries.update(left)
        except Exception:
            if all(path.exists() for path in needed):
                raise


def _arrivals(folder: Path) -> dict[str, list[int]]:
    """The radiographs in a folder now, and their states."""
    paths = [str(folder / name) for name in scan_radiographs(folder)]
    return {path: state for path in paths if (state := file_state(path)) is not None}


def _scored(out: Path) -> dict[str, FileState]:
    """The files on record, with the states that they were scored in."""
    return {name: entry["state"] for name, entry in read_record(out)[1].items()}


def _were_away(needed: Iterable[Path], interval: float) -> bool:
    """Wait while a folder is away, such as a share without its network, and say so once."""
    away = [path for path in needed if not path.exists()]
    for path in away:
        print(f"{path} is away: waiting", flush=True)
        while not path.exists():
            time.sleep(interval)
        print(f"{path} is back", flush=True)
    return bool(away)


def _score(paths: Iterable[str], out: Path, settings: Mapping[str, Any]) -> None:
    """Go on with the run in the output folder."""
    write_text(out / _LIST, json.dumps({"test": [{"image": path} for path in paths]}, indent=1))
    workflow = ConfigWorkflow(
        workflow_type="inference",
        config_file=str(_BUNDLE / "configs" / "inference.json"),
        resume=True,
        initialize=[],
        handlers=["@set_specificity", "@writer"],  # without a progress bar
        run=["$@evaluator.run()", "$@writer.print_summary()"],  # rejected files end no watch
        **literal(
            {
                "bundle_root": str(_BUNDLE),
                "datalist": str(out / _LIST),
                "output_dir": str(out),
                **settings,
            }
        ),
    )
    workflow.initialize()
    workflow.run()
    workflow.finalize()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "monai-afire watch",
        description="Score the radiographs that arrive in a folder, each once, until Ctrl-C or SIGTERM.",
    )
    add = parser.add_argument
    add("folder", metavar="IN", help="where radiographs arrive; only read")
    add("output_dir", metavar="OUT", help="where results are written; not inside of IN")
    add(
        "--interval",
        type=float,
        default=10.0,
        help="seconds for which a file must not change (default: %(default)g)",
    )
    add(
        "--weights",
        default=RELEASED,
        help="of the detector: released, latest, a run or a file (default: %(default)s)",
    )
    add(
        "--saved",
        nargs="*",
        choices=KINDS,
        metavar="KIND",
        help=f"{', '.join(KINDS)} (default: overlays thumbnails)",
    )
    add("--calibrate", help="folder or datalist of your own normal images, or the file of a run")
    add("--device", help="where the network computes, such as cpu or cuda:0")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = vars(_parser().parse_args(words))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        watch_folder(**{name: value for name, value in options.items() if value is not None})
    except KeyboardInterrupt:
        print("stopped; the same command goes on", flush=True)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"error: {innermost_cause(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
