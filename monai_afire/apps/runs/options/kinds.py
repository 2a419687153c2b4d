# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Types of options, for pydantic.

The description of a type follows "needs" in messages, and stands in the help. Validators raise a ``ValueError``, whose
text, if any, is added to the message.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, TypeAdapter

from monai_afire.apps.phantom import export_phantom
from monai_afire.apps.phantom.phantom_cohort import SECTIONS
from monai_afire.networks.nets.encoders.encoder_building import OWN_NAMES, parse_encoder_name
from monai_afire.utils.device import ACCELERATORS, device_count
from monai_afire_cli.options.wrong_values import SWITCH_WORDS, at_least, list_of_values, one_of

_PHANTOM_ENTRIES = [
    name for name in inspect.signature(export_phantom).parameters if name != "out_dir"
]


def _path(value: Any) -> Any:
    """A command line has a switch where a value begins with a hyphen, and nothing where a variable is not set."""
    if isinstance(value, bool):
        raise ValueError("write ./-name for a path that begins with a hyphen")
    if value == "":
        raise ValueError("it is empty: is a variable of the shell unset?")
    if isinstance(value, str) and value.startswith("~"):
        raise ValueError("write the home folder in full")
    return value


def _ascending(values: list[Any]) -> list[Any]:
    if values != sorted(values):
        raise ValueError
    return values


def _device(value: Any) -> str:
    """The name of a device that this machine has."""
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError) as error:
        raise ValueError from error
    if device.type not in ("cpu", *ACCELERATORS):
        raise ValueError
    if (device.index or 0) >= (count := device_count(device.type)):
        kind = device.type.upper()
        has = f"{count} {kind} devices" if count else f"no {kind} device: leave it out, or give cpu"
        raise ValueError(f"this machine has {has}")
    return str(device)


def _encoder(value: str) -> str:
    if value not in OWN_NAMES:
        parse_encoder_name(value)
    return value


def _phantom(value: dict[str, Any]) -> dict[str, Any]:
    _check_names(value, _PHANTOM_ENTRIES, "")
    for name, below in value.items():
        if isinstance(below, dict):
            _check_names(below, SECTIONS, f"{name}::")
    return value


def _check_names(value: Mapping[str, Any], known: Sequence[str], prefix: str) -> None:
    for name in map(str, value):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            remedy = (
                f"did you mean {prefix + close[0]!r}?"
                if close
                else f"its entries are {', '.join(known)}"
            )
            raise ValueError(f"it has no entry {prefix + name!r}; {remedy}")


def describe(kind: Any) -> str:
    """The description of a type."""
    return str(TypeAdapter(kind).json_schema()["description"])


def integer(minimum: int, maximum: int | None = None) -> Any:
    """Whole numbers of an interval."""
    words = at_least(minimum) if maximum is None else f"a whole number in [{minimum}, {maximum}]"
    return Annotated[int, Field(ge=minimum, le=maximum, description=words)]


def number(description: str, **bounds: Any) -> Any:
    """Finite numbers; the bounds are pydantic's: ge, gt, le, lt."""
    return Annotated[
        float,
        Field(allow_inf_nan=False, description=description, **bounds),
    ]


def choice(words: tuple[str, ...]) -> Any:
    """One of some words."""
    return Annotated[Literal[words], Field(description=one_of(words))]


def per_axis(kind: Any) -> Any:
    """A value for all axes of an image, or a list of one for each."""
    sides = Annotated[list[kind], Field(min_length=2, max_length=2)]
    return Annotated[
        kind | sides, Field(description=f"{describe(kind)}, or a list of one for each axis")
    ]


def ascending_pair(kind: Any) -> Any:
    """Two values, of which the second is not smaller."""
    words = f"a list of 2 values, each {describe(kind)}, ascending"
    return Annotated[
        list[kind], Field(min_length=2, max_length=2, description=words), AfterValidator(_ascending)
    ]


def list_of(kind: Any) -> Any:
    """A list of any length."""
    return Annotated[list[kind], Field(description=list_of_values(describe(kind)))]


POSITIVE_INTEGER = integer(1)
INTEGER = integer(0)
SHARE = number("a number in [0, 1]", ge=0, le=1)
SWITCH = Annotated[bool, Field(description=SWITCH_WORDS)]
TEXT = Annotated[str, Field(description="a text")]
PATH = Annotated[str, BeforeValidator(_path), Field(description="a path")]
PATH_OR_EMPTY = Annotated[str, Field(description='a path, or "" for none')]
DEVICE = Annotated[
    str,
    PlainValidator(_device),
    Field(description="a device of this machine: cpu, cuda, xpu or mps, or one of several: cuda:N"),
]
ENCODER = Annotated[
    str,
    AfterValidator(_encoder),
    Field(description=f"{', '.join(OWN_NAMES)}, hub:FOLDER, hub:OWNER/NAME or timm:NAME"),
]
PHANTOM = Annotated[dict[str, Any], AfterValidator(_phantom), Field(description="a dictionary")]
FILES = Annotated[
    dict[str, PATH | None], Field(description="a dictionary of names and files, or null")
]
ANY_NUMBER = Annotated[int | float, Field(description="a number")]
SHARES = ascending_pair(number("a number in (0, 1]", gt=0, le=1))
