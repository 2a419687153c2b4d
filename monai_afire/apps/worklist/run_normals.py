# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which normal images a run compares with: those shipped with the detector, or a hospital's own."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from monai.data import DataLoader, Dataset
from monai.utils import CommonKeys
from tqdm import tqdm

from monai_afire.apps.worklist.image_facts import ImageFacts, ImageFactsReader
from monai_afire.apps.worklist.normal_images import DetectorNormals, NormalImages, normals_from
from monai_afire.apps.worklist.normals_file import OtherDetectorError, load_normals, save_normals
from monai_afire.data.datalist.datalist_checks import SECTIONS, DatalistError
from monai_afire.data.datalist.labels import normal_items
from monai_afire.data.datalist.loading import load_radiograph_datalist, read_sections
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.transforms.radiograph_header import header_of
from monai_afire.utils.distributed import by_main_rank
from monai_afire.utils.files import is_safetensors
from monai_afire.utils.text import counted

__all__ = ["RunNormals"]

logger = logging.getLogger(__name__)

_SPECIFICITY = 0.95


@dataclass
class RunNormals:
    """
    The normal images that a run compares with.

    With ``calibrate`` they are a hospital's own. Images are scored once, and ``normals.safetensors`` beside the
    results keeps their scores, for the next runs. Nothing is fitted.

    Args:
        detector: fitted.
        model_file: of the detector, whose digest ties a file to it.
        output_dir: of the results.
        calibrate: folder or datalist of normal images, or a file that an earlier run has written; None for those that
            come with the detector.
        shipped: file that comes with the detector; None or a missing file for none.
        preprocessing: transform of the items.
        inferer: runs the detector.
        batch_size: of the loader.
        num_workers: of the loader.
        specificity: share of normal images that stay below the threshold; None for 0.95.
        resume: take the file that a stopped run has written.
    """

    detector: AnomalyDetector
    model_file: ModelFile
    output_dir: str | os.PathLike
    calibrate: str | None = None
    shipped: str | None = None
    preprocessing: Callable[[Mapping[str, Any]], Any] | None = None
    inferer: Callable[..., Any] | None = None
    batch_size: int = 8
    num_workers: int = 0
    specificity: float | None = None
    resume: bool = False

    def load(self) -> NormalImages | DetectorNormals:
        """
        Read or make the normal images; the main process of several makes them for all.

        Raises:
            DatalistError: when folder or list cannot be used, or has too few images for the level.
            ValueError: for a file of another detector.
        """
        if not self.calibrate:
            return self._shipped() or DetectorNormals(self.detector, self.level)
        return by_main_rank(self._own, str(self.calibrate))

    def kind(self) -> list[Any]:
        """What a resumed run must have alike: its level, and the shipped, its own, or the file of normal images."""
        if not self.calibrate:
            return [self.level, "shipped"]
        if _is_of_normals(self.calibrate):
            return [self.level, hashlib.sha256(Path(self.calibrate).read_bytes()).hexdigest()]
        return [self.level, "own"]

    @property
    def level(self) -> float:
        """P-value up to which an image is above the threshold."""
        return 1 - (_SPECIFICITY if self.specificity is None else self.specificity)

    @property
    def _digest(self) -> str:
        return str(self.model_file.description.digest)

    def _shipped(self) -> NormalImages | None:
        if not self.shipped or not Path(self.shipped).is_file():
            return None
        try:
            return load_normals(self.shipped, self._digest, self.level)
        except OtherDetectorError:  # --weights names a detector that it does not come with
            return None

    def _own(self, source: str) -> NormalImages:
        written = Path(self.output_dir) / "normals.safetensors"
        if self.resume and written.is_file():
            source = str(written)
        if _is_of_normals(source):
            return load_normals(source, self._digest, self.level)
        items = _items(source)
        named = {
            "origin": Path(os.path.abspath(source)).name,
            "made": _period(item["image"] for item in items),
            "detector": self._digest,
        }
        scores, facts = self._scored(items)
        try:
            normals = normals_from(scores, facts, self.level, self._shipped(), **named)
        except ValueError as error:
            raise DatalistError(f"--calibrate {source}: {error}") from error
        save_normals(normals, written)
        logger.info(f"compared with {normals}; the next runs may take --calibrate {written}")
        return normals

    @torch.no_grad()
    def _scored(self, items: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[ImageFacts]]:
        """Fused scores and facts of the images that can be read."""
        data = Dataset(items, self.preprocessing)
        loader = DataLoader(data, batch_size=self.batch_size, num_workers=self.num_workers)
        sources = iter(item["image"] for item in items)
        run = self.inferer or (lambda inputs, network: network(inputs))
        reader, scores, facts = ImageFactsReader(self.detector), [], []
        for batch in tqdm(loader, "normal images", delay=3.0, leave=False):
            images = batch[CommonKeys.IMAGE].to(self.detector.thresholds.device)
            headers = [header_of(next(sources)) for _ in images]
            outputs = run(images, self.detector)
            found = reader.read(batch, outputs["tokens"], headers, reader.lungs(images))
            reasons = batch.get("rejected", [""] * len(images))
            fused = outputs["scores"][:, -1].float().tolist()
            for score, fact, reason in zip(fused, found, reasons, strict=True):
                if not reason and math.isfinite(score):
                    scores.append(score)
                    facts.append(fact)
        if len(scores) < len(items):
            unread = counted(len(items) - len(scores), "normal image")
            logger.warning(f"{unread} could not be read")
        return scores, facts


def _is_of_normals(source: str) -> bool:
    """Whether a text names a file that an earlier run has written."""
    return Path(source).is_file() and is_safetensors(source)


def _items(source: str) -> list[dict[str, Any]]:
    """Images of a folder, or those of a datalist that have no label of a finding."""
    path = Path(source).expanduser()
    if not path.exists():
        raise DatalistError(f"--calibrate {source}: no such folder or file: check the name")
    if path.is_dir():
        return load_radiograph_datalist(source, section="all", check_files=False)
    content = read_sections(path)
    items: list[dict[str, Any]] = []
    for section in filter(content.get, SECTIONS):
        items += load_radiograph_datalist(None, source, section, check_files=False)
    return normal_items(items)


def _period(sources: Iterable[str]) -> str:
    """Dates of the first and the last study, of files without a header when they were changed."""
    dates = sorted(filter(None, map(_date_of, sources)))
    if not dates:
        return "of unknown dates"
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _date_of(source: str) -> str:
    study = str(header_of(source, ["StudyDate"]).get("StudyDate") or "")
    try:
        return datetime.strptime(study, "%Y%m%d").date().isoformat()
    except ValueError:
        pass
    try:
        return datetime.fromtimestamp(os.path.getmtime(source)).date().isoformat()
    except OSError:
        return ""
