# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Message at the end of a run: where its results are and, of a training, the commands that go on from it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ignite.engine import Engine, Events

from monai_afire.apps.runs.call import given_options
from monai_afire.apps.runs.config_entries import text_of
from monai_afire.apps.runs.follow_up import follow_up_command
from monai_afire.apps.runs.options.declarations import ENCODER_OPTIONS
from monai_afire.apps.runs.weights import are_of_phantoms
from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.detection import AnomalyDetector
from monai_afire.networks.weights.description import KNOWS_PHANTOMS
from monai_afire.networks.weights.model_file import read_description
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import joined_path

__all__ = ["ClosingMessage", "TrainingMessage"]

_REFUSAL = (
    f"radiographs, because it {KNOWS_PHANTOMS}. To use it on radiographs, train it on some: "
    "begin with --encoder_weights released, or with an encoder of your own"
)
_OF_TRAINING = ("epochs", "learning_rate", "accumulation_steps")  # say nothing of an evaluation


@dataclass(eq=False, repr=False)
class ClosingMessage:
    """
    Print where the results are, when a run is complete. Only files that exist are named.

    Args:
        files: what it is -> the file or folder, as text or as parts to be joined.
        weights: file that the results come from, which the message names if it knows drawn phantoms alone.

    Example:
        >>> engine = Engine(lambda engine, batch: None)
        >>> ClosingMessage(files={"home": os.sep, "model": ["no", "model.pt"]}).attach(engine)
        >>> _ = engine.run([0])
        home:      /
    """

    files: Mapping[str, str | Sequence[str]]
    weights: str | None = None

    def attach(self, engine: Engine) -> None:
        """Register with an engine."""
        engine.add_event_handler(Events.COMPLETED, self)

    def __call__(self, engine: Any = None) -> None:
        """Print the message, once for all ranks."""
        if global_rank() == 0 and (lines := self.lines()):
            width = max(11, *(len(name) + 2 for name in lines))
            for name, text in lines.items():
                print(f"{f'{name}:':{width}}{text}", flush=True)

    def lines(self) -> dict[str, str]:
        """What there is to say now: name -> text."""
        paths = {name: str(joined_path(path)) for name, path in self.files.items()}
        lines = {name: path for name, path in paths.items() if os.path.exists(path)}
        if self.weights and are_of_phantoms(self.weights):
            lines["weights"] = f"{self.weights} {KNOWS_PHANTOMS}"
        return lines


class TrainingMessage(ClosingMessage):
    """
    The message of a training: its model, its curves, and the steps that the bundle's other configs make possible.

    A detector, and the network of a fine-tuning bundle, are evaluated and used; a network of the bundle with
    ``finetune_anomaly.json`` is adapted to a detector; the encoder of another one is fine-tuned by
    ``radiograph_classification``. Commands repeat what the present command line has overridden, except for what the
    model carries and they take from there, and offer no radiographs to a model of phantoms: it refuses them, which the
    message says.

    Args:
        network: what was trained.
        ckpt_dir: folder of ``model.pt``.
        bundle_root: folder of the bundle.
        output_dir: folder of the curves; None for none.
        preview: a handler that draws a picture; None for none.
        validator: where the model is chosen by validation, the evaluator; the message says so if there was one.

    Example:
        >>> TrainingMessage(None, "no_models", "no_bundle", "logs").lines()
        {'curves': 'tensorboard --logdir logs'}
    """

    def __init__(
        self,
        network: Any,
        ckpt_dir: str,
        bundle_root: str,
        output_dir: str | None = None,
        preview: Any = None,
        validator: Any = None,
    ) -> None:
        self.is_detector = isinstance(network, AnomalyDetector)
        self.model = os.path.join(ckpt_dir, "model.pt")
        self.configs = Path(bundle_root, "configs")
        self.output_dir, self.validator = output_dir, validator
        pictures = {} if preview is None else {"picture": preview.path}
        super().__init__({"model": self.model, **pictures})

    def lines(self) -> dict[str, str]:
        """What there is to say now: name -> text."""
        lines = super().lines()
        if "model" in lines:
            lines["model"] += self._about_model()
        if self.output_dir is not None:
            lines["curves"] = f"tensorboard --logdir {self.output_dir}"
        steps = self._next_steps(given_options())
        return {**lines, **{name: command for name, command in steps.items() if command}}

    def _about_model(self) -> str:
        """How the model was chosen and how to resume its training, in brackets."""
        state = getattr(self.validator, "state", None)
        has_best = getattr(state, "best_metric_epoch", -1) > 0
        is_chosen = has_best and math.isfinite(float(getattr(state, "best_metric", math.nan)))
        facts = ["of the best validation"] if is_chosen else []
        if Path(self.model).with_name("checkpoint.pt").is_file():
            facts.append("resumable: checkpoint.pt beside it")
        return f" ({'; '.join(facts)})" if facts else ""

    def _next_steps(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """Commands that go on from the training, None for those whose configs are not there."""
        if (self.configs / "finetune_anomaly.json").is_file() and not self.is_detector:
            files = self._files("train.json", "finetune_anomaly.json")
            return {"next": self._command(files, {"pretrained": self.model}, given)}
        if not (self.configs / "evaluate.json").is_file():
            return {"next": self._fine_tuning(given)}
        use, refusal = {"ckpt_path": self.model}, None
        if are_of_phantoms(self.model):
            refusal = _REFUSAL
        else:
            use["dataset_dir"] = "/path/to/images"
        return {
            "evaluate": self._evaluation(given),
            "use": self._command(self._files("inference.json"), use, given),
            "refuses": refusal,
        }

    def _evaluation(self, given: Mapping[str, str]) -> str | None:
        if self.is_detector and not _are_labeled(given):
            return None  # other networks have learned from labels
        first = "inference.json" if self.is_detector else "train.json"
        files = self._files(first, "evaluate.json")
        kept = {name: word for name, word in given.items() if name not in _OF_TRAINING}
        return self._command(files, {"ckpt_path": self.model}, kept, same_images=True)

    def _fine_tuning(self, given: Mapping[str, str]) -> str | None:
        root = self.configs.parent
        bundles = root.parent if root.name else Path("..")  # "." has no name and no parent
        files = [str(bundles / "radiograph_classification" / "configs" / "train.json")]
        return self._command(files, {"encoder_weights": self.model}, {})

    def _command(
        self, files: Sequence[str], options: Mapping[str, str], given: Mapping[str, str], **how: Any
    ) -> str | None:
        """The command, without the options that it takes from the model."""
        description = read_description(self.model)
        carried: set[str] = set()
        if description is not None:
            carried = {*ENCODER_OPTIONS, "class_names", "label_kind", *description.settings}
        return follow_up_command(files, options, given, known_otherwise=carried, **how)

    def _files(self, *names: str) -> list[str]:
        return [str(self.configs / name) for name in names]


def _are_labeled(given: Mapping[str, str]) -> bool:
    """Whether a detector can be evaluated on the images of a command: phantoms, or a list with labels."""
    dataset_dir, datalist = (text_of(given.get(name)) for name in ("dataset_dir", "datalist"))
    if not datalist:
        return not dataset_dir  # a folder alone has no labels
    try:
        items = load_radiograph_datalist(
            dataset_dir, datalist, "test", check_files=False, leaks="ignore"
        )
    except DatalistError:
        return False
    return all(abnormal_label(item) is not None for item in items)
