# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of a bundle are checked before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigComponent
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import ID_REF_KEY, ID_SEP_KEY
from pydantic import TypeAdapter, ValidationError

from monai_afire.apps.runs.arguments import component_arguments, ids_of
from monai_afire.apps.runs.call import BundleCall, referenced_names, top_level
from monai_afire.apps.runs.declarations import OPTIONS
from monai_afire.apps.runs.described_options import take_from_weights
from monai_afire.apps.runs.first_lines import print_first_lines
from monai_afire.apps.runs.help_text import describe_default, help_text
from monai_afire.apps.runs.kinds import ANY_NUMBER, SWITCH, describe
from monai_afire.apps.runs.literals import words_as_written
from monai_afire.apps.runs.option import is_computed
from monai_afire.apps.runs.overlays import undone_settings, wrong_order
from monai_afire.apps.runs.running import current_call
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.networks.nets.encoders.encoder_building import RESIDUAL
from monai_afire.utils.command_line import innermost_cause, show_cause_last, stop_early
from monai_afire.utils.cpu import tune_cpu
from monai_afire_cli.overrides import unknown_step

__all__ = ["OptionError", "check", "check_call", "start_bundle"]

_MOST_SUGGESTIONS = 3
_INTERRUPTED = "stopped by Ctrl-C: start the same command again"
_RESUMABLE = (
    "stopped by Ctrl-C: the same command with --resume true goes on after what was complete"
)
_OF_WEIGHTS = "leave it out: the network is built from the file of its weights, which says it"
_BUILT_EARLY = (
    "encoder_def",
    "load_image",
    "make_crops",
    "draw_landmarks",
)  # they need no data


class OptionError(ValueError):
    """Options that do not exist, that nothing reads, or with values that they cannot have: all of a run at once."""


def start_bundle() -> None:
    """
    Prepare the process for a bundle's run; the first entry of every ``initialize``.

    Errors name their cause last (:func:`monai_afire.utils.show_cause_last`), options are checked (:func:`check`), a CPU
    is made fast (:func:`monai_afire.utils.tune_cpu`), and the device is named. Changes settings of the whole process.

    Raises:
        OptionError: see :func:`check`.
        SystemExit: with code 0, after it printed the help.
    """
    call = current_call()
    goes_on = "resume" in call.read_names
    show_cause_last(_RESUMABLE if goes_on else _INTERRUPTED)
    stop_early()
    check()
    tune_cpu()
    print_first_lines(call)


def check() -> None:
    """
    Check all options of the config that evaluates this, or answer ``--help``.

    It stands in ``initialize``, before everything that builds or writes something::

        "initialize": ["$monai_afire.apps.runs.check()", ...]

    Options that the command line gave as text ("false", "cpu") are replaced in the config by what they mean, before
    anything refers to them.

    Raises:
        OptionError: for options that are unknown, unread or wrong, each with the remedy.
        SystemExit: with code 0, after it printed the help.

    Example:
        >>> from monai.bundle import ConfigParser
        >>> config = {"resume": "false", "initialize": ["$monai_afire.apps.runs.check()"], "fresh": "$not @resume"}
        >>> parser = ConfigParser(config)
        >>> parser.globals["monai_afire"] = __import__("monai_afire")
        >>> _ = parser.get_parsed_content("initialize")
        >>> parser.get_parsed_content("fresh")
        True
    """
    call = current_call()
    # MONAI's command line gives "--help" and "-h" as overrides
    if "help" in call.config or call.config.get("h") is True:
        print(help_text(call))
        raise SystemExit(0)
    check_call(call)


def check_call(call: BundleCall) -> None:
    """
    Check the options of a start of a bundle, and complete them by what the weights of a training say.

    Args:
        call: the start; its config is changed: text becomes what it means, see also :func:`take_from_weights`.

    Raises:
        OptionError: for options that are unknown, unread or wrong. One that has a default in the files, but that
            nothing reads any more once they are put together, is a warning.

    Example:
        >>> from monai.bundle import ConfigParser
        >>> check_call(BundleCall(ConfigParser({"epochs": 1.5, "epoch": 3, "run": ["$print(@epochs)"]})))
        Traceback (most recent call last):
        ...
        monai_afire.apps.runs.check.OptionError: 2 options cannot be used, and nothing was started (--help lists all):
          --epoch: there is no such option; did you mean --epochs?
          --epochs: found 1.5, needs a whole number >= 1
    """
    problems = [*_wrong_files(call), *_wrong_step(call), *_unread(call), *words_as_written(call)]
    problems += [*_wrong_entries(call), *_wrong_values(call)]
    problems = problems or [*_impossible_parts(call)]
    call.parser.parse()  # evaluation, which may have begun, goes on with the changed config
    if problems:
        lines = "".join(f"\n  --{name}: {problem}" for name, problem in problems)
        number = "1 option" if len(problems) == 1 else f"{len(problems)} options"
        raise OptionError(
            f"{number} cannot be used, and nothing was started (--help lists all):{lines}"
        )


def _wrong_files(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Configs in a wrong order, or of which one silently undoes another."""
    if problem := wrong_order(call.layers) or undone_settings(call.layers, call.overrides):
        yield "config_file", problem


def _wrong_step(call: BundleCall) -> Iterator[tuple[str, str]]:
    """A step that the config does not have: MONAI notices when everything is built, with a traceback."""
    if "run_id" in call.words and (problem := unknown_step(call.words["run_id"], call.config)):
        yield "run_id", problem


def _unread(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Names that nothing in the config reads: overrides, and plain values of files unless they are declared."""
    given = {name for name in call.overrides if ID_SEP_KEY not in name}
    unknown = {
        name for name, value in call.config.items() if name not in OPTIONS and _is_plain(value)
    }
    for name in sorted((given | unknown) - call.read_names):
        ids = ids_of(name, call.parser)
        if name.startswith("_"):  # a remark
            continue
        if any(_is_of_weights(call, id) for id in ids):
            yield name, _OF_WEIGHTS
        elif name not in OPTIONS:
            yield name, f"there is no such option; {_suggestion(name, ids, call)}"
        elif ids and ids[0].split(ID_SEP_KEY)[-1] == name:
            yield name, f"did you mean --{ids[0]}?"
        elif call.files is not None and name in call.files:
            # all options of a training may be given to its evaluation, too, though they have no effect there
            warnings.warn(f"--{name} has no effect: nothing reads it in this run", stacklevel=2)
        else:
            yield name, "nothing reads it in this run; leave it out"


def _is_plain(value: Any) -> bool:
    """Whether an entry is a value to be read, rather than a slot, a part to build or expressions to run."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return value is not None and not isinstance(value, dict) and not is_computed(value)


def _is_of_weights(call: BundleCall, id: str) -> bool:
    """Whether the file of the weights says what an entry is."""
    name = top_level(id)
    return (
        call.files is not None
        and name in call.files
        and "$@model_file." in str(call.files.get(name))
    )


def _suggestion(name: str, ids: list[str], call: BundleCall) -> str:
    """The option or the entry that was probably meant."""
    path = name.replace(".", ID_SEP_KEY)
    if path != name and path in call.parser:
        return f"did you mean --{path}?"
    if any(Path(file).with_name(f"{name}.json").is_file() for file in call.layers):
        return f"add the config {name}.json"
    own = [known for known in call.config if known != name and known in call.read_names]
    options = [known for known in own if known in OPTIONS]
    initials = [known for known in options if name == "".join(word[0] for word in known.split("_"))]
    exact = [id for id in ids if id.split(ID_SEP_KEY)[-1] == name or id in options]
    close = [near for known in (options, own) for near in get_close_matches(name, known, n=1)]
    if meant := initials[:1] or exact[:_MOST_SUGGESTIONS] or close[:1] or ids[:1]:
        return f"did you mean {' or '.join(f'--{each}' for each in meant)}?"
    elsewhere = get_close_matches(name, OPTIONS, n=1)
    return f"{elsewhere[0]} is one of other runs: leave it out" if elsewhere else "leave it out"


def _wrong_entries(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Overrides inside of entries that have no such name, or another type there; changes text to what it means."""
    for id, value in call.overrides.items() if call.files else ():
        holder_id, name = ReferenceResolver.split_id(id, last=True)
        known = _entries(call, holder_id) if holder_id else None
        if known is None or (
            name not in known and top_level(id) == "phantom"
        ):  # whose type checks its entries
            continue
        if _is_of_weights(call, holder_id):
            yield id, _OF_WEIGHTS
        elif name not in known:
            close = get_close_matches(name, known, n=1)
            remedy = (
                f"did you mean {close[0]!r}?"
                if close
                else f"it has {', '.join(sorted(known)) or 'no entries'}"
            )
            yield id, f"{holder_id} has no {name!r}; {remedy}"
        elif (
            isinstance(known[name], (bool, int, float))
            and not is_computed(value)
            and not isinstance(value, dict)
        ):
            kind: Any = SWITCH if isinstance(known[name], bool) else ANY_NUMBER
            try:
                read = TypeAdapter(kind).validate_python(value)
            except ValidationError:
                yield id, f"found {value!r}, needs {describe(kind)}"
                continue
            for each in [id, *_copies(call, id)]:
                call.replace(each, read)


def _entries(call: BundleCall, id: str) -> dict[str, Any] | None:
    """Values inside of an entry without overrides, or else the component's defaults; None where they are not known."""
    holder, written = call.parser.get(id), call.files.get(id) if call.files else None
    values = (
        {str(place): value for place, value in enumerate(written)}
        if isinstance(written, list)
        else written
    )
    known = values if isinstance(values, dict) else {}
    if ConfigComponent.is_instantiable(holder):
        arguments = component_arguments(holder, call.parser)
        if arguments is None and not _is_of_weights(call, id):
            return None
        known = {**(arguments or {}), **known}
    references = {
        name: value[1:] for name, value in known.items() if str(value).startswith(ID_REF_KEY)
    }
    return (
        {**known, **{name: call.files.get(other) for name, other in references.items()}}
        if call.files
        else known
    )


def _copies(call: BundleCall, id: str) -> Iterator[str]:
    """Ids of the same entry in the lists of handlers, into which MONAI has copied what "%train::..." names."""
    for section in ("train", "validate"):
        handlers = call.files.get(f"{section}::handlers") if call.files else None
        for place, entry in enumerate(handlers if isinstance(handlers, list) else ()):
            holder = entry[1:] if isinstance(entry, str) else ""
            if holder and id.startswith(holder + ID_SEP_KEY):
                yield f"{section}::handlers::{place}{id[len(holder) :]}"


def _wrong_values(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Values that their options cannot have, or that contradict the weights; puts the others into the config."""
    wrong = set()
    for name in [name for name in call.config if name in OPTIONS]:
        try:
            call.replace(name, OPTIONS[name].read(call.config[name]))
        except ValueError as error:
            wrong.add(name)
            yield name, f"{error}{_example(name, call)}"
    yield from take_from_weights(call, wrong)


def _impossible_parts(call: BundleCall) -> Iterator[tuple[str, str]]:
    """What constructors say about values that do not go together, before data is read or anything is written."""
    if "model_file" in call.config:  # says what fits its network
        return
    yield from _features_as_probabilities(call)
    for id in call.read_names & set(_BUILT_EARLY) & call.config.keys():
        if id == "encoder_def" and call.config.get("encoder") not in (
            None,
            RESIDUAL,
        ):  # its library loads or computes
            continue
        try:
            with (
                torch.device("meta"),
                torch.random.fork_rng(),
            ):  # nothing is computed, no random number is used up
                call.parser.get_parsed_content(id)
        except Exception as error:
            if isinstance(
                cause := innermost_cause(error), DatalistError
            ):  # names the list and the remedy
                yield "datalist" if call.config.get("datalist") else "dataset_dir", str(cause)
                continue
            names = [name for name in _options_of(call, id) if call.config.get(name) is not None]
            values = ", ".join(f"{name} {describe_default(call.config[name])}" for name in names)
            culprit = next((name for name in names if name in call.overrides), id)
            yield culprit, f"{id} cannot have {values}: {cause}"


def _features_as_probabilities(call: BundleCall) -> Iterator[tuple[str, str]]:
    """No constructor sees network and loss together."""
    space, similarity = (
        call.parser.get(id) for id in ("network_def::contrast_space", "loss::similarity")
    )
    if space == "features" and similarity != "cosine" and "loss" in call.read_names:
        yield (
            "network_def::contrast_space",
            "features are no probabilities; give --loss::similarity cosine",
        )


def _options_of(call: BundleCall, id: str) -> list[str]:
    """Options that a part of the config refers to, also by other parts."""
    names, seen = {id}, set[str]()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        names |= referenced_names(call.config.get(name))
    return [name for name in OPTIONS if name in seen]


def _example(name: str, call: BundleCall) -> str:
    """The value in the config's files, if they have one that can be given."""
    default = call.files.get(name) if call.files else None
    plain = default is not None and name in call.overrides and _is_plain(default)
    return f", such as --{name} {describe_default(default)}" if plain else ""
