# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of a bundle are checked before anything runs."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from pydoc import locate
from typing import Any

from monai.bundle import ConfigComponent, ConfigExpression, ConfigItem, ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY

from monai_afire.options import kinds
from monai_afire.options.call import BundleCall, current_call, top_level
from monai_afire.options.carried import Carried, carried_options
from monai_afire.options.declarations import OPTIONS
from monai_afire.options.help_text import describe_default, help_text
from monai_afire.options.relations import RELATIONS
from monai_afire.utils.command_line import show_cause_last
from monai_afire.utils.cpu import tune_cpu

__all__ = ["OptionError", "check", "check_call", "start_bundle"]


logger = logging.getLogger(__name__)

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

    Where the weights that the run starts from carry options (:func:`monai_afire.options.travelling_options`), these
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
    problems = [*_wrong_order(call), *_unread(call), *_missing_entries(call), *_wrong_values(call)]
    if problems:
        lines = "".join(f"\n  --{name}: {problem}" for name, problem in problems)
        number = "1 option" if len(problems) == 1 else f"{len(problems)} options"
        raise OptionError(f"{number} cannot be used, and nothing was started (--help lists all):{lines}")


def _wrong_order(call: BundleCall) -> Iterator[tuple[str, str]]:
    """Files after an overlay that is to follow them: they would replace its values, and nobody would notice."""
    paths = list(call.layers)
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
        if name not in OPTIONS:
            yield name, f"there is no such option; {_suggestion(name, call)}"
        elif call.files is not None and name in call.files:
            # all options of a training may be given to its evaluation, too, though they have no effect there
            warnings.warn(f"--{name} has no effect: nothing reads it in this run", stacklevel=2)
        else:
            yield name, "nothing reads it in this run; leave it out"


def _is_plain(value: Any) -> bool:
    """Whether an entry is a value to be read, rather than a slot, a part to build or expressions to run."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return value is not None and not isinstance(value, dict) and not kinds.is_computed(value)


def _suggestion(name: str, call: BundleCall) -> str:
    path = name.replace(".", ID_SEP_KEY)
    if path != name and path in call.parser:
        return f"did you mean --{path}?"
    own = [known for known in call.config if known != name and known in call.read_names]
    for candidates in ([known for known in own if known in OPTIONS], own):
        if close := get_close_matches(name, candidates, n=1):
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
        holder = call.parser.get(holder_id)
        is_component = ConfigComponent.is_instantiable(holder)
        known = _arguments(holder, call.parser) if is_component else set(call.files.get(holder_id, ()))
        if known is None or name in known:
            continue
        close = get_close_matches(name, known, n=1)
        others = ", ".join(sorted(known)) or "no entries"
        yield id, f"{holder_id} has no {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"it has {others}")


def _arguments(component: Mapping[str, Any], parser: ConfigParser) -> set[str] | None:
    """Names that may stand in a component's entry; None where that is not known."""
    target = component["_target_"]
    path = ConfigComponent(config=dict(component), locator=parser.locator).resolve_module_name()
    found = locate(path) if isinstance(target, str) else target
    if not callable(found):
        return None
    names = set(ConfigComponent.non_arg_keys)
    # what a class takes as **kwargs it hands on to the one that it extends
    for each in found.__mro__ if inspect.isclass(found) else [found]:
        parameters = inspect.signature(each).parameters
        names |= set(parameters)
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
            return names
    return None


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
        if violation := relation.violated_by(values):
            given = [name for name in relation.names if name in (call.overrides or ())]
            yield next(iter([*given, *relation.names])), violation


def _take_from_weights(call: BundleCall, wrong: Collection[str]) -> Iterator[tuple[str, str]]:
    """Puts what travels with the run's weights in the place of defaults; contradictions."""
    changed: dict[str, Carried] = {}
    contradicted = False
    for found in carried_options(call, wrong):
        if not isinstance(found, Carried):
            contradicted = True
            yield found
            continue
        if call.config[found.name] != found.value:
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


def _replace(parser: ConfigParser, name: str, value: Any) -> None:
    """Change an entry of a config whose evaluation has begun."""
    config: Any = parser.config  # setting an item of the parser itself would make it forget what was evaluated
    if type(config[name]) is type(value) and config[name] == value:
        return
    config[name] = value
    is_expression = ConfigExpression.is_expression(value)
    parser.ref_resolver.items[name] = (
        ConfigExpression(value, name, parser.globals) if is_expression else ConfigItem(value, name)
    )
    parser.ref_resolver.remove_resolved_content(name)
