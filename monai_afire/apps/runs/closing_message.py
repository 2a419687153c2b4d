# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Message at the end of a run: where its results are, and what to do next."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ignite.engine import Engine, Events

from monai_afire.apps.runs.command_line import given_words
from monai_afire.apps.runs.declarations import ENCODER_OPTIONS
from monai_afire.apps.runs.follow_up import follow_up_command, resume_command
from monai_afire.apps.runs.literals import text_of
from monai_afire.apps.runs.phantom_weights import are_of_phantoms
from monai_afire.apps.runs.run_folder import run_name
from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.detection import AnomalyDetector
from monai_afire.engines import TrackedTrainer
from monai_afire.handlers.stop_request import StoppedBySignal
from monai_afire.networks.weights.model_file import read_description
from monai_afire.utils.distributed import by_main_rank, global_rank, is_launched
from monai_afire.utils.files import joined_path
from monai_afire.utils.run_records import mark_finished


@dataclass(eq=False, repr=False)
class ClosingMessage:
    """
    Print where the results are and what to do next, when a run is complete.

    Only files that exist are named. Commands repeat what the present command line has overridden, except for what the
    "model" carries and they take from there, and offer no radiographs to a model of phantoms.

    Args:
        files: what it is -> the file or folder, as text or as parts to be joined.
        commands: what it does -> "configs", their files (of ``config_dir`` if without a folder), "keep", the names of
            the overrides to repeat (all that fit by default), "same_images", whether the images are those of this run,
            "needs_labels", whether to leave the command out where these images have no labels,
            and further entries, options of the command: a name among ``files``, another text, or parts to be joined.
        config_dir: folder of the configs.
        curves: folder of TensorBoard's log.
        validator: where "model" is chosen by validation, the evaluator; the message says so if there was one.

    Example:
        >>> engine = Engine(lambda engine, batch: None)
        >>> ClosingMessage(files={"home": os.sep, "model": ["no", "model.pt"]}).attach(engine)
        >>> _ = engine.run([0])
        home:      /
    """

    files: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    config_dir: str | Sequence[str] = "."
    curves: str | None = None
    validator: Any = None

    def __post_init__(self) -> None:
        self.paths = {name: str(joined_path(path)) for name, path in self.files.items()}

    def attach(self, engine: Engine) -> None:
        """Register with an engine."""
        engine.add_event_handler(Events.COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """Print the message, once for all ranks."""
        if global_rank() == 0 and (lines := self.lines()):
            width = max(11, *(len(name) + 2 for name in lines))
            print(
                "\n".join(f"{f'{name}:':{width}}{text}" for name, text in lines.items()), flush=True
            )

    def lines(self) -> dict[str, str]:
        """What there is to say now: name -> text."""
        found = {name: path for name, path in self.paths.items() if os.path.exists(path)}
        lines = {
            name: path + (self.about_model(path) if name == "model" else "")
            for name, path in found.items()
        }
        if self.curves is not None:
            lines["curves"] = f"tensorboard --logdir {self.curves}"
        given = _given()
        for name, entry in self.commands.items():
            if entry.get("needs_labels") and not _are_labeled(given):
                continue
            folder = joined_path(self.config_dir)
            configs = [
                path if os.path.dirname(path) else str(folder / path) for path in entry["configs"]
            ]
            left_out = (
                "configs",
                "keep",
                "same_images",
                "needs_labels",
                *(["dataset_dir"] if self.knows_phantoms_alone() else []),
            )
            options = {
                key: self.text_of(value) for key, value in entry.items() if key not in left_out
            }
            command = follow_up_command(
                configs,
                options,
                given,
                entry.get("keep"),
                self.described(),
                entry.get("same_images", False),
            )
            if command is not None:
                lines[name] = command
        return lines

    def text_of(self, value: str | Sequence[str]) -> str:
        """An option of a command as text, from a name among the files, another text, or the parts of a path."""
        return self.paths.get(value) or value if isinstance(value, str) else str(joined_path(value))

    def knows_phantoms_alone(self) -> bool:
        """Whether the model would refuse radiographs."""
        return are_of_phantoms(self.paths.get("model", ""))

    def described(self) -> set[str]:
        """Names of the options that later steps take from the model."""
        description = read_description(self.paths.get("model", ""))
        if description is None:
            return set()
        return {*ENCODER_OPTIONS, "class_names", "label_kind", *description.settings}

    def about_model(self, path: str) -> str:
        """How a model was chosen and how to resume its training, in brackets."""
        state = getattr(self.validator, "state", None)
        has_best = getattr(state, "best_metric_epoch", -1) > 0
        is_chosen = has_best and math.isfinite(float(getattr(state, "best_metric", math.nan)))
        facts = ["of the best validation"] if is_chosen else []
        if Path(path).with_name("checkpoint.pt").is_file():
            facts.append("resumable: checkpoint.pt beside it")
        return f" ({'; '.join(facts)})" if facts else ""


def training_message(
    network: Any,
    ckpt_dir: str,
    bundle_root: str,
    output_dir: str | None = None,
    preview: Any = None,
    validator: Any = None,
) -> ClosingMessage:
    """
    The message of a training: its model, its curves, and the steps that the bundle's other configs make possible.

    A detector, and the network of a fine-tuning bundle, are evaluated and used; a network of the bundle with
    ``finetune_anomaly.json`` is adapted to a detector; the encoder of another one is fine-tuned by
    ``radiograph_classification``.

    Args:
        network: what was trained.
        ckpt_dir: folder of ``model.pt``.
        bundle_root: folder of the bundle.
        output_dir: folder of the curves; None for none.
        preview: a handler that draws a picture; None for none.
        validator: see :class:`ClosingMessage`.

    Returns:
        The handler.

    Example:
        >>> message = training_message(None, "models", "bundles/peac")
        >>> sorted(message.commands)
        ['next']
    """
    configs = Path(bundle_root) / "configs"
    files: dict[str, str | Sequence[str]] = {"model": [ckpt_dir, "model.pt"]}
    if preview is not None:
        files["picture"] = preview.path
    steps = _next_steps(configs, isinstance(network, AnomalyDetector))
    return ClosingMessage(files, steps, str(configs), output_dir, validator)


def run_training(trainer: TrackedTrainer, bundle_root: str) -> None:
    """
    Train, and print where the results are and what to do next.

    Args:
        trainer: with a :class:`monai_afire.handlers.TrainingRun`.
        bundle_root: folder of the bundle.
    """
    run = trainer.training_run
    if run is not None:
        chosen_by = run.validator if run.keep_best else None
        training_message(
            run.network, run.ckpt_dir, bundle_root, run.output_dir, run.preview, chosen_by
        ).attach(trainer)
        by_main_rank(mark_finished, run.output_dir, False)
    try:
        trainer.run()
    except StoppedBySignal:
        if run is not None:
            _say_how_to_go_on(run.output_dir)
        raise
    if run is not None:
        by_main_rank(mark_finished, run.output_dir, True)


def _say_how_to_go_on(output_dir: str) -> None:
    """Print the command that resumes a training, once for all ranks."""
    given = _given()
    if not given or global_rank():
        return
    command = resume_command(given, run_name(output_dir))
    if is_launched():
        command = f"{command.replace('python', 'torchrun ...', 1)} (torchrun with its options)"
    print(f"go on by:  {command}", flush=True)


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


def _given() -> dict[str, str]:
    """The options of MONAI's command; none in another program."""
    words = given_words(sys.argv)
    return {name: "True" if word is None else word for name, word in words.items()}


def _next_steps(configs: Path, is_detector: bool) -> dict[str, dict[str, Any]]:
    """Commands that go on from a training."""
    is_pretrained = (configs / "finetune_anomaly.json").is_file() and not is_detector
    if (configs / "evaluate.json").is_file() and not is_pretrained:
        use = {
            "configs": ["inference.json"],
            "ckpt_path": "model",
            "dataset_dir": "/path/to/images",
        }
        first = "inference.json" if is_detector else "train.json"
        return {
            "evaluate": {
                "configs": [first, "evaluate.json"],
                "ckpt_path": "model",
                "same_images": True,
                "needs_labels": is_detector,  # other networks have learned from labels
            },
            "use": use,
        }
    if is_pretrained:
        return {"next": {"configs": ["train.json", "finetune_anomaly.json"], "pretrained": "model"}}
    root = configs.parent
    bundles = root.parent if root.name else Path("..")  # "." has no name and no parent
    fine_tuning = bundles / "radiograph_classification" / "configs" / "train.json"
    return {"next": {"configs": [str(fine_tuning)], "keep": [], "encoder_weights": "model"}}
