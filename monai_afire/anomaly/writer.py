# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of a detector's results, image by image, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys

from monai_afire.anomaly.detector import SCORE_NAMES, AnomalyDetector
from monai_afire.anomaly.results import AnomalyResult, save_embedding, save_map, save_overlay
from monai_afire.handlers.writers.implausible_decisions import warn_if_implausible
from monai_afire.handlers.writers.result_files import ResultFiles
from monai_afire.handlers.writers.result_tables import OUTPUT_IS_NAN

__all__ = ["AnomalyWriter"]

_DECISION = "abnormal"
_ADAPT = (
    "give the settings of the training (such as --standardize) here too, or adapt the detector to normal images of "
    "this kind (finetune_anomaly.json with --dataset_dir)"
)

_SAVERS: dict[str, Callable[[AnomalyResult, Path], Path]] = {
    "overlays": save_overlay,
    "maps": save_map,
    "embeddings": save_embedding,
}
SAVED_KINDS = tuple(_SAVERS)


class AnomalyWriter(ResultFiles):
    """
    Write scores, decision, heat map and embedding of each image as soon as they are there.

    ``scores.csv`` has one row per image with all scores and the decision by the fused score's threshold,
    ``rejected.csv`` one per file that could not be read or has a score that is no finite number, with the reason. Both
    grow by whole batches, so that an interrupted run keeps what it has. Pictures, maps and embeddings are written by
    threads beside the network. Memory does not depend on the number of images.

    The batches need "index" (the number in ``items``), "rejected", "spatial_shape", "affine" and "picture", see
    :class:`monai_afire.transforms.LoadRadiographd` and :class:`monai_afire.transforms.DescribeRadiographd`.

    Args:
        detector: the evaluator's network.
        items: the data set's items, for the names of the files.
        output_dir: where to write; earlier runs' tables are kept as ``*_previous.csv``, ``*_previous_2.csv``, ....
        saved: which of "overlays", "maps" and "embeddings" to write.
        num_threads: threads that write them.
        resume: go on where a run was stopped, see :class:`monai_afire.handlers.writers.ResultTables`.

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
        resume: bool = False,
    ) -> None:
        unknown = set(saved) - set(_SAVERS)
        if unknown:
            raise ValueError(f"saved must name some of {sorted(_SAVERS)}, got {sorted(unknown)}")
        super().__init__(items, output_dir, "scores.csv", num_threads, resume)
        self.detector = detector
        self.saved = tuple(saved)

    def start(self, engine: Engine) -> None:
        """Open the files, and read range and thresholds, which a checkpoint may have changed."""
        super().start(engine)
        self.low, self.high = self.detector.heat_range.tolist()
        self.thresholds = self.detector.thresholds.tolist()

    def header(self) -> Sequence[str]:
        """File, decision and scores, the fused score first."""
        return ["image", _DECISION, *reversed(SCORE_NAMES)]

    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch and hand the rest to the threads."""
        batch: Any = engine.state.batch
        outputs = engine.state.output[CommonKeys.PRED]  # type: ignore[index]
        scores = outputs["scores"].float().cpu()
        heat = self.detector.heat_map(outputs["maps"][:, -1])[:, 0].float().cpu().numpy()
        tokens = outputs["tokens"].float().cpu().numpy()
        for row, source in self.accepted(batch):
            values = scores[row].tolist()
            if not np.isfinite(values).all():  # a comparison with NaN is false: it would be called normal
                self.reject(source, OUTPUT_IS_NAN)
                continue
            decision = int(values[-1] >= self.thresholds[-1]) if np.isfinite(self.thresholds[-1]) else ""
            self.add_row([source, decision, *(f"{value:.6g}" for value in reversed(values))])
            if self.saved:
                result = self._result(batch, row, source, heat[row], tokens[row])
                for kind in self.saved:
                    self.hand_over(_SAVERS[kind], result, self.output_dir / kind)

    def close(self, engine: Engine) -> None:
        """Close the tables, and look at the decisions as a whole."""
        super().close(engine)
        if self.has_rows:
            warn_if_implausible(self.output_dir / self.table_name, [_DECISION], _ADAPT)

    def _result(self, batch: Any, row: int, source: str, heat: np.ndarray, tokens: np.ndarray) -> AnomalyResult:
        return AnomalyResult(
            source=source,
            root=self.root,
            heat=heat,
            tokens=tokens,
            picture=torch.as_tensor(batch["picture"][row, 0]).numpy(),
            spatial_shape=tuple(batch["spatial_shape"][row].tolist()),
            affine=batch["affine"][row].numpy(),
            heat_range=(self.low, self.high),
        )
