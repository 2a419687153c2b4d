# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writer of a classifier's probabilities while it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from numpy.typing import ArrayLike

from monai_afire.apps.evaluation.metrics import checked_thresholds
from monai_afire.apps.pages import thumbnail_url
from monai_afire.apps.results.result_tables import ResultTables
from monai_afire.metrics.multilabel import check_class_names
from monai_afire.utils.files import path_from
from monai_afire.utils.text import counted, first_few
from monai_afire.utils.uncertain_labels import check_label_kind, class_probabilities

_FINE_TUNE = (
    "give the settings of the training (such as --standardize) where the weights do not carry them, evaluate the model "
    "on labeled images of this kind (evaluate.json) and fine-tune it on such images (train.json)"
)

_SHOWN, _LINES = 100, 3  # images of the page, and classes of each


@dataclass(eq=False, repr=False)
class PredictionWriter(ResultTables):
    """
    Write the probability of each class for each image while a classifier runs, and the decisions.

    ``predictions.csv`` has the columns "image", "probability_<class>" and, with thresholds, "threshold_<class>" and
    "decision_<class>": 1 where the probability is >= the threshold, else 0. Of exclusive classes the last column is
    "decision", the name of the most probable one. ``predictions.html`` shows the hundred images of the highest
    probabilities relative to their thresholds. The evaluator's output has the logits ``(B, K)`` as "pred".

    Args:
        items: the data set's items, for the names of the files.
        class_names: K names, in the order of the network's outputs.
        output_dir: where to write; a folder with the results of another run is refused.
        thresholds: ``(K,)`` probabilities, read when the run starts; NaN leaves a class without decision.
        resume: continue a stopped run, see :class:`ResultTables`.
        label_kind: "multilabel" (sigmoid), or "multiclass" (softmax) for exclusive classes.

    Raises:
        ValueError: for names that repeat, and thresholds or outputs that are not one per class.

    Example:
        >>> import tempfile, torch
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: {"pred": torch.tensor([[0.0, -2.0]])})
        >>> writer = PredictionWriter([{"image": "a.png"}], ["Edema", "Fracture"], folder, thresholds=[0.5, 0.5])
        >>> writer.attach(engine)
        >>> _ = engine.run([{"index": torch.tensor([0])}])
        >>> print((writer.folder / "predictions.csv").read_text())
        image,probability_Edema,probability_Fracture,threshold_Edema,threshold_Fracture,decision_Edema,decision_Fracture
        a.png,0.5,0.119203,0.5,0.5,1,0
    """

    table_name = "predictions.csv"
    derived = ("predictions.html",)

    items: Sequence[Mapping[str, Any]]
    class_names: Sequence[str]
    output_dir: str
    thresholds: ArrayLike | None = None
    resume: bool = False
    label_kind: str = "multilabel"

    def __post_init__(self) -> None:
        check_class_names(self.class_names)
        check_label_kind(self.label_kind, len(self.class_names))

    def start(self, engine: Engine) -> None:
        """Begin, with the thresholds that may have come with a checkpoint by now."""
        self.limits = checked_thresholds(self.thresholds, len(self.class_names))
        super().start(engine)

    def header(self) -> Sequence[str]:
        """File, probabilities, thresholds and decisions."""
        if self.label_kind == "multiclass":
            return ["image", *(f"probability_{name}" for name in self.class_names), "decision"]
        kinds = ["probability"]
        if self.thresholds is not None:
            kinds += ["threshold", "decision"]
        return ["image", *(f"{kind}_{name}" for kind in kinds for name in self.class_names)]

    def settings(self) -> Mapping[str, Any]:
        """The thresholds."""
        return {"thresholds": None if self.limits is None else self.limits.tolist()}

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        """Add the row of an image."""
        check_class_names(self.class_names, len(output))
        values = class_probabilities(output[None], self.label_kind)[0].numpy()
        self.add_row([source, *(f"{value:.6g}" for value in values), *self._decisions(values)])

    def complete(self, described: Mapping[str, Any]) -> None:
        """Show the first images, and check whether the decisions are plausible."""
        self._write_page()
        if self.limits is not None and self.label_kind == "multilabel":
            decisions = [f"decision_{name}" for name in self.class_names]
            warn_if_implausible(self.folder / self.table_name, decisions, _FINE_TUNE)

    def _decisions(self, values: np.ndarray) -> list[str]:
        """Cells behind the probabilities: the thresholds and what they decide, or the most probable class."""
        if self.label_kind == "multiclass":
            return [self.class_names[int(values.argmax())]]
        if self.limits is None:
            return []
        undecided = np.isnan(self.limits)
        thresholds = np.where(undecided, "", [f"{limit:.6g}" for limit in self.limits])
        decisions = np.where(undecided, "", (values >= self.limits).astype(int).astype(str))
        return [*thresholds.tolist(), *decisions.tolist()]

    def _write_page(self) -> None:
        """The images whose probabilities are the highest relative to their thresholds."""
        table = pd.read_csv(self.folder / self.table_name, dtype={"image": str})
        values = table[[f"probability_{name}" for name in self.class_names]].to_numpy()
        limits = np.full(values.shape[1], np.nan) if self.limits is None else self.limits
        ratios = values / np.where(limits > 0, limits, 1)
        cards, sources = [], self.sources
        for row in np.argsort(-ratios.max(1), kind="stable")[:_SHOWN]:
            lines = []
            for k in np.argsort(-ratios[row], kind="stable")[:_LINES]:
                threshold = "" if np.isnan(limits[k]) else f" (threshold {limits[k]:.2g})"
                text = f"{self.class_names[k]} {values[row, k]:.2g}{threshold}"
                lines.append((text, bool(values[row, k] >= limits[k])))
            image = table["image"][row]
            picture = thumbnail_url(sources.get(image, image))
            cards.append({"name": path_from(image, self.root), "picture": picture, "lines": lines})
        order = "relative to their thresholds first; orange: at the threshold or above"
        sentence = (
            f"The highest probabilities {'first' if np.isnan(limits).all() else order}. Shown are "
            f"{len(cards)} of {counted(len(table), 'image')}; all are in {self.table_name}."
        )
        self.write_page("predictions.html", "Predictions", sentence, cards)


_FEWEST = 20  # images; of fewer, all may well be abnormal
_LARGEST_SHARE = 0.8

logger = logging.getLogger(__name__)


def warn_if_implausible(table: Path, columns: Sequence[str], remedy: str) -> None:
    """Warn, once for all thresholds, when nearly all images of a table are above some."""
    decisions = pd.read_csv(table, usecols=list(columns)) == 1
    shares = decisions.mean()[list(columns)]
    high = list(shares[shares > _LARGEST_SHARE].index)
    if len(decisions) < _FEWEST or not high:
        return
    first, *others = (f"the threshold of {name!r}" for name in high)
    also = f", and nearly all above {first_few(others)}" if others else ""
    found = f"{decisions[high[0]].sum()} of {len(decisions)} images are above {first}{also}"
    reason = "they differ from those that the threshold was chosen on (scanner, view, contrast, preparation)"
    logger.warning(
        f"{found}. Unless nearly all show a finding, {reason}, and {table} means nothing: {remedy}"
    )
