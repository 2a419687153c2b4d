# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of a detector's results, image by image, while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys

from monai_afire.anomaly.detector import AnomalyDetector
from monai_afire.anomaly.results import (
    AnomalyResult,
    save_embedding,
    save_map,
    save_overlay,
    save_secondary_capture,
)
from monai_afire.anomaly.secondary_capture import NoStudyError
from monai_afire.anomaly.worklist import WorklistSummary, hottest_place, write_worklist
from monai_afire.handlers.writers.implausible_decisions import warn_if_implausible
from monai_afire.handlers.writers.result_files import ResultFiles
from monai_afire.handlers.writers.result_tables import OUTPUT_IS_NAN
from monai_afire.handlers.writers.unfinished_table import written_name
from monai_afire.utils.file_geometry import FileGeometry

__all__ = ["AnomalyWriter"]

logger = logging.getLogger(__name__)

_DECISION = "abnormal"
_WORKLIST = "worklist.csv"
_ADAPT = (
    "give the settings of the training (such as --standardize) where the weights do not carry them, or adapt the "
    "detector to normal images of this kind (finetune_anomaly.json with --dataset_dir)"
)

_SAVERS: dict[str, Callable[[AnomalyResult, Path], Path]] = {
    "overlays": save_overlay,
    "dicom": save_secondary_capture,
    "maps": save_map,
    "embeddings": save_embedding,
}
SAVED_KINDS = tuple(_SAVERS)


class AnomalyWriter(ResultFiles):
    """
    Write scores, decision, heat map and embedding of each image as soon as they are there.

    ``scores.csv`` has one row per image with all scores, the decision by the fused score's threshold and where the heat
    is, ``rejected.csv`` one per file that could not be read or has a score that is no finite number, with the reason.
    Both grow by whole batches, so that an interrupted run keeps what it has. Pictures, maps and embeddings are written
    by threads beside the network, in memory that does not depend on the number of images. ``worklist.csv``
    (:func:`monai_afire.anomaly.write_worklist`) is made of the whole table when the run is complete.

    The batches need "index" (the number in ``items``), "rejected", "spatial_shape", "affine" and "picture", of volumes
    "original_affine" and "input_affine", too, see :func:`monai_afire.transforms.image_loader`,
    :class:`monai_afire.transforms.DescribeRadiographd` and :class:`monai_afire.transforms.NoteAffined`.

    Args:
        detector: the evaluator's network.
        items: the data set's items, for the names of the files.
        output_dir: where to write; earlier runs' tables are kept as ``*_previous.csv``, ``*_previous_2.csv``, ....
        saved: which of "overlays", "dicom" (the overlays as Secondary Capture in the study of their source), "maps" and
            "embeddings" to write.
        num_threads: threads that write them.
        resume: go on where a run was stopped, see :class:`monai_afire.handlers.writers.ResultTables`.
        patient_identifiers: have name, ID and birth date of DICOM files in the work-list.

    Raises:
        ValueError: for an unknown name in ``saved``.
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    derived = (_WORKLIST,)

    def __init__(
        self,
        detector: AnomalyDetector,
        items: Sequence[Mapping[str, Any]],
        output_dir: str,
        saved: Sequence[str] = ("overlays",),
        num_threads: int = 2,
        resume: bool = False,
        patient_identifiers: bool = False,
    ) -> None:
        unknown = set(saved) - set(_SAVERS)
        if unknown:
            raise ValueError(f"saved must name some of {sorted(_SAVERS)}, got {sorted(unknown)}")
        super().__init__(items, output_dir, "scores.csv", num_threads, resume)
        self.detector = detector
        self.saved = tuple(saved)
        self.patient_identifiers = patient_identifiers
        self.without_study: list[str] = []
        self.summary: WorklistSummary | None = None

    def start(self, engine: Engine) -> None:
        """Open the files, and read range and thresholds, which a checkpoint may have changed."""
        super().start(engine)
        self.without_study, self.summary = [], None
        self.low, self.high = self.detector.heat_range.tolist()
        self.thresholds = self.detector.thresholds.tolist()

    def header(self) -> Sequence[str]:
        """File, decision, scores with the fused one first, and the place of the strongest heat."""
        return ["image", _DECISION, *reversed(self.detector.score_names), "hottest"]

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
            numbers = [f"{value:.6g}" for value in reversed(values)]
            self.add_row([source, decision, *numbers, hottest_place(heat[row], self.low)])
            if self.saved:
                result = self._result(batch, row, source, heat[row], tokens[row], values[-1])
                for kind in self.saved:
                    self.hand_over(self._save, kind, result)

    def complete(self) -> None:
        """Write the work-list, and look at the decisions as a whole."""
        table = self.output_dir / self.table_name
        self.summary = write_worklist(
            table,
            self.output_dir / _WORKLIST,
            self.thresholds[-1],
            self.detector.normal_percentiles,
            {written_name(item["image"]): item["image"] for item in self.items},
            self.patient_identifiers,
        )
        warn_if_implausible(table, [_DECISION], _ADAPT)
        if self.without_study:
            logger.warning(
                f"{len(self.without_study)} images have no Secondary Capture, such as: {self.without_study[0]}"
            )

    def print_summary(self) -> None:
        """Say how many images are above the threshold; for the command line."""
        if self.summary is not None:
            print(self.summary, flush=True)

    def _save(self, kind: str, result: AnomalyResult) -> None:
        try:
            _SAVERS[kind](result, self.output_dir / kind)
        except NoStudyError as error:  # one that does not belong to a study cannot end the run
            self.without_study.append(str(error))

    def _result(
        self, batch: Any, row: int, source: str, heat: np.ndarray, tokens: np.ndarray, score: float
    ) -> AnomalyResult:
        return AnomalyResult(
            source=source,
            root=self.root,
            heat=heat,
            tokens=tokens,
            # of a picture in colour its gray
            picture=torch.as_tensor(batch["picture"][row]).float().mean(0).to(torch.uint8).numpy(),
            spatial_shape=tuple(batch["spatial_shape"][row].tolist()),
            affine=batch["affine"][row].numpy(),
            heat_range=(self.low, self.high),
            score=score,
            threshold=self.thresholds[-1],
            geometry=FileGeometry.of(batch, row) if heat.ndim == 3 else None,
        )
