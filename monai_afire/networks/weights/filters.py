# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoint filters: key names of other libraries translated, and the encoder found in a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from monai_afire.networks.weights.report import shorten

__all__ = ["CheckpointFilter", "Converted", "FoundEncoder", "find_encoder", "rename_keys"]

TEACHER_WORDS = {"teacher", "ema", "momentum", "target"}


@dataclass
class Converted:
    """
    An encoder's tensors under this package's key names, still in the checkpoint's shapes.

    Attributes:
        tensors: by the encoder's key names.
        dropped: keys left out on purpose.
        unexpected: keys that the filter does not know.
        resized: what was brought into another shape, for the report.
        notes: for the report.
        prefix_tokens: number of tokens (class, register) that may precede the patches in the position embedding.
        layer_norm_eps: eps of the source's layer norms; None for the encoder's own.
    """

    tensors: dict[str, torch.Tensor]
    dropped: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prefix_tokens: int = 0
    layer_norm_eps: float | None = None


@dataclass(frozen=True)
class CheckpointFilter:
    """
    The translator of one source format.

    Attributes:
        name: of the format, for the report.
        anchors: key names that show where in the checkpoint such an encoder lies (the patch embedding).
        body: begins of the key names of the first block, one of which must lie beside the anchor.
        convert: from the encoder's state dict (prefix stripped) to this package's names.
        of_photographs: three-channel weights of this format expect ImageNet's normalisation of RGB photographs.
    """

    name: str
    anchors: tuple[str, ...]
    body: tuple[str, ...]
    convert: Callable[[Mapping[str, torch.Tensor]], Converted]
    of_photographs: bool


@dataclass(frozen=True)
class FoundEncoder:
    """Encoder found in a checkpoint: the filter that reads it, the prefix of its keys, and the rest."""

    filter: CheckpointFilter
    prefix: str
    state: dict[str, torch.Tensor]
    others: list[str]


def find_encoder(
    tensors: Mapping[str, torch.Tensor], filters: Sequence[CheckpointFilter], branch: str, key: str | None = None
) -> FoundEncoder | None:
    """
    Find an encoder below whatever prefixes ("state_dict.", "teacher.backbone.", "encoder.") a checkpoint has.

    Args:
        tensors: the flat checkpoint.
        filters: the formats to look for.
        branch: which to take of a student and a teacher, "student" or "teacher"; a single one is taken anyway.
        key: begin of the path to look below, e.g. "teacher" or "network.encoder".

    Returns:
        The encoder, None if there is none.

    Raises:
        ValueError: when several encoders remain, or nothing lies below the key.

    Example:
        >>> vit = CheckpointFilter("timm", ("patch_embed.proj.weight",), ("blocks.0.",), Converted, True)
        >>> keys = ["patch_embed.proj.weight", "blocks.0.norm1.weight"]
        >>> both = {f"{part}.backbone.{key}": torch.ones(1) for part in ("student", "teacher") for key in keys}
        >>> find_encoder(both, [vit], "teacher").prefix
        'teacher.backbone.'
    """
    candidates = _candidates(tensors, filters, key)
    if len(candidates) > 1:
        of_branch = [candidate for candidate in candidates if _is_teacher(candidate[1]) == (branch == "teacher")]
        candidates = of_branch or candidates
    if len(candidates) > 1:
        prefixes = [prefix for _, prefix in candidates]
        raise ValueError(f"the checkpoint holds {len(candidates)} encoders, below {prefixes}: choose one by key=")
    if not candidates:
        return None
    found, prefix = candidates[0]
    state = {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    return FoundEncoder(found, prefix, state, [name for name in tensors if not name.startswith(prefix)])


def rename_keys(
    state: Mapping[str, torch.Tensor], rules: Mapping[str, str], dropped: str, layer_norm_eps: float | None
) -> Converted:
    """
    Translate key names by regular expressions that each match a whole key.

    Args:
        state: the encoder's state dict.
        rules: pattern to replacement; the first that matches is taken.
        dropped: pattern of the begin of keys to leave out on purpose.
        layer_norm_eps: to hand on.

    Returns:
        The renamed tensors; keys that match nothing are "unexpected".

    Example:
        >>> state = {"fc.weight": torch.ones(1), "head.bias": torch.ones(1), "odd": torch.ones(1)}
        >>> result = rename_keys(state, {r"fc\\.(weight|bias)": r"linear.\\1"}, "head", None)
        >>> list(result.tensors), result.dropped, result.unexpected
        (['linear.weight'], ['head.bias'], ['odd'])
    """
    result = Converted({}, layer_norm_eps=layer_norm_eps)
    for name, tensor in state.items():
        matches = ((re.fullmatch(pattern, name), new) for pattern, new in rules.items())
        new_name = next((match.expand(new) for match, new in matches if match), None)
        if new_name is not None:
            result.tensors[new_name] = tensor
        else:
            (result.dropped if re.match(dropped, name) else result.unexpected).append(name)
    return result


def _candidates(
    tensors: Mapping[str, torch.Tensor], filters: Sequence[CheckpointFilter], key: str | None
) -> list[tuple[CheckpointFilter, str]]:
    below = "" if key is None else key.rstrip(".") + "."
    names = [name for name in tensors if name.startswith(below)]
    if not names:
        raise ValueError(f"nothing lies below key={key!r} in the checkpoint; its keys are {shorten(list(tensors))}")
    candidates = []
    for candidate in filters:
        for anchor in candidate.anchors:
            prefixes = [name[: -len(anchor)] for name in names if f".{name}".endswith(f".{anchor}")]
            for prefix in prefixes:
                bodies = tuple(prefix + body for body in candidate.body)
                if any(name.startswith(bodies) for name in names):
                    candidates.append((candidate, prefix))
    return candidates


def _is_teacher(prefix: str) -> bool:
    return not TEACHER_WORDS.isdisjoint(re.split(r"[._]", prefix.lower()))
