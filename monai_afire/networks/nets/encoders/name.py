# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names of encoders that other libraries have, as a config gives them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIBRARIES", "EncoderName", "is_encoder_name", "parse_encoder_name"]

# whether the library's weights are loaded where the name does not say so
LIBRARIES = {"hub": True, "timm": False}
_WEIGHTS = {"pretrained": True, "random": False}


@dataclass(frozen=True)
class EncoderName:
    """
    A model of another library.

    Attributes:
        library: "hub" (Hugging Face transformers) or "timm".
        model: name or folder.
        pretrained: whether its weights are meant to be loaded.
    """

    library: str
    model: str
    pretrained: bool


def is_encoder_name(text: object) -> bool:
    """
    Whether something names an encoder of another library rather than a file.

    Example:
        >>> is_encoder_name("hub:facebook/dinov2-small"), is_encoder_name("model.pt")
        (True, False)
    """
    return isinstance(text, str) and text.partition(":")[0] in LIBRARIES and ":" in text


def parse_encoder_name(text: str) -> EncoderName:
    """
    Read ``LIBRARY:MODEL`` or ``LIBRARY:MODEL:pretrained`` or ``LIBRARY:MODEL:random``.

    Args:
        text: ``hub:`` with the name of a model on Hugging Face or a folder in its format, with its weights unless
            ``:random`` follows; ``timm:`` with the name of a model of timm, without weights unless ``:pretrained``
            follows.

    Returns:
        Its parts.

    Raises:
        ValueError: for another form.

    Example:
        >>> parse_encoder_name("timm:vit_small_patch16_224")
        EncoderName(library='timm', model='vit_small_patch16_224', pretrained=False)
        >>> parse_encoder_name("hub:/models/dinov2-small:random")
        EncoderName(library='hub', model='/models/dinov2-small', pretrained=False)
    """
    library, _, model = text.partition(":")
    head, _, weights = model.rpartition(":")
    pretrained = LIBRARIES.get(library, False)
    if weights in _WEIGHTS:
        model, pretrained = head, _WEIGHTS[weights]
    if library not in LIBRARIES or not model:
        raise ValueError(
            f"encoder {text!r} names no encoder: give hub:FOLDER, hub:OWNER/NAME or timm:NAME, with :pretrained or "
            ":random behind it where the weights are to be or not to be loaded, or null for the bundle's own"
        )
    return EncoderName(library, model, pretrained)
