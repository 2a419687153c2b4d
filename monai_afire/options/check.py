# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of a bundle are checked before anything runs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from monai.bundle import ConfigComponent, ConfigExpression, ConfigItem, ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import ID_REF_KEY, ID_SEP_KEY

from monai_afire.options import kinds
from monai_afire.options.arguments import component_arguments, ids_of
from monai_afire.options.call import BundleCall, current_call, top_level
from monai_afire.options.carried import Carried, carried_options
from monai_afire.options.declarations import OPTIONS
from monai_afire.options.help_text import describe_default, help_text
from monai_afire.options.relations import RELATIONS
from monai_afire.utils.command_line import show_cause_last
from monai_afire.utils.cpu import tune_cpu
from monai_afire.utils.early_stop import stop_early

__all__ = ["OptionError", "check", "check_call", "start_bundle"]


logger = logging.getLogger(__name__)

_MOST_SUGGESTIONS = 3
_OF_WEIGHTS = "leave it out: the network is built from the file of its weights, which says it"
FOLLOWS = "_follows"  # in an overlay: names of files that come before it where both are given


class OptionError(ValueError):
    """Options that do not exist, that nothing reads, or with values that they cannot have: all of a run at once."""


def start_bundle() -> None:
    """
    Prepare the process for a bundle's run; the first entry of every ``initialize``.

    Errors name their cause last (:func:`monai_afire.utils.show_cause_last`), options are checked (:func:`check`), and a
    CPU is made fast (:func:`monai_afire.utils.tune_cpu`). Changes settings of the whole process.

    Raises:
        OptionError: see :func:`check`.
        SystemExit: with code 0, when help was asked for and printed.
    """
    show_cause_last()
    stop_early()
    check()
    tune_cpu()


def check() -> None:
    """
    Check all options of the config that evaluates this, or answer ``--help``.

    It stands in ``initialize``, before everything that builds or writes something::

        "initialize": ["$monai_afire.options.check()", ...]

    Options that the command line gave as text ("false", "cpu") are replaced in the config by what they stand for,
    before anything refers to them.

    Raises:
        OptionError: for options that are unknown, unread or wrong, each with the remedy.
        SystemExit: with code 0, when help was asked for and printed.

    Example:
        >>> config = {"resume": "false", "initialize": ["$monai_afire.options.check()"], "anew": "$not @resume"}
        >>> parser = ConfigParser(config)
        >>> parser.globals["monai_afire"] = __import__("monai_afire")
        >>> _ = parser.get_parsed_content("initialize")
        >>> parser.get_parsed_content("anew")
        True
    """
    call = current_call()
    # MONAI's command line hands over "--help" and "-h" as overrides
    if "help" in call.config or call.config.get("h") is True:
        print(help_text(call))
        raise SystemExit(0)
    check_call(call)


def check_call(call: BundleCall) -> None:
    """
    Check the options of a start of a bundle, read text as what it stands for, and take what travels with its weights.

    Where the weights that the run starts from describe their network (:class:`monai_afire.networks.ModelFile`), these
    stand in the place of the defaults of its config. What was given beside them must be the same.

    Args:
        call: the start; its config is changed.

    Raises:
        OptionError: for options that are unknown, unread or wrong. One that has a default in the files, but that
            nothing reads any more once they are put together, is a warning.

    Example:
        >>> check_call(BundleCall(ConfigParser({"epochs": 1.5, "epoch": 3, "run": ["$print(@epochs)"]})))
        Traceback (most recent call last):
        ...
        monai_afire.options.check.OptionError: 2 options cannot be used, and nothing was started (--help lists all):
          --epoch: there is no such option; did you mean --epochs?
          --epochs: found 1.5, needs a whole number >= 1
    """
    problems = [*_wrong_order(call), *_unread(call), *_missing_entries(call), *_wrong_entries(call)]
    problems += _wrong_values(call)
    if problems:
        lines = "".join(f"\n  --{name}: {problem}" for name, problem in problems)
        number = "1 option" if len(problems) == 1 else f"{len(problems)} options"
        raise OptionError(f"{number} cannot be used, and nothing was started (--help lists all):{lines}")


def _wrong_order(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Files after an overlay that is to follow them: they would replace its values, and nobody would notice."""
    paths = list(call.layers)
    complete = [path for path in paths if "imports" in call.layers[path]]
    if complete and complete[0] != paths[0]:
        order = ",".join(f"'{each}'" for each in [complete[0], *(path for path in paths if path != complete[0])])
        first, late = Path(complete[0]).name, Path(paths[0]).name
        yield "config_file", f'{first} must come before {late}, which changes it; give "[{order}]"'
    for place, path in enumerate(paths):
        followed = [late for late in paths[place + 1 :] if Path(late).name in call.layers[path].get(FOLLOWS, ())]
        if followed:
            rest = [other for other in paths[place:] if other not in followed]
            names = " and ".join(Path(late).name for late in followed)
            order = ",".join(f"'{each}'" for each in [*paths[:place], *followed, *rest])
            yield "config_file", f'{names} must come before {Path(path).name}, whose values count; give "[{order}]"'


def _unread(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Names that nothing in the config reads: overrides, and plain values of files unless they are declared."""
    given = {name for name in call.overrides or () if ID_SEP_KEY not in name}
    unknown = {name for name, value in call.config.items() if name not in OPTIONS and _is_plain(value)}
    for name in sorted((given | unknown) - call.read_names):
        if name.startswith("_"):  # a remark
            continue
        if any(_is_of_weights(call, id) for id in ids_of(name, call.parser)):
            yield name, _OF_WEIGHTS
        elif name not in OPTIONS:
            yield name, f"there is no such option; {_suggestion(name, call)}"
        elif ids := [id for id in ids_of(name, call.parser) if id.split(ID_SEP_KEY)[-1] == name]:
            yield name, f"did you mean --{ids[0]}?"
        elif call.files is not None and name in call.files:
            # all options of a training may be given to its evaluation, too, though they have no effect there
            warnings.warn(f"--{name} has no effect: nothing reads it in this run", stacklevel=2)
        else:
            yield name, "nothing reads it in this run; leave it out"


def _is_of_weights(call: BundleCall, id: str) -> bool:
    """Whether the file of the weights says what an entry, or one that holds it, is."""
    parts, files = id.split(ID_SEP_KEY), call.files
    for end in range(len(parts) if files else 0, 0, -1):
        above = ID_SEP_KEY.join(parts[:end])
        entry = files.get(above) if files and above in files else None
        says = entry.get("_target_") if isinstance(entry, dict) else entry
        if isinstance(says, str) and says.startswith("$@model_file."):
            return True
    return False


def _is_plain(value: Any) -> bool:
    """Whether an entry is a value to be read, rather than a slot, a part to build or expressions to run."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return value is not None and not isinstance(value, dict) and not kinds.is_computed(value)


def _suggestion(name: str, call: BundleCall) -> str:
    """The option or the entry that was probably meant."""
    path = name.replace(".", ID_SEP_KEY)
    if path != name and path in call.parser:
        return f"did you mean --{path}?"
    own = [known for known in call.config if known != name and known in call.read_names]
    options = [known for known in own if known in OPTIONS]
    overlay = f"{name}.json"
    if any(Path(path).with_name(overlay).is_file() for path in call.layers):
        return f"add the config {overlay}"
    if by_initials := [known for known in options if name == "".join(word[0] for word in known.split("_"))]:
        return f"did you mean --{by_initials[0]}?"
    ids = ids_of(name, call.parser)
    if any(id.split(ID_SEP_KEY)[-1] == name or id in options for id in ids):
        return f"did you mean {' or '.join(f'--{id}' for id in ids[:_MOST_SUGGESTIONS])}?"
    for candidates in (options, own, ids):
        if close := get_close_matches(name, candidates, n=1) or (candidates is ids and ids):
            return f"did you mean --{close[0]}?"
    elsewhere = get_close_matches(name, OPTIONS, n=1)
    return f"{elsewhere[0]} is one of other runs: leave it out" if elsewhere else "leave it out"


def _missing_entries(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Overrides of entries inside of others that were not there, and that no component takes as an argument."""
    if call.files is None:
        return
    for id in call.overrides or ():
        holder_id, name = ReferenceResolver.split_id(id, last=True)
        if not holder_id or id in call.files or isinstance(_kind_of(top_level(id)), kinds.Mapping):
            continue
        if _is_of_weights(call, holder_id):
            yield id, _OF_WEIGHTS
            continue
        holder = call.parser.get(holder_id)
        is_component = ConfigComponent.is_instantiable(holder)
        known = component_arguments(holder, call.parser) if is_component else call.files.get(holder_id, ())
        if known is None or name in known:
            continue
        close = get_close_matches(name, known, n=1)
        others = ", ".join(sorted(known)) or "no entries"
        yield id, f"{holder_id} has no {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"it has {others}")


def _wrong_entries(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Overrides by a path whose kind is not that of what they replace; puts texts in as what they stand for."""
    for id, value in (call.overrides or {}).items():
        if ID_SEP_KEY not in id or kinds.is_computed(value) or isinstance(value, (dict, list)):
            continue
        kind = _kind_like(_replaced_value(call, id))
        if kind is None:
            continue
        try:
            read = kind.read(value)
        except ValueError:
            yield id, f"found {value!r}, needs {kind.description}"
            continue
        for each in [id, *_copies(call, id)]:
            _replace(call.parser, each, read)


def _replaced_value(call: BundleCall, id: str) -> Any:
    """What an entry is without the override: in the files, or as the argument's default."""
    if call.files is None:
        return None
    if id in call.files:
        value = call.files.get(id)
        is_reference = isinstance(value, str) and value.startswith(ID_REF_KEY)
        return call.files.get(value[len(ID_REF_KEY) :]) if is_reference else value
    holder_id, name = ReferenceResolver.split_id(id, last=True)
    holder = call.parser.get(holder_id)
    is_component = ConfigComponent.is_instantiable(holder)
    return (component_arguments(holder, call.parser) or {}).get(name) if is_component else None


def _kind_like(value: Any) -> kinds.Kind | None:
    if isinstance(value, bool):
        return kinds.Switch()
    return kinds.AnyNumber() if isinstance(value, (int, float)) else None


def _copies(call: BundleCall, id: str) -> Iterator[str]:
    """Ids of the same entry in the lists of handlers, into which MONAI has copied what "%train::..." names."""
    for section in ("train", "validate"):
        handlers = call.files.get(f"{section}::handlers") if call.files else None
        for place, entry in enumerate(handlers if isinstance(handlers, list) else ()):
            holder = entry[1:] if isinstance(entry, str) else ""
            if holder and id.startswith(holder + ID_SEP_KEY):
                yield f"{section}::handlers::{place}{id[len(holder) :]}"


def _kind_of(name: str) -> kinds.Kind | None:
    return OPTIONS[name].kind if name in OPTIONS else None


def _wrong_values(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Values that are none of their option's kind, or do not go together; puts the others into the config."""
    values = {}
    wrong = set()
    for name in [name for name in call.config if name in OPTIONS]:
        try:
            value = OPTIONS[name].read(call.config[name])
        except ValueError as error:
            wrong.add(name)
            yield name, f"{error}{_example(name, call)}"
            continue
        _replace(call.parser, name, value)
    yield from _take_from_weights(call, wrong)
    for name, value in call.config.items():
        if name in OPTIONS and name in call.read_names and name not in wrong and not kinds.is_computed(value):
            values[name] = value
    for relation in RELATIONS:
        paths = [name.rpartition(ID_SEP_KEY) for name in relation.names if ID_SEP_KEY in name]
        values |= {f"{at}{sep}{name}": call.parser[at].get(name) for at, sep, name in paths if _is_component(call, at)}
        if violation := relation.violated_by(values):
            given = [name for name in relation.names if name in (call.overrides or ())]
            yield next(iter([*given, *relation.names])), violation


def _is_component(call: BundleCall, id: str) -> bool:
    return id in call.parser and ConfigComponent.is_instantiable(call.parser[id])


def _take_from_weights(call: BundleCall, wrong: Collection[str]) -> Iterator[tuple[str, str]]:
    """Puts what travels with the run's weights in the place of defaults; contradictions."""
    changed: dict[str, Carried] = {}
    contradicted = False
    for found in carried_options(call, wrong):
        if not isinstance(found, Carried):
            contradicted = True
            yield found
            continue
        if call.parser.get(found.name) != found.value:
            changed[found.name] = found
        _replace(call.parser, found.name, found.value)
    for path in {} if contradicted else {carried.source.path: None for carried in changed.values()}:
        names = [f"{name} {describe_default(c.value)}" for name, c in changed.items() if c.source.path == path]
        logger.info(f"taken from {path}: {', '.join(names)}")


def _example(name: str, call: BundleCall) -> str:
    """The value in the config's files, if they have one that can be given."""
    default = call.files.get(name) if call.files else None
    plain = default is not None and name in (call.overrides or ()) and _is_plain(default)
    return f", such as --{name} {describe_default(default)}" if plain else ""


def _replace(parser: ConfigParser, id: str, value: Any) -> None:
    """Change an entry of a config whose evaluation has begun."""
    holder, name = ReferenceResolver.split_id(id, last=True)
    config: Any = parser[holder]  # setting an item of the parser itself would make it forget what was evaluated
    if name in config and type(config[name]) is type(value) and config[name] == value:
        return
    config[name] = value
    is_expression = ConfigExpression.is_expression(value)
    parser.ref_resolver.items[id] = (
        ConfigExpression(value, id, parser.globals) if is_expression else ConfigItem(value, id)
    )
    parser.ref_resolver.remove_resolved_content(id)
