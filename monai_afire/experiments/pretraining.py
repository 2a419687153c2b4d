# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Arms of an experiment that are pre-trained first: ablations and baselines, once for each seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monai_afire.experiments.common import ExperimentError, config_argument, file_digest

__all__ = ["Pretraining", "read_arms"]

_SET_PER_RUN = ("output_dir", "ckpt_dir", "seed", "resume")


@dataclass(frozen=True)
class Pretraining:
    """
    A pre-training that an arm of an experiment starts from, for any seed.

    Attributes:
        name: name of the arm.
        root: folder that the pre-trainings of an experiment share.
        config_files: configs of the pre-training, the bundle's ``train.json`` first, overlays after it.
        overrides: ``(key, value)`` of the config.

    Example:
        >>> arm = Pretraining("afire", Path("results/pretraining"), ("train.json",), (("epochs", "5"),))
        >>> arm.weights(seed=1).as_posix()
        'results/pretraining/afire-seed_1/models/model.pt'
    """

    name: str
    root: Path
    config_files: tuple[str, ...]
    overrides: tuple[tuple[str, str], ...] = ()

    def folder(self, seed: int) -> Path:
        """Where the pre-training with this seed writes."""
        return self.root / f"{self.name}-seed_{seed}"

    def weights(self, seed: int) -> Path:
        """The file that it leaves."""
        return self.folder(seed) / "models" / "model.pt"

    def arguments(self, seed: int) -> list[str]:
        """Arguments of ``monai.bundle run``; one that was interrupted goes on from its checkpoint."""
        folder = self.folder(seed)
        settings = {
            "output_dir": folder.as_posix(),
            "ckpt_dir": (folder / "models").as_posix(),
            "seed": seed,
            "resume": True,
            **dict(self.overrides),
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        return ["--config_file", config_argument(self.config_files), *options]

    def settings(self, seed: int) -> dict[str, Any]:
        """All that the weights depend on."""
        files = {path: file_digest(path) for path in self.config_files}
        return {"seed": seed, **dict(self.overrides), "files": files}


def read_arms(path: str | Path, root: Path, shared: Mapping[str, str] | None = None) -> list[Pretraining | str]:
    """
    Read the arms of an experiment.

    The file is ``{"config_file": ..., "overrides": {...}, "arms": {"name": {...}, ...}}``. An arm is what it changes:
    overrides of its own, and a "config_file" (a path or a list of them) in place of the common one; null is an
    encoder with random weights. The first arm is the one that the others are compared with.

    Args:
        path: JSON file.
        root: folder of the pre-trainings.
        shared: further overrides of all pre-trainings, such as the folder of the images.

    Returns:
        For each arm its pre-training, or its name alone where it has none.

    Raises:
        ExperimentError: for a file that cannot be read, has no arms, names a config that does not exist, or sets what
            the experiment sets for each run.
    """
    content = _content(Path(path))
    arms: list[Pretraining | str] = []
    for name, changes in content["arms"].items():
        if changes is None:
            arms.append(name)
            continue
        settings = {**content.get("overrides", {}), **changes, **(shared or {})}
        files = settings.pop("config_file", content.get("config_file"))
        config_files = (files,) if isinstance(files, str) else tuple(files or ())
        if missing := [file for file in config_files if not Path(file).is_file()] or not config_files:
            raise ExperimentError(f"{path}: arm {name!r}: no config {missing if config_files else 'is given'}")
        if taken := sorted(set(settings) & set(_SET_PER_RUN)):
            raise ExperimentError(f"{path}: arm {name!r} sets {', '.join(taken)}, which the experiment sets itself")
        overrides = tuple((key, _as_word(value)) for key, value in settings.items())
        arms.append(Pretraining(name, root, config_files, overrides))
    return arms


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path}: the arms cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("arms"), dict) or not content["arms"]:
        raise ExperimentError(f'{path}: there are no arms: write {{"config_file": ..., "arms": {{"name": {{...}}}}}}')
    return content


def _as_word(value: Any) -> str:
    """A value of JSON as a word of the command line."""
    return value if isinstance(value, str) else json.dumps(value)
