# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shape of the encoders that an experiment compares: random weights get that of the trained ones beside them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from monai.bundle import ConfigParser

from monai_afire.experiments.plan import Experiment, ExperimentError, Pretraining
from monai_afire.options import OPTIONS, described_options, encoder_options

__all__ = ["shape_of_random_weights"]


def shape_of_random_weights(
    initializations: Sequence[tuple[str, str | Pretraining | None]], experiment: Experiment
) -> dict[str, Any]:
    """
    Options that runs from random weights need, so that they differ from their partners in the weights alone.

    A fine-tuning takes the shape of the encoder, and its input, from the weights that it starts from; random weights
    have none.

    Args:
        initializations: (name, file, pre-training or None for random weights).
        experiment: what the runs share.

    Returns:
        Options by name, without those that are given for all runs, or that the fine-tuning has as they are; none where
        no weights are random, or none are trained.

    Raises:
        ExperimentError: when the trained ones differ, so that nothing says which shape random weights are to have.
    """
    if all(start is not None for _, start in initializations):
        return {}
    config = ConfigParser.load_config_files(list(experiment.config_files))
    open_names = encoder_options() & config.keys() - experiment.overrides.keys()
    shape: dict[str, Any] = {}
    for name, start in initializations:
        found = (
            {} if start is None else _pretrained(start) if isinstance(start, Pretraining) else described_options(start)
        )
        for option in sorted(open_names & found.keys()):
            value = found[option]
            if shape.setdefault(option, value) != value:
                raise ExperimentError(
                    f"the weights that random ones are compared with differ in {option}: {shape[option]} and {value} "
                    f"(of {name!r}); give --{option}, or compare them in experiments of their own"
                )
    return {name: value for name, value in shape.items() if value != config[name]}


def _pretrained(arm: Pretraining) -> dict[str, Any]:
    """What its weights are going to carry."""
    settings = {**ConfigParser.load_config_files(list(arm.config_files)), **dict(arm.overrides)}
    values = {}
    for name in encoder_options() & settings.keys():
        try:
            values[name] = OPTIONS[name].read(_as_value(settings[name]))
        except ValueError as error:
            raise ExperimentError(f"arm {arm.name!r}: --{name}: {error}") from error
    return values


def _as_value(word: Any) -> Any:
    """A word of the command line as Python reads it."""
    try:
        return ast.literal_eval(word) if isinstance(word, str) else word
    except (SyntaxError, ValueError):
        return word
