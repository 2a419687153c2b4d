# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What an experiment runs: pre-trainings, fine-tunings and their settings."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from monai_afire.networks.weights.released_files import weights_file
from monai_afire_cli.options.words import passed_word
from monai_afire_cli.process.starting import config_word


class ExperimentError(ValueError):
    """An experiment cannot be run as asked; the message says what was found and how to put it right."""


def bundle_arguments(configs: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Arguments of ``python -m monai.bundle run``."""
    words = ["--config_file", config_word(configs)]
    for name, value in settings.items():
        words += [f"--{name}", passed_word(name, str(value))]
    return words


def file_digest(path: str) -> str:
    """Digest of a file's content; it is read again when time or size say that it is another file."""
    status = Path(path).stat()
    return _digest_of(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _digest_of(path: str, modified: int, size: int) -> str:
    """Weights are large, and the same for many runs."""
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


_SET_PER_PRETRAINING = ("output_dir", "seed", "resume")


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
            "seed": seed,
            "resume": (folder / "models" / "checkpoint.pt").is_file(),
            **dict(self.overrides),
        }
        return bundle_arguments(self.config_files, settings)

    def settings(self, seed: int) -> dict[str, Any]:
        """All that the weights depend on."""
        files = [*self.config_files, *named_files(dict(self.overrides))]
        return {
            "seed": seed,
            **dict(self.overrides),
            "files": {path: file_digest(path) for path in files},
        }


def named_files(overrides: Mapping[str, str]) -> list[str]:
    """Files that overrides name: with other content, a list or weights give another result."""
    return [
        value for name, value in overrides.items() if name in _READ_FILES and os.path.isfile(value)
    ]


def read_arms(
    path: str | Path, root: Path, shared: Mapping[str, str] | None = None
) -> list[Pretraining | str]:
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
        if (
            missing := [file for file in config_files if not Path(file).is_file()]
            or not config_files
        ):
            raise ExperimentError(
                f"{path}: arm {name!r}: no config {missing if config_files else 'is given'}"
            )
        if reserved := sorted(set(settings) & set(_SET_PER_PRETRAINING)):
            raise ExperimentError(
                f"{path}: arm {name!r} sets {', '.join(reserved)}, which the experiment sets itself"
            )
        overrides = tuple((key, _as_word(value)) for key, value in settings.items())
        arms.append(Pretraining(name, root, config_files, overrides))
    return arms


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path}: the arms cannot be read: {error}") from error
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("arms"), dict)
        or not content["arms"]
    ):
        raise ExperimentError(
            f'{path}: there are no arms: write {{"config_file": ..., "arms": {{"name": {{...}}}}}}'
        )
    for name, value in {"overrides": content.get("overrides", {}), **content["arms"]}.items():
        if value is not None and not isinstance(value, dict):
            raise ExperimentError(f'{path}: {name!r} is {value!r}: write {{"setting": value, ...}}')
    return content


def _as_word(value: Any) -> str:
    """A value of JSON as a word of the command line."""
    return value if isinstance(value, str) else json.dumps(value)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SET_PER_RUN = (
    "output_dir",
    "ckpt_path",
    "name",
    "weights_of",
    "encoder_weights",
    "seed",
    "items::label_fraction",
    "items::fold",
    "items::num_folds",
)
_READ_FILES = ("datalist", "pretrained")
_NOT_A_SETTING = ("resume",)  # how a run came to its end, not what it is


@dataclass(frozen=True)
class Run:
    """
    One training and its evaluation.

    Attributes:
        initialization: name of the initialization.
        start: file of the encoder's weights, or the pre-training that writes it; None for the bundle's own encoder.
        seed: seed of the run.
        label_fraction: share of the labeled training images, None for the bundle's own.
        fold: fold of the cross-validation that is left out, None without one.
        num_folds: number of folds.
        is_random: whether only the shape of the encoder comes from ``start``, and its weights are random.
        is_frozen: whether the encoder keeps them.

    Example:
        >>> Run("afire", "model.pt", seed=1, label_fraction=0.1, fold=2, num_folds=5).name
        'afire-label_fraction_0.1-fold_2_of_5-seed_1'
    """

    initialization: str
    start: str | Pretraining | None
    seed: int
    label_fraction: float | None = None
    fold: int | None = None
    num_folds: int | None = None
    is_random: bool = False
    is_frozen: bool = False

    @property
    def name(self) -> str:
        """Name of the run's folder; partners of two initializations differ in its beginning alone."""
        parts = [self.initialization]
        if self.label_fraction is not None:
            parts.append(f"label_fraction_{self.label_fraction:g}")
        if self.fold is not None:
            parts.append(f"fold_{self.fold}_of_{self.num_folds}")
        return "-".join([*parts, f"seed_{self.seed}"])

    @property
    def weights(self) -> str | None:
        """File of the encoder, if any."""
        return (
            self.start.weights(self.seed).as_posix()
            if isinstance(self.start, Pretraining)
            else self.start
        )

    def overrides(self) -> dict[str, Any]:
        """Arguments of the bundle for this run, without its folders."""
        # MONAI drops an override that is None; an expression that gives None arrives
        settings: dict[str, Any] = {"encoder_weights": self.weights or "null", "seed": self.seed}
        if self.is_random and self.weights:
            settings["encoder_def::pretrained"] = False
        if self.is_frozen:
            settings["network_def::freeze_encoder"] = True
        if self.label_fraction is not None:
            settings["items::label_fraction"] = self.label_fraction
        if self.fold is not None:
            settings["items::fold"] = self.fold
            settings["items::num_folds"] = self.num_folds
        return settings


@dataclass(frozen=True)
class Experiment:
    """
    Settings that all runs of an experiment share.

    Attributes:
        config_files: configs of the training, the bundle's ``train.json`` first, overlays after it.
        output_dir: folder of the results.
        overrides: further ``{key: value}`` of the config, the same for all runs.
        evaluate_file: overlay of the evaluation; ``evaluate.json`` beside the first config.

    Raises:
        ExperimentError: for a config that does not exist, or an override that an experiment sets itself.
    """

    config_files: tuple[str, ...]
    output_dir: Path
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in (*self.config_files, self.evaluate_file):
            if not Path(path).is_file():
                raise ExperimentError(
                    f"there is no config {path}: give a train.json, evaluate.json beside it"
                )
        if reserved := sorted(set(self.overrides) & set(_SET_PER_RUN)):
            names = ", ".join(f"--{name}" for name in reserved)
            raise ExperimentError(
                f"{names} cannot be handed to the bundle: the experiment sets it for each run"
            )

    @property
    def evaluate_file(self) -> str:
        """The overlay of the evaluation."""
        return str(Path(self.config_files[0]).parent / "evaluate.json")

    def folder(self, run: Run) -> Path:
        """Folder of a run's output."""
        return self.output_dir / "runs" / run.name

    @property
    def resumes(self) -> bool:
        """Whether a run that was stopped goes on from its checkpoint, rather than anew."""
        return str(self.overrides.get("resume", "")).lower() == "true"

    def steps(self, run: Run, can_resume: bool = True) -> dict[str, list[str]]:
        """
        Arguments of ``monai.bundle run`` for training and evaluation, by the step's name.

        Without ``can_resume`` the training begins anew, whatever the overrides say.
        """
        folder = self.folder(run)
        settings = {
            "output_dir": folder.as_posix(),
            **self.overrides,
            **run.overrides(),
        }
        if not can_resume:
            settings.pop("resume", None)
        # the network to evaluate is built from its file
        of_evaluation = {
            name: value for name, value in settings.items() if not name.startswith("network_def::")
        }
        of_evaluation["ckpt_path"] = (folder / "models" / "model.pt").as_posix()
        return {
            "training": bundle_arguments(self.config_files, settings),
            "evaluation": bundle_arguments((*self.config_files, self.evaluate_file), of_evaluation),
        }

    def settings(self, run: Run) -> dict[str, Any]:
        """All that the result of a run depends on: a result of other settings is not its result."""
        files = [
            *self.config_files,
            self.evaluate_file,
            *([run.start] if isinstance(run.start, str) else []),
        ]
        files += named_files(self.overrides)
        settings = {
            **run.overrides(),
            **{name: value for name, value in self.overrides.items() if name not in _NOT_A_SETTING},
            "files": {path: file_digest(path) for path in files},
        }
        if isinstance(run.start, Pretraining):
            # known by its settings: a result outlives its weights
            settings["pretraining"] = run.start.settings(run.seed)
        return settings


def plan_runs(
    initializations: Sequence[tuple[str, str | Pretraining | None]],
    seeds: Sequence[int] = (0,),
    label_fractions: Sequence[float] = (),
    folds: Sequence[int] = (),
    num_folds: int | None = None,
    frozen: bool = False,
) -> list[Run]:
    """
    Every combination. The initializations of a setting follow one another, so an early look compares like with like.

    Runs from random weights have the encoder of the first initialization that has weights, so they differ from it in
    the weights alone.

    Args:
        initializations: (name, what :class:`Run` starts from); None for random weights.
        seeds: seeds.
        label_fractions: shares of the labeled training images in (0, 1]; none for the bundle's own.
        folds: folds to leave out, in [0, num_folds); none for all of them.
        num_folds: number of folds; None for no cross-validation.
        frozen: whether to repeat each with a frozen encoder, as "NAME-frozen".

    Returns:
        The runs.

    Raises:
        ExperimentError: for an empty or repeated choice, a fraction or fold out of range, missing weights.

    Example:
        >>> runs = plan_runs([("scratch", None), ("other", None)], seeds=[0, 1], label_fractions=[0.1])
        >>> [run.name for run in runs][:2]
        ['scratch-label_fraction_0.1-seed_0', 'other-label_fraction_0.1-seed_0']
    """
    _check_folds(folds, num_folds)
    _check_choices(initializations, seeds, label_fractions, folds)
    _check_files(initializations)
    arms = _arms(initializations, frozen)
    fractions: list[float | None] = [*sorted(label_fractions)] or [None]
    left_out: list[int | None] = [*(folds or range(num_folds or 0))] or [None]
    shape = next((start for _, start in initializations if start is not None), None)
    return [
        Run(
            name,
            shape if start is None else start,
            seed,
            fraction,
            fold,
            num_folds,
            is_random=start is None,
            is_frozen=is_frozen,
        )
        for fraction, fold, seed, (name, start, is_frozen) in product(
            fractions, left_out, seeds, arms
        )
    ]


def _check_choices(
    initializations: Sequence[tuple[str, Any]],
    seeds: Sequence[int],
    label_fractions: Sequence[float],
    folds: Sequence[int],
) -> None:
    """Refuse empty or repeated choices, and fractions out of range."""
    if not all(0 < fraction <= 1 for fraction in label_fractions):
        raise ExperimentError(
            f"--label_fraction {_words(label_fractions)}: 0 < fraction <= 1, 1.0 for all labels"
        )
    names = [name for name, _ in initializations]
    if not names or not seeds:
        raise ExperimentError(
            "at least one of --initializations or --arms, and of --seed, is needed"
        )
    shown = [f"{fraction:g}" for fraction in label_fractions]  # as in a run's name
    choices = {"initializations": names, "seed": seeds, "label_fraction": shown, "fold": folds}
    for option, values in choices.items():
        if len(set(values)) < len(values):
            raise ExperimentError(f"--{option} {_words(values)}: one of them is named twice")


def _check_files(initializations: Sequence[tuple[str, Any]]) -> None:
    """Refuse weights that are not there; those of a pre-training come with it."""
    for name, start in initializations:
        if isinstance(start, str) and not Path(start).is_file():
            raise ExperimentError(
                f"there is no file {start} with the weights of {name!r}: pre-train first"
            )


def _arms(
    initializations: Sequence[tuple[str, str | Pretraining | None]], frozen: bool
) -> list[tuple[str, str | Pretraining | None, bool]]:
    """Name and start of each arm, and whether its encoder is frozen."""
    arms = [(name, start, False) for name, start in initializations]
    if frozen:
        arms += [(f"{name}-frozen", start, True) for name, start in initializations]
    if len({name for name, *_ in arms}) < len(arms):
        names = _words([name for name, _ in initializations])
        raise ExperimentError(
            f"--initializations {names}: with --frozen, none may end with '-frozen'"
        )
    return arms


def as_initialization(text: str) -> tuple[str, str | None]:
    """
    Read ``NAME=FILE``, ``NAME=released`` or another released encoder, or ``NAME=`` for random weights.

    Args:
        text: a word of the command line.

    Returns:
        Name, and file or None.

    Raises:
        ExperimentError: for any other word.

    Example:
        >>> as_initialization("scratch="), as_initialization("afire=bundles/afire/models/model.pt")
        (('scratch', None), ('afire', 'bundles/afire/models/model.pt'))
    """
    name, sign, weights = text.partition("=")
    if not sign or not _NAME.fullmatch(name):
        form = "such as afire=bundles/afire/models/model.pt, or NAME= for random weights"
        raise ExperimentError(
            f"--initializations {text!r}: write NAME=FILE (letters, digits and . _ + -), {form}"
        )
    return name, str(weights_file(weights)) if weights else None


def _words(values: Sequence[Any]) -> str:
    return " ".join(map(str, values))


def _check_folds(folds: Sequence[int], num_folds: int | None) -> None:
    if folds and num_folds is None:
        raise ExperimentError(
            f"--fold {_words(folds)} needs --num_folds, the parts that the data is cut into"
        )
    if num_folds is not None and num_folds < 3:
        raise ExperimentError(
            f"--num_folds {num_folds}: there are 3 folds or more, to train, validate and test"
        )
    if num_folds is not None and not all(0 <= number < num_folds for number in folds):
        raise ExperimentError(
            f"--fold {_words(folds)}: with --num_folds {num_folds} they are 0 to {num_folds - 1}"
        )
