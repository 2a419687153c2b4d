# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Report of an anomaly detector on labeled images: table, metrics, curves and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from monai.utils import CommonKeys
from torch.utils.data import Dataset

from monai_afire.apps.evaluation.lesion_truth import lesion_truth
from monai_afire.apps.evaluation.localization import aupro, localization_row, upsampled
from monai_afire.apps.evaluation.score_evaluation import evaluate_scores
from monai_afire.apps.results.metrics_report import MetricsReport
from monai_afire.apps.results.patient_groups import item_groups, reported_patients
from monai_afire.apps.results.pictures.grid import contact_sheet
from monai_afire.apps.results.pictures.plots import roc_pr_figure
from monai_afire.detection.detector import HEAT_UNIT, AnomalyDetector

_AUPRO_IMAGES = 500  # at most: it needs all their pixels at once


@dataclass(eq=False, repr=False)
class AnomalyReport(MetricsReport):
    """
    Write ``evaluation.csv``, ``metrics.json``, ``roc_pr.png`` and ``heat_maps.png``, and print the metrics.

    See :func:`monai_afire.apps.evaluation.evaluate_scores` for what is reported. The batches need "index",
    "spatial_shape", "brightness", "sharpness" and, where lesions are painted, "lesion_mask" ``(B, 1, *S)``.

    Args:
        detector: the evaluator's network.
        dataset: for the pictures of the contact sheet; its item i is item i of ``items``.
        items: of :func:`monai_afire.detection.detection_items`.
        output_dir: where to write.
        num_bootstraps: samples of each interval.
        num_pictures: pictures of the contact sheet.
    """

    detector: AnomalyDetector
    dataset: Dataset
    items: Sequence[Mapping[str, Any]]
    output_dir: str
    num_bootstraps: int = 1000
    num_pictures: int = 24

    def start(self, engine: Engine) -> None:
        """Forget the previous run."""
        super().start(engine)
        self.patients = reported_patients(self.items)
        self.encoder = self.detector.network.encoder
        self.map_names = (*self.detector.map_names, "fused")
        self.maps: dict[int, torch.Tensor] = {}
        self.truths: dict[int, np.ndarray | None] = {}
        # a map that knows the position alone: the same for every image, unless each has a field of view of its own
        of_images = self.detector.field_of_view is None
        self.position_map = {"position_only": self.detector.map_mean[0].cpu()} if of_images else {}

    def collect(self, engine: Engine) -> None:
        """One row per image of the batch."""
        batch: Any = engine.state.batch
        outputs = engine.state.output[CommonKeys.PRED]  # type: ignore[index]
        scores, maps = outputs["scores"].float().cpu(), outputs["maps"].float().cpu()
        for row, index in enumerate(batch["index"].tolist()):
            item = self.items[index]
            if item["lesion"]:  # painted
                truth = batch["lesion_mask"][row, 0].bool().numpy()
            else:
                shape = batch["spatial_shape"][row].tolist()
                truth = lesion_truth(item, shape, self.encoder.img_size) if item["label"] else None
                self.maps[index], self.truths[index] = maps[row], truth
            named = {name: maps[row, number] for number, name in enumerate(self.map_names)}
            facts = _facts(item, self.patients[index])
            facts |= {name: float(batch[name][row]) for name in ("brightness", "sharpness")}
            facts |= zip(self.detector.score_names, scores[row].tolist(), strict=True)
            facts |= localization_row(named | self.position_map, truth, self.encoder.grid_size)
            self.rows.append(facts)

    def evaluate(self, table: pd.DataFrame) -> dict[str, Any]:
        """See :func:`monai_afire.apps.evaluation.evaluate_scores`; AUPRO is added here, where the maps are."""
        names, thresholds = self.detector.score_names, self.detector.thresholds.tolist()
        known = {n: value for n, value in zip(names, thresholds, strict=True) if np.isfinite(value)}
        metrics = evaluate_scores(table, names, known, self.num_bootstraps)
        self._add_aupro(metrics)
        return metrics

    def draw(self, table: pd.DataFrame, metrics: dict[str, Any]) -> None:
        """Curves and contact sheet."""
        originals = table[table["kind"] == ""]
        if originals["label"].nunique() == 2:
            scores = {name: originals[name] for name in reversed(self.detector.score_names)}
            roc_pr_figure(originals["label"].to_numpy(), scores, self.folder / "roc_pr.png")
        self._draw_heat_maps(originals)

    def _add_aupro(self, metrics: dict[str, Any]) -> None:
        nothing = np.zeros(tuple(self.encoder.img_size), dtype=bool)
        truths = {
            index: nothing if truth is None else truth
            for index, truth in self.truths.items()
            if truth is not None or not self.items[index]["label"]
        }
        chosen = [*truths][:: max(1, -(-len(truths) // _AUPRO_IMAGES))]
        if not any(truths[index].any() for index in chosen):
            return
        tokens = torch.stack([self.maps[index] for index in chosen], dim=1)
        masks = [truths[index] for index in chosen]
        for maps, name in zip(tokens, self.map_names, strict=True):
            heat = upsampled(maps, self.encoder.grid_size, self.encoder.img_size)
            value = aupro(heat, masks)
            if np.isfinite(value) and name in metrics.get("localization", {}):
                metrics["localization"][name]["aupro"] = value

    def _draw_heat_maps(self, originals: pd.DataFrame) -> None:
        images, heats, titles, truths = [], [], [], []
        device = self.detector.interior.device
        for row in self._pictured(originals):
            index = row["number"]
            image = torch.as_tensor(self.dataset[index][CommonKeys.IMAGE])
            images.append(np.asarray(image).mean(0))
            fused = self.maps[index][None, -1].to(device)
            heats.append(self.detector.heat_map(image[None].to(device), fused)[0, 0].cpu().numpy())
            kind = "abnormal" if row["label"] else "normal"
            titles.append(f"{Path(row['image']).name}\n{kind}, fused {row['fused']:.3f}")
            truths.append(self.truths[index])
        known = sum(truth is not None for truth in truths)
        title = (
            f"{len(images)} of {len(originals)} images: {known} with a known lesion, outlined in cyan, by falling "
            "score; then of the others the highest scores and the lowest\nColor: more heat than 95 % of the normal "
            "images' patches have; the strongest: more than any of them; none where no score looks, as at the border"
        )
        heat_range, path = self.detector.heat_range.tolist(), self.folder / "heat_maps.png"
        contact_sheet(images, heats, titles, truths, heat_range, title, HEAT_UNIT, path)

    def _pictured(self, originals: pd.DataFrame) -> list[dict[str, Any]]:
        """Up to half of the sheet for known lesions, then the most and the least suspicious of the others."""
        ordered = originals.sort_values("fused", ascending=False).to_dict("records")
        known = [row for row in ordered if self.truths[row["number"]] is not None]
        known = known[: self.num_pictures // 2]
        others = [row for row in ordered if row not in known]
        most = (self.num_pictures - len(known) + 1) // 2
        least = self.num_pictures - len(known) - most
        return known + others[:most] + others[max(most, len(others) - least) :]


def _facts(item: Mapping[str, Any], patient: str) -> dict[str, Any]:
    """Columns of the table that describe the item itself."""
    facts = {"number": item["index"], "image": item["image"], "label": item["label"]}
    lesion = item["lesion"] or {"kind": "", "contrast": np.nan, "size": np.nan}
    painted = {name: lesion[name] for name in ("kind", "contrast", "size")}
    return {**facts, "patient_id": patient, **item_groups(item), **painted}
