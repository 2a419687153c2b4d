# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Streams a detector's results to disk while it runs."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.utils import CommonKeys

from monai_afire.anomaly.detector import SCORE_NAMES, AnomalyDetector
from monai_afire.anomaly.results import DetectionResult, save_embedding, save_map, save_overlay
from monai_afire.utils.files import check_writable

__all__ = ["DetectionWriter"]

EXIT_CODE_REJECTED = 2

_SAVERS: dict[str, Callable[[DetectionResult, Path], Path]] = {
    "overlays": save_overlay,
    "maps": save_map,
    "embeddings": save_embedding,
}


class DetectionWriter:
    """
    Write scores, decision, heat map and embedding of each image as soon as they are there.

    ``scores.csv`` has one row per image with all scores and the decision by the fused score's threshold,
    ``rejected.csv`` one per file that could not be read, with the reason. Both grow by whole batches, so that an
    interrupted run keeps what it has. Pictures, maps and embeddings are written by threads beside the network. Memory
    does not depend on the number of images.

    The batches need "index" (the number in ``items``), "rejected", "spatial_shape", "affine" and "picture", see
    :class:`monai_afire.transforms.LoadRadiographd` and :class:`monai_afire.transforms.DescribeRadiographd`.

    Args:
        detector: the evaluator's network.
        items: the data set's items, for the names of the files.
        output_dir: where to write; a previous run's CSV files are kept as ``*_previous.csv``.
        saved: which of "overlays", "maps" and "embeddings" to write.
        num_threads: threads that write them.

    Raises:
        ValueError: for an unknown name in ``saved``.
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    def __init__(
        self,
        detector: AnomalyDetector,
        items: Sequence[Mapping[str, Any]],
        output_dir: str,
        saved: Sequence[str] = ("overlays", "maps", "embeddings"),
        num_threads: int = 2,
    ) -> None:
        unknown = set(saved) - set(_SAVERS)
        if unknown:
            raise ValueError(f"saved must name some of {sorted(_SAVERS)}, got {sorted(unknown)}")
        self.detector = detector
        self.items = items
        self.output_dir = Path(output_dir)
        self.saved = tuple(saved)
        self.num_threads = num_threads
        self.num_rejected = 0
        self.resources = ExitStack()
        self.pending: list[Future] = []

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.close_after_error)

    def start(self, engine: Engine) -> None:
        """Open the files."""
        check_writable(self.output_dir)
        self.num_rejected = 0
        self.root = os.path.commonpath([os.path.dirname(item["image"]) for item in self.items])
        self.low, self.high = self.detector.heat_range.tolist()
        self.thresholds = self.detector.thresholds.tolist()
        self.pool = self.resources.enter_context(ThreadPoolExecutor(self.num_threads))
        self.scores = self._open("scores.csv", ["image", "abnormal", *reversed(SCORE_NAMES)])
        self.rejected = self._open("rejected.csv", ["image", "reason"])

    def write(self, engine: Engine) -> None:
        """Write the rows of a batch and hand the rest to the threads."""
        batch: Any = engine.state.batch
        outputs = engine.state.output[CommonKeys.PRED]  # type: ignore[index]
        scores = outputs["scores"].float().cpu()
        heat = self.detector.heat_map(outputs["maps"][:, -1])[:, 0].float().cpu().numpy()
        tokens = outputs["tokens"].float().cpu().numpy()
        for row, index in enumerate(batch["index"].tolist()):
            source = self.items[index]["image"]
            if batch["rejected"][row]:
                self.num_rejected += 1
                csv.writer(self.rejected).writerow([source, batch["rejected"][row]])
                continue
            values = scores[row].tolist()
            decision = int(values[-1] >= self.thresholds[-1]) if np.isfinite(self.thresholds[-1]) else ""
            csv.writer(self.scores).writerow([source, decision, *(f"{value:.6g}" for value in reversed(values))])
            if self.saved:
                self._hand_over(self._result(batch, row, source, heat[row], tokens[row]))
        self.scores.flush()
        self.rejected.flush()

    def close(self, engine: Engine) -> None:
        """Wait for the threads and close the files."""
        try:
            self._wait_until(0)
        finally:
            self.resources.close()

    def close_after_error(self, engine: Engine, error: BaseException) -> None:
        """Close the files and go on with the error."""
        self.resources.close()
        raise error

    def exit_if_rejected(self) -> None:
        """
        End the process with exit code 2 if files were rejected, after saying so; for the command line.

        Raises:
            SystemExit: with code 2.
        """
        if self.num_rejected:
            path = self.output_dir / "rejected.csv"
            print(f"{self.num_rejected} of {len(self.items)} files were rejected: see {path}", file=sys.stderr)
            raise SystemExit(EXIT_CODE_REJECTED)

    def _open(self, name: str, header: Sequence[str]) -> TextIO:
        path = self.output_dir / name
        if path.exists():
            path.replace(path.with_stem(f"{path.stem}_previous"))
        # names of files need not be valid text
        file = self.resources.enter_context(path.open("w", newline="", encoding="utf-8", errors="backslashreplace"))
        csv.writer(file).writerow(header)
        return file

    def _result(self, batch: Any, row: int, source: str, heat: np.ndarray, tokens: np.ndarray) -> DetectionResult:
        return DetectionResult(
            source=source,
            root=self.root,
            heat=heat,
            tokens=tokens,
            picture=torch.as_tensor(batch["picture"][row, 0]).numpy(),
            spatial_shape=tuple(batch["spatial_shape"][row].tolist()),
            affine=batch["affine"][row].numpy(),
            heat_range=(self.low, self.high),
        )

    def _hand_over(self, result: DetectionResult) -> None:
        self.pending += [self.pool.submit(_SAVERS[kind], result, self.output_dir / kind) for kind in self.saved]
        self._wait_until(64)

    def _wait_until(self, remaining: int) -> None:
        """Wait for the oldest, and raise what went wrong in them, so that neither memory nor errors pile up."""
        while len(self.pending) > remaining:
            self.pending.pop(0).result()
