# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoint filters: the encoder found in a checkpoint, and key names of other libraries translated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from monai_afire.networks.weights.checkpoint_files import Checkpoint
from monai_afire.networks.weights.report import LoadReport
from monai_afire.utils.text import first_few

__all__ = ["CheckpointFilter", "Conversion", "convert_names", "find_encoder"]

TEACHER_WORDS = {"teacher", "ema", "momentum", "target"}
PREFIX_TOKENS = r"(cls|dist|reg)_token$|register_tokens$"
REGISTER_TOKENS = r"reg_token$|register_tokens$"


@dataclass(frozen=True)
class CheckpointFilter:
    r"""
    The key names of one source format.

    Attributes:
        name: of the format, for the report.
        anchors: key names that show where in the checkpoint such an encoder lies (the patch embedding).
        body: begins of the key names of the first block, one of which must lie beside the anchor.
        rules: patterns of whole keys and this package's names for them; the first that matches counts.
        dropped: pattern of the begin of keys that are left out on purpose.
        of_photographs: three-channel weights of this format expect ImageNet's normalization of RGB photographs.
        layer_norm_eps: of the source's layer norms; None for the encoder's own.
        finish: what remains to be done once the names are translated.
    """

    name: str
    anchors: tuple[str, ...]
    body: tuple[str, ...]
    rules: Mapping[str, str]
    dropped: str
    of_photographs: bool
    layer_norm_eps: float | None = None
    finish: Callable[[Conversion], None] | None = None


@dataclass
class Conversion:
    """
    An encoder's tensors on their way from a checkpoint's names and shapes to those of an encoder of this package.

    Attributes:
        source: the format they come from.
        tensors: by the encoder's key names.
        report: what happens on the way.
        prefix_tokens: number of tokens (class, register) that may precede the patches in the position embedding.
        register_tokens: how many of them are registers, which may have no positions while the others have.
        layer_norm_eps: of the source's layer norms; None for the encoder's own.
        normalization: mean and standard deviation of the source's images; None to go by the format.
        grid: patches along each axis of the source's images; None to infer it from the position embedding.
        num_heads: attention heads of the source, where known.
    """

    source: CheckpointFilter
    tensors: dict[str, torch.Tensor]
    report: LoadReport
    prefix_tokens: int = 0
    register_tokens: int = 0
    layer_norm_eps: float | None = None
    normalization: tuple[Any, Any] | None = None
    grid: tuple[int, ...] | None = None
    num_heads: int | None = None


def find_encoder(
    tensors: Mapping[str, torch.Tensor],
    filters: Sequence[CheckpointFilter],
    branch: str,
    key: str | None = None,
) -> tuple[CheckpointFilter, str] | None:
    """
    Find an encoder below whatever prefixes ("state_dict.", "teacher.backbone.", "encoder.") a checkpoint has.

    Args:
        tensors: the flat checkpoint.
        filters: the formats to look for.
        branch: which to take of a student and a teacher, "student" or "teacher"; a single one is taken anyway.
        key: begin of the path to look below, e.g. "teacher" or "network.encoder".

    Returns:
        The format, and the prefix of the encoder's keys; None if there is no encoder.

    Raises:
        ValueError: when several encoders remain, or nothing lies below the key.

    Example:
        >>> vit = CheckpointFilter("timm", ("patch_embed.proj.weight",), ("blocks.0.",), {}, "head", True)
        >>> keys = ["patch_embed.proj.weight", "blocks.0.norm1.weight"]
        >>> both = {f"{part}.backbone.{key}": torch.ones(1) for part in ("student", "teacher") for key in keys}
        >>> find_encoder(both, [vit], "teacher")[1]
        'teacher.backbone.'
    """
    below = begin_of(key)
    names = [name for name in tensors if name.startswith(below)]
    if not names:
        raise ValueError(
            f"nothing lies below key={key!r} in the checkpoint; its keys are {first_few(tensors)}"
        )
    candidates = [(source, prefix) for source in filters for prefix in _prefixes(source, names)]
    of_branch = [each for each in candidates if is_teacher(each[1]) == (branch == "teacher")]
    candidates = of_branch or candidates
    if len(candidates) > 1:
        prefixes = [prefix for _, prefix in candidates]
        raise ValueError(
            f"the checkpoint holds {len(candidates)} encoders, below {prefixes}: choose one by key="
        )
    return candidates[0] if candidates else None


def _prefixes(source: CheckpointFilter, names: Sequence[str]) -> Iterator[str]:
    """What stands before a format's keys, wherever there is an anchor with a body beside it."""
    for anchor in source.anchors:
        for name in names:
            if not f".{name}".endswith(f".{anchor}"):
                continue
            prefix = name.removesuffix(anchor)
            bodies = tuple(prefix + body for body in source.body)
            if any(other.startswith(bodies) for other in names):
                yield prefix


def begin_of(key: str | None) -> str:
    """Begin of the paths below a key of a checkpoint."""
    return "" if key is None else key.rstrip(".") + "."


def is_teacher(prefix: str) -> bool:
    """Whether a prefix names the moving average of two networks."""
    return not TEACHER_WORDS.isdisjoint(re.split(r"[._]", prefix.lower()))


def _translated(name: str, rules: Mapping[str, str]) -> str | None:
    """This package's name for a key; None without one."""
    for pattern, new in rules.items():
        if match := re.fullmatch(pattern, name):
            return match.expand(new)
    return None


def convert_names(checkpoint: Checkpoint, source: CheckpointFilter, prefix: str = "") -> Conversion:
    r"""
    Translate the key names below a prefix; keys without a name in this package are "unexpected" or "dropped".

    Args:
        checkpoint: the whole of it.
        source: its format.
        prefix: what precedes the encoder's keys; all others are "dropped".

    Returns:
        The encoder's tensors under this package's names.

    Example:
        >>> tensors = {"fc.weight": torch.ones(1), "head.bias": torch.ones(1), "odd": torch.ones(1)}
        >>> source = CheckpointFilter("timm", (), (), {r"fc\.(weight|bias)": r"linear.\1"}, "head", True)
        >>> result = convert_names(Checkpoint("vit.pth", tensors), source)
        >>> list(result.tensors), result.report.dropped, result.report.unexpected
        (['linear.weight'], ['head.bias'], ['odd'])
    """
    report = LoadReport(checkpoint.name, source.name, prefix)
    result = Conversion(source, {}, report, layer_norm_eps=source.layer_norm_eps)
    for path, tensor in checkpoint.tensors.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix):
            report.dropped.append(path)
            continue
        if re.search(PREFIX_TOKENS, name):
            count = tensor.shape[1] if tensor.ndim == 3 else 1
            result.prefix_tokens += count
            result.register_tokens += count if re.search(REGISTER_TOKENS, name) else 0
        new_name = _translated(name, source.rules)
        if re.match(source.dropped, name):
            report.dropped.append(name)
        elif new_name is None:
            report.unexpected.append(name)
        else:
            result.tensors[new_name] = tensor
    if source.finish is not None:
        source.finish(result)
    return result
