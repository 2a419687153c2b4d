# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What came of loading weights into an encoder."""

from __future__ import annotations

from dataclasses import dataclass, field

from monai_afire.utils.text import first_few

__all__ = ["LoadReport"]


@dataclass
class LoadReport:
    """
    The outcome of ``load_encoder_weights``; ``print`` it for a summary.

    Attributes:
        file: where the weights came from.
        layout: whose key names the checkpoint has: "timm", or the class of the network.
        prefix: what precedes these names in the checkpoint, e.g. "teacher.backbone.".
        loaded: the encoder's keys that were overwritten.
        missing: the encoder's keys that the checkpoint does not have; they keep their values.
        unexpected: the checkpoint's keys (without prefix) that mean nothing to the encoder.
        resized: the loaded keys that were resampled or had other channels, with both sizes.
        dropped: the checkpoint's keys that are left out on purpose: class token, heads, decoders.
        notes: assumptions and conversions that are worth knowing.
    """

    file: str
    layout: str = ""
    prefix: str = ""
    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        prefix = f", prefix {self.prefix!r}" if self.prefix else ""
        lines = [f"encoder weights from {self.file} ({self.layout} names{prefix})"]
        for title in ("loaded", "missing", "unexpected", "resized", "dropped"):
            names = getattr(self, title)
            some = f": {first_few(names, 4)}" if names else ""
            lines.append(f"  {title:<10} {len(names)}{some}")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])
