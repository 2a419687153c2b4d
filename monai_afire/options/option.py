# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is declared of an option, and how its value is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from monai_afire.options.kinds import Kind, is_computed

__all__ = ["Option", "Travels"]

Travels = Literal["encoder", "network", "result", "names"]

_NOTHING = ("none", "null")
_LONG = 60


@dataclass(frozen=True)
class Option:
    """
    One value at the top of a bundle's configs. Its default is what the config holds.

    Args:
        name: key in the config, and after ``--`` on the command line.
        kind: the values that it takes.
        meaning: one line that ends without a full stop.
        null: what ``null`` (on the command line also the text "null") means; None where it is no value.
        travels: whether the value is saved with the weights, and who takes it from there. "encoder": it shapes the
            encoder or its input, and goes wherever that goes. "network": it shapes the rest of the network, and goes
            with the whole of it. "result": results are computed by it, and go by it where the network is used as it
            is; to go on training it may change. "names": it is kept for reference. None: it concerns one run.
        fitted: whether :func:`monai_afire.networks.load_encoder_weights` fits an encoder to another value, which may
            then be given for a transfer.

    Example:
        >>> from monai_afire.options.kinds import Integer
        >>> shots = Option("num_shots", Integer(minimum=1), "training items to learn from", null="all")
        >>> shots.read("null"), shots.read(5)
        (None, 5)
        >>> shots.read(0)
        Traceback (most recent call last):
        ...
        ValueError: found 0, needs a whole number >= 1, or null (all)
    """

    name: str
    kind: Kind
    meaning: str
    null: str | None = None
    travels: Travels | None = None
    fitted: bool = False

    @property
    def values(self) -> str:
        """The values that the option takes, in words."""
        return self.kind.description + (f", or null ({self.null})" if self.null else "")

    def read(self, value: Any) -> Any:
        """
        The value as the config is to hold it: text of the command line as what it stands for.

        Args:
            value: found in a config; what the config computes by itself is taken as it is.

        Returns:
            The value, of the option's kind.

        Raises:
            ValueError: when it is none of this kind; the message says what was found and what is needed.
        """
        if is_computed(value):
            return value
        if self.null and (value is None or str(value).lower() in _NOTHING):
            return None
        try:
            return self.kind.read(value)
        except ValueError as error:
            if isinstance(value, dict) and str(error):
                raise
            found, reason = repr(value), f" ({error})" if str(error) else ""
            if len(found) > _LONG:
                found = found[:_LONG] + "..."
            raise ValueError(f"found {found}, needs {self.values}{reason}") from None
