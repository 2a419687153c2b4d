# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of a detector's scores, work-list, heat maps and embeddings while it runs."""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
from ignite.engine import Engine
from monai.utils import CommonKeys
from numpy.typing import NDArray
from PIL import Image, ImageOps
from pydicom.dataset import Dataset

from monai_afire.apps.results.pictures.captions import NOT_CLINICAL
from monai_afire.apps.results.prediction_writer import warn_if_implausible
from monai_afire.apps.results.result_pictures import batch_picture, in_proportion, resized_maps
from monai_afire.apps.results.result_tables import ResultTables, written_name
from monai_afire.apps.runs.declarations import SAVED_KINDS
from monai_afire.apps.worklist.batch_report import Drift, measure_drift
from monai_afire.apps.worklist.heat_panels import emphasized_heat_map, heat_panels
from monai_afire.apps.worklist.image_facts import ImageFactsReader
from monai_afire.apps.worklist.lung_zones import lung_zone
from monai_afire.apps.worklist.normal_images import DetectorNormals, Judgment, NormalImages
from monai_afire.apps.worklist.run_normals import RunNormals
from monai_afire.apps.worklist.secondary_capture import NoStudyError, read_source, secondary_capture
from monai_afire.apps.worklist.structured_report import highdicom_reports, structured_report
from monai_afire.apps.worklist.worklist import (
    JUDGMENT_COLUMNS,
    WorklistSummary,
    hottest_place,
    judgment_cells,
    write_worklist,
)
from monai_afire.apps.worklist.worklist_page import write_worklist_page
from monai_afire.detection.detector import HEAT_UNIT, AnomalyDetector
from monai_afire.networks.weights.description import Description
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.transforms.radiograph_io.common import WRITER
from monai_afire.utils.files import atomic_path, output_path
from monai_afire.utils.text import counted, harmless

logger = logging.getLogger(__name__)

_DECISION = "abnormal"
_WORKLIST = "worklist.csv"
_PAGE = "worklist.html"
_ADAPT = (
    "give the settings of the training (such as --standardize) where the weights do not carry them, or adapt the "
    "detector to normal images of this kind (finetune_anomaly.json with --dataset_dir)"
)

_UNDESCRIBED = Description("anomaly detector")
_JPEG_QUALITY = 90  # a third of a PNG's size
_THUMBNAIL_SIDE = 192
_THUMBNAIL_QUALITY = 80


@dataclass
class AnomalyResult:
    """
    Result of a detector for one image: scores, maps and embedding as arrays in memory, nothing on a device.

    Attributes:
        source: its file.
        root: folder that its place in the output folder is relative to.
        heat: ``(h, w)`` fused heat at the resolution of the network's input.
        tokens: ``(L, D)``.
        picture: ``(h, w)`` uint8 to draw the overlay on.
        spatial_shape: (rows, columns) of the file.
        affine: ``(4, 4)`` of the file.
        heat_range: heat at which the overlay's color begins and ends.
        score: fused score.
        threshold: of the fused score, NaN for none.
        p_value: conformal p-value of the score, NaN for none; of reports alone.
        not_judged: why the normal images say nothing about this one; then there is no threshold and no p-value.
        lung_zone: of :func:`monai_afire.apps.worklist.lung_zone`.
        model: what the detector's file says about it, for reports.
    """

    source: str
    root: str
    heat: np.ndarray
    tokens: np.ndarray
    picture: np.ndarray
    spatial_shape: tuple[int, ...]
    affine: np.ndarray
    heat_range: tuple[float, float]
    score: float
    threshold: float
    p_value: float = np.nan
    not_judged: str = ""
    lung_zone: str = ""
    model: Description = _UNDESCRIBED

    @property
    def title(self) -> str:
        """Score, threshold and decision; no name, so that pictures can be shown to others."""
        if self.not_judged:
            return f"score {self.score:.3f}, not judged: {self.not_judged}"
        if not np.isfinite(self.threshold):
            return f"score {self.score:.3f}, no threshold"
        decision = "above" if self.score >= self.threshold else "below"
        return f"score {self.score:.3f}, {decision} the threshold of {self.threshold:.3f}"

    def picture_with_heat(self) -> NDArray[np.uint8]:
        """
        Radiograph and heat map side by side, in the proportions of the file, the longer side as the picture's.

        The title says that it is not for clinical use.
        """
        picture, heat = self.planes
        return heat_panels(
            picture, heat, *self.heat_range, f"{self.title}; {NOT_CLINICAL}", HEAT_UNIT
        )

    def thumbnail(self, side: int) -> Image.Image:
        """Small radiograph and the same with its heat, side by side in two squares of ``side`` pixels."""
        picture, heat = self.planes
        gray = np.rint(255 * picture.clip(0, 1)).astype(np.uint8)
        small = ImageOps.contain(Image.fromarray(gray), (side, side), Image.Resampling.BILINEAR)
        values, hot = np.asarray(small) / 255, resized_maps(heat[None], small.size[::-1])[0]
        colored = emphasized_heat_map(values, hot, *self.heat_range)
        sheet = Image.new("RGB", (2 * side, side))
        for place, half in enumerate((small, Image.fromarray(colored))):
            sheet.paste(
                half, (place * side + (side - small.width) // 2, (side - small.height) // 2)
            )
        return sheet

    @cached_property
    def planes(self) -> tuple[NDArray, NDArray]:
        """Picture in [0, 1] and heat of its shape, in the proportions of the file."""
        picture = in_proportion(self.picture, self.spatial_shape)
        return picture, resized_maps(self.heat[None], picture.shape)[0]


def save_thumbnail(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """Write a small radiograph and its heat map side by side as JPEG, for the page of the work-list."""
    return _save_jpeg(result.thumbnail(_THUMBNAIL_SIDE), _THUMBNAIL_QUALITY, result, folder)


def save_overlay(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """Write radiograph and heat map side by side as JPEG, see :meth:`AnomalyResult.picture_with_heat`."""
    return _save_jpeg(Image.fromarray(result.picture_with_heat()), _JPEG_QUALITY, result, folder)


def _save_jpeg(
    picture: Image.Image, quality: int, result: AnomalyResult, folder: str | os.PathLike
) -> Path:
    path = output_path(folder, result.source, result.root, ".jpg")
    with atomic_path(path) as temporary:
        picture.save(temporary, format="JPEG", quality=quality, comment=WRITER)
    return path


def save_secondary_capture(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """Write the same picture as DICOM Secondary Capture in the study of its source, or raise ``NoStudyError``."""
    picture, title = result.picture_with_heat(), result.title
    return _save_dicom(lambda source: secondary_capture(picture, source, title), result, folder)


def save_report(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """Write score, p-value and place as DICOM Structured Report in the study of its source, as the picture."""
    facts = (result.score, result.threshold, result.p_value, result.lung_zone, result.model)
    reason = result.not_judged
    return _save_dicom(lambda source: structured_report(source, *facts, reason), result, folder)


def _save_dicom(
    make: Callable[[Dataset], Dataset], result: AnomalyResult, folder: str | os.PathLike
) -> Path:
    try:
        made = make(read_source(result.source))
    except NoStudyError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        NotImplementedError,
    ) as error:  # the pixels could be read all the same
        raise NoStudyError(
            f"{result.source} has a header that cannot be copied: {error}"
        ) from error
    path = output_path(folder, result.source, result.root, ".dcm")
    with atomic_path(path) as temporary:
        made.save_as(temporary, enforce_file_format=True)
    return path


def save_map(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """Write the heat map as NIfTI in the geometry of the file, for an overlay in any viewer."""
    path = output_path(folder, result.source, result.root, ".nii.gz")
    volume = nibabel.Nifti1Image(
        resized_maps(result.heat[None], result.spatial_shape)[0], result.affine
    )
    with atomic_path(path) as temporary:
        temporary.write_bytes(gzip.compress(volume.to_bytes(), compresslevel=1, mtime=0))
    return path


def save_embedding(result: AnomalyResult, folder: str | os.PathLike) -> Path:
    """Write the tokens as ``.npz`` with "tokens" ``(L, D)`` and their mean "embedding" ``(D,)``."""
    path = output_path(folder, result.source, result.root, ".npz")
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, tokens=result.tokens, embedding=result.tokens.mean(0))
    return path


_SAVERS: dict[str, Callable[[AnomalyResult, Path], Path]] = {
    "overlays": save_overlay,
    "thumbnails": save_thumbnail,
    "dicom": save_secondary_capture,
    "sr": save_report,
    "maps": save_map,
    "embeddings": save_embedding,
}


@dataclass(eq=False, repr=False)
class AnomalyWriter(ResultTables):
    """
    Write scores, decision, heat map and embedding of each image while the network runs.

    ``scores.csv`` has one row per image with all scores, the decision by the fused score's threshold and where the heat
    is. ``rejected.csv`` has one row per file that could not be read or has a score that is no finite number, with the
    reason. Both grow by whole batches, so an interrupted run keeps its results. Threads write pictures, maps and
    embeddings, in memory that does not depend on the number of images. When the run is complete, ``worklist.csv``
    (:func:`monai_afire.apps.worklist.write_worklist`) and ``worklist.html``
    (:func:`monai_afire.apps.worklist.write_worklist_page`) are made from the whole table.

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
        resume: continue a stopped run, see :class:`monai_afire.handlers.writers.ResultTables`.
        patient_identifiers: have name, ID and birth date of DICOM files in the work-list.
        strict_view: reject DICOM files whose headers say that they are no frontal chest radiographs.
        model_file: of the detector, whose version and digest stand in reports.
        normals: the normal images that scores are compared with; None for the detector's own, which judge every image.

    Raises:
        ImportError: for "sr" without the package highdicom.
        ValueError: for an unknown name in ``saved``.
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    derived = (_WORKLIST, _PAGE, *SAVED_KINDS)

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
    summary: WorklistSummary | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if unknown := set(self.saved) - set(_SAVERS):
            raise ValueError(f"saved must name some of {sorted(_SAVERS)}, got {sorted(unknown)}")
        if "sr" in self.saved:
            highdicom_reports()
        self.folders = tuple(self.saved)

    def start(self, engine: Engine) -> None:
        """Open the files, and read range and thresholds, which a checkpoint may have changed."""
        super().start(engine)
        self.summary = None
        self.without_study: dict[str, str] = {}  # file -> reason
        self.model = (
            self.model_file.identity if self.model_file and "sr" in self.saved else _UNDESCRIBED
        )
        self.low, self.high = self.detector.heat_range.tolist()
        self.reference: NormalImages | DetectorNormals = DetectorNormals(self.detector)
        if self.normals is not None:
            self.reference = self.normals.load()
        self.reader = ImageFactsReader(self.detector)

    def header(self) -> Sequence[str]:
        """File, decision, scores with the fused one first, place of the strongest heat, and the judgment."""
        scores = reversed(self.detector.score_names)
        return ["image", _DECISION, *scores, "hottest", "lung_zone", *JUDGMENT_COLUMNS]

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
        sources = [self.items[index]["image"] for index in batch["index"].tolist()]
        facts = self.reader.read(batch["picture"], outputs["tokens"], sources, lungs)
        # a comparison with NaN is false: such an image would be called normal
        for row, source in self.accepted(batch, scores.isfinite().all(1)):
            if self.strict_view and facts[row].other_view:
                view = facts[row].other_view
                self.reject(source, f"is no frontal chest radiograph by its header ({view})")
                continue
            values = scores[row].tolist()
            judgment = self.reference.judge(values[-1], facts[row])
            zone = "" if lungs is None else lung_zone(heat[row], lungs[row], self.low)
            numbers = [f"{value:.9g}" for value in reversed(values)]
            place = [hottest_place(heat[row], self.low), zone]
            self.add_row([source, _decision(judgment), *numbers, *place, *judgment_cells(judgment)])
            if self.saved:
                result = self._result(batch, row, source, heat[row], tokens[row], values[-1])
                result = replace(result, lung_zone=zone, **_judged(judgment))
                for kind in self.saved:
                    self.submit(self._save, kind, result)

    def complete(self) -> None:
        """Write the work-list, and check the decisions as a whole."""
        table = self.folder / self.table_name
        sources = {written_name(item["image"]): item["image"] for item in self.items}
        worklist = self.folder / _WORKLIST
        self.summary = write_worklist(
            table, worklist, sources, self.patient_identifiers, self._comparison()
        )
        drift = self._drift(self.summary.table)
        if drift is not None and drift.is_clear:
            logger.warning(str(drift))
        if "thumbnails" in self.saved:
            self._write_page(worklist, sources, drift)
        warn_if_implausible(table, [_DECISION], _ADAPT)

    def close(self, engine: Engine) -> None:
        """Close the files; each process says which of its own images have no Secondary Capture."""
        super().close(engine)
        if self.without_study:
            have = counted(len(self.without_study), "image has", "images have")
            logger.warning(
                f"{have} no Secondary Capture or report, such as: "
                f"{next(iter(self.without_study.values()))}"
            )

    def _drift(self, table: pd.DataFrame) -> Drift | None:
        """Difference of the judged images' p-values from those of normal images, and the view or scanner behind it."""
        groups = {name: table[name].tolist() for name in ("view", "scanner")}
        p_values = pd.to_numeric(table["p_value"], errors="coerce")
        return measure_drift(p_values, groups, self.reference.number or None)

    def _write_page(self, worklist: Path, sources: Mapping[str, str], drift: Drift | None) -> None:
        listed = {harmless(name): source for name, source in sources.items()}

        def picture(kind: str) -> Callable[[str], Path]:
            return lambda name: output_path(
                self.folder / kind, listed.get(name, name), self.root, ".jpg"
            )

        write_worklist_page(
            worklist,
            self.folder / _PAGE,
            picture("thumbnails"),
            picture("overlays"),
            drift,
            self._comparison(),
        )

    def _comparison(self) -> str:
        """What the scores were compared with, or why with nothing."""
        return self.reference.shortage or f"compared with {self.reference}"

    def print_summary(self) -> None:
        """Say how many images are above the threshold; for the command line."""
        if self.summary is not None:
            print(self.summary, flush=True)

    def _save(self, kind: str, result: AnomalyResult) -> None:
        try:
            _SAVERS[kind](result, self.folder / kind)
        except NoStudyError as error:  # one that does not belong to a study cannot end the run
            self.without_study[result.source] = str(error)

    def _result(
        self,
        batch: Any,
        row: int,
        source: str,
        heat: np.ndarray,
        tokens: np.ndarray,
        score: float,
    ) -> AnomalyResult:
        return AnomalyResult(
            source=source,
            root=self.root,
            heat=heat,
            tokens=tokens,
            picture=batch_picture(batch, row),
            spatial_shape=tuple(batch["spatial_shape"][row].tolist()),
            affine=batch["affine"][row].numpy(),
            heat_range=(self.low, self.high),
            score=score,
            threshold=np.nan,
            model=self.model,
        )


def _decision(judgment: Judgment) -> int | str:
    return "" if judgment.above is None else int(judgment.above)


def _judged(judgment: Judgment) -> dict[str, Any]:
    """Fields of a result that the normal images say."""
    names = ("threshold", "p_value", "not_judged")
    return {name: getattr(judgment, name) for name in names}
