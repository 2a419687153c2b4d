# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Message at the end of a run: where its results are, and what to do next."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ignite.engine import Engine, Events

from monai_afire.apps.runs.command_line import given_options
from monai_afire.apps.runs.declarations import ENCODER_OPTIONS
from monai_afire.apps.runs.follow_up import follow_up_command
from monai_afire.apps.runs.literals import text_of
from monai_afire.apps.runs.phantom_weights import are_of_phantoms
from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.networks.weights.model_file import read_description
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import joined_path


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
        given = given_options()
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
