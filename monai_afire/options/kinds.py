# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Kinds of options: which values an option takes, and how the text of a command line becomes one."""

from __future__ import annotations

import math
from collections.abc import Mapping as MappingType
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import torch
from monai.bundle.config_item import ConfigComponent, ConfigExpression
from monai.bundle.utils import ID_REF_KEY

from monai_afire.networks.nets.encoders.build import parse_encoder_name
from monai_afire.utils.command_line import as_bool
from monai_afire.utils.device import ACCELERATORS, device_count

__all__ = [
    "Choice",
    "Device",
    "Encoder",
    "Integer",
    "Kind",
    "ListOf",
    "Mapping",
    "Number",
    "Path",
    "PerAxis",
    "Switch",
    "Text",
    "is_computed",
]


class Kind(Protocol):
    """A set of values with a name."""

    @property
    def description(self) -> str:
        """The values in words, to follow "needs"."""
        ...

    def read(self, value: Any) -> Any:
        """The value as the config is to hold it; a ``ValueError``, perhaps with a hint, when it is none of the kind."""
        ...


@dataclass(frozen=True)
class Number:
    """
    Finite numbers of an interval.

    Args:
        minimum: smallest value.
        maximum: largest value.
        above: every value is larger.
        below: every value is smaller.

    Example:
        >>> Number(above=0, maximum=1).description
        'a number in (0, 1]'
        >>> Number(minimum=0).read(3)
        3
    """

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    noun = "a number"

    @property
    def description(self) -> str:
        """The interval in words."""
        low = next((bound for bound in (self.minimum, self.above) if bound is not None), None)
        high = next((bound for bound in (self.maximum, self.below) if bound is not None), None)
        if low is None or high is None:
            signs = {">=": self.minimum, ">": self.above, "<=": self.maximum, "<": self.below}
            return " ".join([self.noun, *(f"{sign} {bound}" for sign, bound in signs.items() if bound is not None)])
        brackets = "[" if self.above is None else "(", "]" if self.below is None else ")"
        return f"{self.noun} in {brackets[0]}{low}, {high}{brackets[1]}"

    def read(self, value: Any) -> Any:
        """A finite number in the interval."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError
        inside = (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        if not inside:
            raise ValueError
        return value


@dataclass(frozen=True)
class AnyNumber:
    """A number of any size, also an infinite one, which switches a limit off."""

    description = "a number"

    def read(self, value: Any) -> Any:
        """A number as it is."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise ValueError
        return value


@dataclass(frozen=True)
class Integer(Number):
    """
    Whole numbers of an interval, also as floating-point ones: ``1e3`` is a whole number.

    Args:
        minimum: smallest value.
        maximum: largest value.

    Example:
        >>> Integer(minimum=1).read(1e3)
        1000
    """

    noun = "a whole number"

    def read(self, value: Any) -> int:
        """An int in the interval."""
        whole = int(super().read(value))
        if whole != value:
            raise ValueError
        return whole


@dataclass(frozen=True)
class Switch:
    """
    True or false, also as text: the command line hands over the text "false", which Python takes for true.

    Example:
        >>> Switch().read("false"), Switch().read(1)
        (False, True)
    """

    description = "true or false"

    def read(self, value: Any) -> bool:
        """A bool."""
        try:
            return as_bool(value)
        except ValueError:
            raise ValueError from None


@dataclass(frozen=True)
class Choice:
    """
    One of some words.

    Args:
        words: that can be chosen.

    Example:
        >>> Choice(("teacher", "student")).description
        'teacher or student'
    """

    words: tuple[str, ...]

    @property
    def description(self) -> str:
        """The words."""
        return " or ".join([", ".join(self.words[:-1]), self.words[-1]])

    def read(self, value: Any) -> str:
        """One of the words."""
        if value not in self.words:
            raise ValueError
        return str(value)


@dataclass(frozen=True)
class Text:
    """Any text; a number is a text, too, where a command line reads 2024 as one."""

    description = "a text"

    def read(self, value: Any) -> str:
        """A str."""
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ValueError
        return str(value)


@dataclass(frozen=True)
class Path(Text):
    """The path of a file or folder; whether it exists is for those to say who open it."""

    description = "a path"


@dataclass(frozen=True)
class Encoder:
    """
    The name of an encoder of another library, see :func:`monai_afire.networks.build_encoder`.

    Example:
        >>> Encoder().read("timm:vit_small_patch16_224")
        'timm:vit_small_patch16_224'
    """

    description = "hub:FOLDER, hub:OWNER/NAME or timm:NAME"

    def read(self, value: Any) -> str:
        """The name as it is."""
        if not isinstance(value, str):
            raise ValueError
        parse_encoder_name(value)
        return value


@dataclass(frozen=True)
class Device:
    """
    A device of PyTorch, by name: "cpu", "cuda", "cuda:1", "xpu", "mps".

    Example:
        >>> Device().read("cpu")
        "$torch.device('cpu')"
    """

    description = "cpu, cuda, xpu or mps, or one of several: cuda:N"

    def read(self, value: Any) -> Any:
        """An expression that gives the device: configs ask for its type, and stay writable as JSON."""
        try:
            device = torch.device(value)
        except (RuntimeError, TypeError) as error:
            raise ValueError from error
        if device.type not in ("cpu", *ACCELERATORS):
            raise ValueError
        if (device.index or 0) >= (count := device_count(device.type)):
            raise ValueError(f"this machine has {count} {device.type.upper()} devices")
        return f"$torch.device({str(device)!r})"


@dataclass(frozen=True)
class ListOf:
    """
    A list of values of one kind.

    Args:
        kind: of the values.
        length: number of values; None for any from 0.
        ascending: whether no value may be smaller than the one before.

    Example:
        >>> ListOf(Integer(minimum=1), length=2, ascending=True).read((1, 4))
        [1, 4]
    """

    kind: Kind
    length: int | None = None
    ascending: bool = False

    @property
    def description(self) -> str:
        """Of a list of such values."""
        number = "" if self.length is None else f"{self.length} "
        order = ", ascending" if self.ascending else ""
        return f"a list of {number}values, each {self.kind.description}{order}"

    def read(self, value: Any) -> list[Any]:
        """A list."""
        if not isinstance(value, (list, tuple)) or self.length not in (None, len(value)):
            raise ValueError
        if any(is_computed(each) for each in value):
            return list(value)
        values = [self.kind.read(each) for each in value]
        if self.ascending and values != sorted(values):
            raise ValueError
        return values


@dataclass(frozen=True)
class PerAxis:
    """
    A value for all axes of an image, or a list of one for each.

    Args:
        kind: of the values.

    Example:
        >>> PerAxis(Integer(minimum=1)).read([64, 64, 32]), PerAxis(Integer(minimum=1)).read(64)
        ([64, 64, 32], 64)
    """

    kind: Kind

    @property
    def description(self) -> str:
        """Of such a value."""
        return f"{self.kind.description}, or a list of one for each axis"

    def read(self, value: Any) -> Any:
        """The value, or the list."""
        if not isinstance(value, (list, tuple)):
            return self.kind.read(value)
        if len(value) not in (2, 3):
            raise ValueError
        return [self.kind.read(each) for each in value]


@dataclass(frozen=True)
class Mapping:
    """
    A dictionary.

    Args:
        entries: names that it may have, each with those of the dictionary below it (empty where a value stands there
            alone); None for any names.

    Example:
        >>> Mapping({"seed": (), "num_patients": ("training", "test")}).read({"sed": 0})
        Traceback (most recent call last):
        ...
        ValueError: it has no entry 'sed'; did you mean 'seed'?
    """

    entries: MappingType[str, tuple[str, ...]] | None = None
    description = "a dictionary"

    def read(self, value: Any) -> Any:
        """The dictionary as it is."""
        if not isinstance(value, dict):
            raise ValueError
        if self.entries is None:
            return value
        _check_names(value, tuple(self.entries), "")
        for name, below in value.items():
            if isinstance(below, dict) and self.entries[name]:
                _check_names(below, self.entries[name], f"{name}::")
        return value


def _check_names(value: MappingType[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for name in map(str, value):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            remedy = f"did you mean {prefix + close[0]!r}?" if close else f"its entries are {', '.join(known)}"
            raise ValueError(f"it has no entry {prefix + name!r}; {remedy}")


def is_computed(value: Any) -> bool:
    """
    Whether the config computes a value when it is needed, so that it cannot be checked before.

    Example:
        >>> [is_computed(value) for value in ("$2 * @epochs", "@epochs", {"_target_": "dict"}, 3)]
        [True, True, True, False]
    """
    is_reference = isinstance(value, str) and value.startswith(ID_REF_KEY)
    return is_reference or ConfigExpression.is_expression(value) or ConfigComponent.is_instantiable(value)
