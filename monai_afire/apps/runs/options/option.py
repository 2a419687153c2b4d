# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One option of a bundle: its name, its type and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from monai_afire.apps.runs.config_entries import is_computed
from monai_afire.apps.runs.options.kinds import ENCODER, FILES, PATH, PATH_OR_EMPTY, TEXT, describe
from monai_afire_cli.options.wrong_values import wrong_value

NULL = "$None"
"""Nothing as a word of a command line: MONAI leaves out an option that is None."""

_NOTHING = ("none", "null")
_LONGEST_VALUE = 60  # characters of a value in a message


@dataclass(frozen=True)
class Option:
    """
    One value of a bundle's configs. Its default is what the config contains.

    Args:
        name: id in the config, and after ``--`` on the command line: a key at the top, or a path.
        type: the values that it takes, see :mod:`monai_afire.apps.runs.options.kinds`.
        meaning: one line without a full stop at its end.
        null: what ``null`` means; None where it is not allowed.

    Example:
        >>> from monai_afire.apps.runs.options.kinds import POSITIVE_INTEGER
        >>> shots = Option("num_shots", POSITIVE_INTEGER, "training items to learn from", null="all")
        >>> shots.read(None), shots.read(5)
        (None, 5)
        >>> shots.read(0)
        Traceback (most recent call last):
        ...
        ValueError: found 0, needs a whole number >= 1, or null (all)
    """

    name: str
    type: Any
    meaning: str
    null: str | None = None

    @cached_property
    def adapter(self) -> TypeAdapter:
        """The validator of the type."""
        return TypeAdapter(self.type)

    @property
    def is_text(self) -> bool:
        """Whether the value is any text, such as a path or a name, so that the word of a command line is the value."""
        return self.type in (PATH, PATH_OR_EMPTY, TEXT, ENCODER)

    @property
    def is_path(self) -> bool:
        """Whether the value is a path, or holds paths."""
        return self.type in (PATH, PATH_OR_EMPTY, FILES)

    @property
    def values(self) -> str:
        """The values that the option takes, in words."""
        return describe(self.type) + (f", or null ({self.null})" if self.null else "")

    def read(self, value: Any) -> Any:
        """
        Check a value of the config.

        Args:
            value: from a config; what the config computes itself is not checked.

        Returns:
            The value.

        Raises:
            ValueError: when it is of another type; the message says what was found and what is needed.
        """
        parts = list(value) if isinstance(value, (list, tuple)) else [value]
        if any(is_computed(part) for part in parts) or (self.null and value is None):
            return value
        try:
            return self.adapter.validate_python(
                parts if isinstance(value, tuple) else value, strict=True
            )
        except ValidationError as error:
            raise ValueError(self._complaint(value, error)) from None

    def _complaint(self, value: Any, error: ValidationError) -> str:
        """What was found and what is needed, with the reason where our own validator gives one."""
        errors = [
            str(each["ctx"]["error"]) for each in error.errors() if each["type"] == "value_error"
        ]
        reasons = [text for text in errors if text]
        if reasons and isinstance(value, dict):
            return reasons[0]
        found = repr(value)
        short = found if len(found) <= _LONGEST_VALUE else found[:_LONGEST_VALUE] + "..."
        if self.null and str(value).lower() in _NOTHING:
            reasons = [f"write '{NULL}'"]
        return wrong_value(short, self.values) + (f" ({reasons[0]})" if reasons else "")
