# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of a detector's scores, work-list and files of each image while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from ignite.engine import Engine
from monai.utils import CommonKeys
from pydicom.dataset import Dataset

from monai_afire.apps.results.output_paths import output_path
from monai_afire.apps.results.prediction_writer import warn_if_implausible
from monai_afire.apps.results.result_pictures import batch_picture
from monai_afire.apps.results.result_tables import ResultTables, written_name
from monai_afire.apps.worklist.anomaly_result import KINDS, UNDESCRIBED, AnomalyResult, save_result
from monai_afire.apps.worklist.batch_report import drift
from monai_afire.apps.worklist.dicom_results import NoStudyError, highdicom
from monai_afire.apps.worklist.heat_places import hottest_place, lung_zone
from monai_afire.apps.worklist.image_facts import ImageFactsReader
from monai_afire.apps.worklist.normal_images import DetectorNormals, NormalImages
from monai_afire.apps.worklist.run_normals import RunNormals
from monai_afire.apps.worklist.worklist import (
    IDENTIFIERS,
    JUDGMENT_COLUMNS,
    UIDS,
    described_image,
    judgment_cells,
    summary,
    write_worklist,
)
from monai_afire.apps.worklist.worklist_page import write_worklist_page
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.transforms.radiograph_header import header_of
from monai_afire.utils.text import counted, harmless

logger = logging.getLogger(__name__)

_DECISION = "abnormal"
_DECISIONS = {None: "", False: 0, True: 1}
_WORKLIST, _PAGE = "worklist.csv", "worklist.html"
_ADAPT = (
    "give the settings of the training (such as --standardize) where the weights do not carry them, or adapt the "
    "detector to normal images of this kind (finetune_anomaly.json with --dataset_dir)"
)


@dataclass(eq=False, repr=False)
class AnomalyWriter(ResultTables):
    """
    Write scores, decision, heat map and embedding of each image while the network runs.

    ``scores.csv`` has one row per image with all scores, the decision by the fused score's threshold and where the heat
    is; ``rejected.csv`` the files without a result, and the reason. Threads write pictures, maps and embeddings. When
    the run is complete, ``worklist.csv`` and ``worklist.html`` are made from the whole table.

    The batches need "index" (the number in ``items``), "rejected", "spatial_shape", "affine" and "picture", see
    :class:`monai_afire.transforms.LoadRadiographd` and :class:`monai_afire.transforms.DescribeRadiographd`.

    Args:
        detector: the evaluator's network.
        items: the data set's items, for the names of the files.
        output_dir: where to write; a folder with the results of another run is refused.
        saved: which of "overlays", "thumbnails" (with ``worklist.html``, the work-list as a page), "dicom" (the
            overlays as Secondary Capture in the study of their source), "sr" (score, p-value and place as Structured
            Report in that study), "maps" and "embeddings" to write.
        num_threads: threads that write them.
        resume: continue a stopped run, see :class:`monai_afire.apps.results.ResultTables`.
        patient_identifiers: have name, ID and birth date of DICOM files in the work-list.
        strict_view: reject DICOM files whose headers say that they are no frontal chest radiographs.
        model_file: of the detector, whose version and digest stand in reports.
        normals: the normal images that scores are compared with; None for the detector's own, which judge every image.
        root: folder that pictures are named relative to; "" for that which all files have in common.

    Raises:
        ImportError: for "dicom" or "sr" without the package highdicom.
        ValueError: for an unknown name in ``saved``.
    """

    derived = (_WORKLIST, _PAGE, *KINDS)

    table_name = "scores.csv"

    detector: AnomalyDetector
    items: Sequence[Mapping[str, Any]]
    output_dir: str
    saved: Sequence[str] = ("overlays",)
    num_threads: int = 2
    resume: bool = False
    patient_identifiers: bool = False
    strict_view: bool = False
    model_file: ModelFile | None = None
    normals: RunNormals | None = None
    root: str = ""
    worklist: pd.DataFrame | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if unknown := set(self.saved) - set(KINDS):
            raise ValueError(f"saved must name some of {sorted(KINDS)}, got {sorted(unknown)}")
        if {"dicom", "sr"} & set(self.saved):
            highdicom()
        self.folders = tuple(self.saved)

    def start(self, engine: Engine) -> None:
        """Begin, and read range and thresholds, which a checkpoint may have changed."""
        super().start(engine)
        self.worklist = None
        self.without_study: dict[str, str] = {}  # file -> reason
        described = self.model_file is not None and "sr" in self.saved
        self.model = self.model_file.description if described else UNDESCRIBED  # type: ignore[union-attr]
        self.low, self.high = self.detector.heat_range.tolist()
        self.reference: NormalImages | DetectorNormals = DetectorNormals(self.detector)
        if self.normals is not None:
            self.reference = self.normals.load()
        self.reader = ImageFactsReader(self.detector)

    def header(self) -> Sequence[str]:
        """File, decision, scores with the fused one first, place of the strongest heat, and the judgment."""
        scores = reversed(self.detector.score_names)
        return ["image", _DECISION, *scores, "hottest", "lung_zone", *JUDGMENT_COLUMNS]

    def settings(self) -> Mapping[str, Any]:
        """What is rejected and described, and the normal images."""
        return {
            "strict_view": self.strict_view,
            "patient_identifiers": self.patient_identifiers,
            "normals": None if self.normals is None else self.normals.kind(),
        }

    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch and hand the rest to the threads."""
        batch: Any = engine.state.batch
        outputs = engine.state.output[CommonKeys.PRED]  # type: ignore[index]
        scores = outputs["scores"].float().cpu()
        tokens = outputs["tokens"].float().cpu().numpy()
        images = batch[CommonKeys.IMAGE]
        fused = outputs["maps"][:, -1].float()
        heat = self.detector.heat_map(images.to(fused), fused)[:, 0].cpu().numpy()
        lungs = self.reader.lungs(images)
        headers = self._headers(batch)  # before accepted() looks whether the file is still the same
        facts = self.reader.read(batch, outputs["tokens"], headers, lungs)
        # a comparison with NaN is false: such an image would be called normal
        for row, source in self.accepted(batch, scores.isfinite().all(1)):
            if self.strict_view and facts[row].other_view:
                view = facts[row].other_view
                self.reject(source, f"is no frontal chest radiograph by its header ({view})")
                continue
            result = AnomalyResult(
                source=source,
                root=self.root,
                heat=heat[row],
                heat_range=(self.low, self.high),
                tokens=tokens[row],
                picture=batch_picture(batch, row),
                spatial_shape=tuple(batch["spatial_shape"][row].tolist()),
                affine=batch["affine"][row].numpy(),
                score=scores[row, -1].item(),
                judgment=self.reference.judge(scores[row, -1].item(), facts[row]),
                lung_zone="" if lungs is None else lung_zone(heat[row], lungs[row], self.low),
                model=self.model,
            )
            described = described_image(headers[row], self.patient_identifiers)
            self.add_row(self._cells(result, scores[row].tolist()), described)
            for kind in self.saved:
                self.submit(source, self._saved, kind, result)

    def _headers(self, batch: Mapping[str, Any]) -> list[Dataset]:
        """Of the files of a batch; empty for another kind than DICOM."""
        elements = [*UIDS.values(), *IDENTIFIERS.values()]
        return [header_of(self.items[i]["image"], elements) for i in batch["index"].tolist()]

    def _cells(self, result: AnomalyResult, scores: Sequence[float]) -> list[Any]:
        """The row of an image, see :meth:`header`."""
        return [
            result.source,
            _DECISIONS[result.judgment.above],
            *(f"{score:.9g}" for score in reversed(scores)),
            hottest_place(result.heat, self.low),
            result.lung_zone,
            *judgment_cells(result.judgment),
        ]

    def _saved(self, kind: str, result: AnomalyResult) -> Path | None:
        try:
            return save_result(result, kind, self.folder / kind)
        except NoStudyError as error:  # one that does not belong to a study cannot end the run
            self.without_study[result.source] = str(error)
            return None

    def complete(self, described: Mapping[str, Any]) -> None:
        """Write the work-list and its page, and check the decisions as a whole."""
        table = self.folder / self.table_name
        known = {name: texts for name, texts in described.items() if texts}
        self.worklist = write_worklist(table, self.folder / _WORKLIST, known)
        shipped = isinstance(self.reference, NormalImages) and not self.normals.calibrate  # type: ignore[union-attr]
        difference = drift(self.worklist, self.reference.number, own=not shipped)
        if difference:
            logger.warning(difference)
        if "thumbnails" in self.saved:
            write_worklist_page(
                self.worklist,
                self.folder / _PAGE,
                self._file_of("thumbnails"),
                self._file_of("overlays"),
                difference,
                self._comparison(),
            )
        warn_if_implausible(table, [_DECISION], _ADAPT)

    def _file_of(self, kind: str) -> Callable[[str], Path]:
        """Name in the work-list -> picture of this kind."""
        sources = {harmless(written_name(item["image"])): item["image"] for item in self.items}
        folder = self.folder / kind
        return lambda name: output_path(folder, sources.get(name, name), self.root, ".jpg")

    def close(self, engine: Engine) -> None:
        """Close the files; each process says which of its own images have no Secondary Capture."""
        super().close(engine)
        if self.without_study:
            have = counted(len(self.without_study), "image has", "images have")
            example = next(iter(self.without_study.values()))
            logger.warning(f"{have} no Secondary Capture or report, such as: {example}")

    def print_summary(self) -> None:
        """Say how many images are above the threshold; for the command line."""
        if self.worklist is not None:
            print(summary(self.worklist, self._comparison()), flush=True)

    def _comparison(self) -> str:
        """What the scores were compared with, or why with nothing."""
        return self.reference.shortage or f"compared with {self.reference}"
