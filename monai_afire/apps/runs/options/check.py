# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of a bundle are checked before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from monai.bundle import ConfigComponent
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import ID_REF_KEY, ID_SEP_KEY
from pydantic import TypeAdapter, ValidationError

from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.config_entries import (
    component_arguments,
    ids_of,
    is_computed,
    is_of_weights,
    text_of,
    top_level,
)
from monai_afire.apps.runs.options.declarations import OPTIONS
from monai_afire.apps.runs.options.help_text import describe_default
from monai_afire.apps.runs.options.kinds import ANY_NUMBER, SWITCH, describe
from monai_afire.apps.runs.options.literals import changed_words
from monai_afire.apps.runs.options.option import NULL
from monai_afire.apps.runs.overlays import undone_settings, wrong_order
from monai_afire_cli.options.overrides import unknown_step
from monai_afire_cli.options.suggestions import MOST_SUGGESTIONS, did_you_mean, is_name_of
from monai_afire_cli.options.table_hint import no_datalist
from monai_afire_cli.options.wrong_values import such_as, wrong_value

__all__ = ["OptionError", "check_call"]

_OF_WEIGHTS = "leave it out: the network is built from the file of its weights, which says it"


class OptionError(ValueError):
    """Options that do not exist, that nothing reads, or with values that they cannot have: all of a run at once."""


def check_call(call: BundleCall) -> None:
    """
    Check the options of a start of a bundle; nothing is changed.

    Args:
        call: the start.

    Raises:
        OptionError: for options that are unknown, unread or wrong, each with the remedy. One that has a default in the
            files, but that nothing reads any more once they are put together, is a warning.

    Example:
        >>> check_call(BundleCall({"a.json": {"epochs": 1.5, "epoch": 3, "run": ["$print(@epochs)"]}}))
        Traceback (most recent call last):
        ...
        monai_afire.apps.runs.options.check.OptionError: 2 options cannot be used, and nothing was started (...):
          --epoch: there is no such option; did you mean --epochs?
          --epochs: found 1.5, needs a whole number >= 1
    """
    checks = (
        _wrong_files,
        _wrong_step,
        _tables,
        _unread,
        changed_words,
        _wrong_entries,
        _wrong_values,
    )
    problems: dict[str, str] = {}
    for find in checks:
        problems = {**dict(find(call)), **problems}  # the first problem of an option counts
    if problems:
        lines = "".join(f"\n  --{name}: {problem}" for name, problem in sorted(problems.items()))
        number = "1 option" if len(problems) == 1 else f"{len(problems)} options"
        raise OptionError(
            f"{number} cannot be used, and nothing was started (--help lists all):{lines}"
        )


def _wrong_files(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Configs in a wrong order, or of which one silently undoes another."""
    if len(call.layers) == 1:
        return
    if problem := wrong_order(call.layers) or undone_settings(call.layers, call.overrides):
        yield "config_file", problem


def _wrong_step(call: BundleCall) -> Iterator[tuple[str, str]]:
    """A step that the config does not have: MONAI notices when everything is built, with a traceback."""
    if "run_id" in call.words and (problem := unknown_step(call.words["run_id"], call.config)):
        yield "run_id", problem


def _tables(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Tables of labels in the place of a datalist, or of the folder of the images."""
    datalist, folder = (str(call.config.get(name) or "") for name in ("datalist", "dataset_dir"))
    if problem := no_datalist(datalist, folder):
        yield "datalist", problem
    if problem := no_datalist(folder):
        yield "dataset_dir", problem


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
        elif name in call.files:
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
    return is_of_weights(call.files.get(top_level(id)))


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
    exact = [id for id in ids if is_name_of(name, id) or id in options]
    close = [near for known in (options, own) for near in get_close_matches(name, known, n=1)]
    if meant := initials[:1] or exact[:MOST_SUGGESTIONS] or close[:1] or ids[:1]:
        return f"did you mean {' or '.join(f'--{each}' for each in meant)}?"
    elsewhere = get_close_matches(name, OPTIONS, n=1)
    return f"{elsewhere[0]} is one of other runs: leave it out" if elsewhere else "leave it out"


def _wrong_entries(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Overrides inside of entries that have no such name, or another type there."""
    for id, value in call.overrides.items():
        if ID_SEP_KEY in id and (problem := _wrong_entry(call, id, value)):
            yield id, problem


def _wrong_entry(call: BundleCall, id: str, value: Any) -> str | None:
    """What is wrong with one override inside of an entry."""
    holder_id, name = ReferenceResolver.split_id(id, last=True)
    known = _entries(call, holder_id)
    if known is None:
        return None
    if top_level(id) == "phantom" and name not in known:
        return None  # the option's type checks its entries
    if _is_of_weights(call, holder_id):
        return _OF_WEIGHTS
    if name not in known:
        there = f"; it has {', '.join(sorted(known)) or 'no entries'}"
        return f"{holder_id} has no {name!r}{did_you_mean(name, list(known)) or there}"
    return None if id in OPTIONS else _wrong_type(value, known[name])  # the option's own is finer


def _wrong_type(value: Any, default: Any) -> str | None:
    """What is wrong with a value in place of a number or a switch."""
    if not isinstance(default, (bool, int, float)):
        return None
    if is_computed(value) or isinstance(value, dict):
        return None
    kind: Any = SWITCH if isinstance(default, bool) else ANY_NUMBER
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return wrong_value(repr(value), describe(kind))
    return None


def _entries(call: BundleCall, id: str) -> dict[str, Any] | None:
    """Values inside of an entry without overrides, or else the component's defaults; None where they are not known."""
    holder, written = call.parser.get(id), call.files.get(id)
    if isinstance(written, list):
        written = {str(place): value for place, value in enumerate(written)}
    known = written if isinstance(written, dict) else {}
    if ConfigComponent.is_instantiable(holder):
        arguments = component_arguments(holder, call.parser)
        if arguments is None and not _is_of_weights(call, id):
            return None
        known = {**(arguments or {}), **known}
    references = {
        name: value[1:] for name, value in known.items() if str(value).startswith(ID_REF_KEY)
    }
    return {**known, **{name: call.files.get(other) for name, other in references.items()}}


def _wrong_values(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Values that their options cannot have."""
    for name in [name for name in OPTIONS if name in call.parser]:
        value = call.parser[name]
        if value is None and name in call.overrides:
            yield name, f"MONAI leaves out an option that is None: write '{NULL}'"
            continue
        try:
            OPTIONS[name].read(text_of(value))
        except ValueError as error:
            yield name, f"{error}{_example(name, call)}"


def _example(name: str, call: BundleCall) -> str:
    """The value in the config's files, if they have one that can be given."""
    default = call.files.get(name)
    plain = default is not None and name in call.overrides and _is_plain(default)
    # MONAI's own command takes Python's True and False alone
    shown = str(default) if isinstance(default, bool) else describe_default(default)
    return such_as(name, shown) if plain else ""
