# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where an encoder lies in a checkpoint, and the key names of timm and MONAI translated to this package's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["SWIN_FORMATS", "VIT_FORMATS", "Conversion", "Format", "find_encoder", "same_names"]

EMBEDDING = "patch_embedding.patch_embeddings"
POSITIONS = "patch_embedding.position_embeddings"
TEACHER_WORDS = {"teacher", "ema", "momentum", "target"}
PREFIX_TOKENS = r"(cls|dist|reg)_token$|register_tokens$"
REGISTER_TOKENS = r"reg_token$|register_tokens$"


@dataclass(frozen=True)
class Format:
    r"""
    The key names of one source.

    Attributes:
        name: of the format, for the report.
        anchors: key names that show where in the checkpoint such an encoder lies (the patch embedding).
        body: begin of the key names of the first block, one of which must lie beside the anchor.
        rules: patterns of whole keys and this package's names for them; the first that matches counts.
        dropped: pattern of the begin of keys that are left out on purpose.
        of_photographs: three-channel weights of this format expect ImageNet's normalization of RGB photographs.
        layer_norm_eps: of the source's layer norms; None for the encoder's own.
    """

    name: str
    anchors: tuple[str, ...] = ()
    body: str = ""
    rules: Mapping[str, str] = field(default_factory=dict)
    dropped: str = ""
    of_photographs: bool = False
    layer_norm_eps: float | None = None


_SAME = {r"(.+)": r"\1"}
TIMM = Format(
    "timm",
    ("patch_embed.proj.weight",),
    "blocks.0.",
    {
        r"patch_embed\.proj\.(weight|bias)": rf"{EMBEDDING}.\1",
        r"pos_embed": POSITIONS,
        r"(blocks\.\d+\.norm[12]|blocks\.\d+\.attn\.qkv|norm|fc_norm)\.(weight|bias)": r"\1.\2",
        r"(blocks\.\d+)\.attn\.proj\.(weight|bias)": r"\1.attn.out_proj.\2",
        r"(blocks\.\d+)\.mlp\.fc([12])\.(weight|bias)": r"\1.mlp.linear\2.\3",
        r"(blocks\.\d+)\.(?:ls([12])\.gamma|gamma_([12]))": r"\1.layer_scale\2\3",
    },
    r"(cls|dist|reg|mask)_token$|register_tokens$|head|decoder_|pre_logits",
    of_photographs=True,
    layer_norm_eps=1e-6,
)
MONAI = Format(
    "monai",
    (f"{EMBEDDING}.weight", f"{EMBEDDING}.1.weight"),
    "blocks.0.",
    # a perceptron's linear layer stands behind a reshaping layer
    {r"patch_embedding\.patch_embeddings\.1\.(weight|bias)": rf"{EMBEDDING}.\1", **_SAME},
    r"cls_token$|classification_head\.|blocks\.\d+\.cross_attn\.|conv3d_transpose",
)
SWIN = Format(
    "afire",
    ("patch_embed.proj.weight",),
    "layers.0.blocks.0.mlp.linear1.",
    _SAME,
    r"head|mask_token$|layers\.\d+\.blocks\.\d+\.attn_mask",
)
VIT_FORMATS, SWIN_FORMATS = (MONAI, TIMM), (SWIN,)


@dataclass
class Conversion:
    """
    An encoder's tensors on their way from a checkpoint's names and shapes to those of an encoder of this package.

    Attributes:
        source: the format they come from.
        prefix: what precedes the encoder's keys in the checkpoint.
        tensors: by the encoder's key names.
        dropped: keys that are left out on purpose.
        unexpected: keys that mean nothing to the encoder.
        resized: tensors that got another shape, with both.
        notes: what else is worth knowing.
        prefix_tokens: number of tokens (class, register) that may precede the patches in the position embedding.
        register_tokens: how many of them are registers, which may have no positions while the others have.
        layer_norm_eps: of the source's layer norms; None for the encoder's own.
        normalization: mean and standard deviation of the source's images; None to go by the format.
        grid: patches along each axis of the source's images; None to infer it from the position embedding.
        num_heads: attention heads of the source, where known.
    """

    source: Format
    prefix: str = ""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prefix_tokens: int = 0
    register_tokens: int = 0
    layer_norm_eps: float | None = None
    normalization: tuple[Any, Any] | None = None
    grid: tuple[int, ...] | None = None
    num_heads: int | None = None


def find_encoder(
    tensors: Mapping[str, torch.Tensor],
    formats: Sequence[Format],
    branch: str,
    key: str | None = None,
) -> Conversion | None:
    """
    Find an encoder below whatever prefixes ("state_dict.", "teacher.backbone.") a checkpoint has, and translate it.

    Args:
        tensors: the flat checkpoint.
        formats: the formats to look for.
        branch: which to take of a student and a teacher, "student" or "teacher"; a single one is taken anyway.
        key: begin of the path to look below, e.g. "teacher" or "network.encoder".

    Returns:
        The encoder's tensors under this package's names; None if there is no encoder.

    Raises:
        ValueError: when several encoders remain.

    Example:
        >>> keys = ["patch_embed.proj.weight", "blocks.0.norm1.weight"]
        >>> both = {f"{part}.backbone.{key}": torch.ones(1) for part in ("student", "teacher") for key in keys}
        >>> find_encoder(both, VIT_FORMATS, "teacher").prefix
        'teacher.backbone.'
    """
    names = [name for name in tensors if name.startswith(_begin_of(key))]
    found = [(each, prefix) for each in formats for prefix in _prefixes(each, names)]
    found = [each for each in found if _is_teacher(each[1]) == (branch == "teacher")] or found
    if len(found) > 1:
        _refuse_several([prefix for _, prefix in found])
    return _translated(tensors, *found[0]) if found else None


def same_names(
    tensors: Mapping[str, torch.Tensor],
    expected: Mapping[str, Any],
    branch: str,
    key: str | None = None,
) -> str | None:
    """
    The prefix below which most of an encoder's own names are in a checkpoint, in the branch that is asked for.

    Args:
        tensors: the flat checkpoint.
        expected: by the encoder's names.
        branch: "student" or "teacher".
        key: begin of the path to look below.

    Returns:
        The prefix; None if there is no such name.

    Raises:
        ValueError: when several encoders remain.
    """
    counts: Counter[str] = Counter()
    for path in tensors:
        for start in (0, *(dot.end() for dot in re.finditer(r"\.", path))):
            if path[start:] in expected and path.startswith(_begin_of(key)):
                counts[path[:start]] += 1
    most = [prefix for prefix, count in counts.items() if count == max(counts.values())]
    found = [prefix for prefix in most if _is_teacher(prefix) == (branch == "teacher")] or most
    if len(found) > 1:
        _refuse_several(found)
    return found[0] if found else None


def _prefixes(source: Format, names: Sequence[str]) -> Iterator[str]:
    """What stands before a format's keys, wherever there is an anchor with a body beside it."""
    for anchor in source.anchors:
        for name in names:
            prefix = name.removesuffix(anchor)
            is_anchor = f".{name}".endswith(f".{anchor}")
            if is_anchor and any(other.startswith(prefix + source.body) for other in names):
                yield prefix


def _begin_of(key: str | None) -> str:
    return "" if key is None else key.rstrip(".") + "."


def _is_teacher(prefix: str) -> bool:
    """Whether a prefix names the moving average of two networks."""
    return not TEACHER_WORDS.isdisjoint(re.split(r"[._]", prefix.lower()))


def _refuse_several(prefixes: Sequence[str]) -> None:
    raise ValueError(
        f"the checkpoint has {len(prefixes)} encoders, below {sorted(prefixes)}: choose one by key="
    )


def _translated(tensors: Mapping[str, torch.Tensor], source: Format, prefix: str) -> Conversion:
    """The tensors below a prefix under this package's names."""
    result = Conversion(source, prefix, layer_norm_eps=source.layer_norm_eps)
    for path, tensor in tensors.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix):
            result.dropped.append(path)
            continue
        _count_prefix_tokens(result, name, tensor)
        new_name = _new_name(name, source.rules)
        if re.match(source.dropped, name):
            result.dropped.append(name)
        elif new_name is None:
            result.unexpected.append(name)
        else:
            result.tensors[new_name] = tensor
    if source is TIMM:
        _take_pooled_norm(result)
        _fold_layer_scale(result)
    return result


def _new_name(name: str, rules: Mapping[str, str]) -> str | None:
    for pattern, new in rules.items():
        if match := re.fullmatch(pattern, name):
            return match.expand(new)
    return None


def _count_prefix_tokens(result: Conversion, name: str, tensor: torch.Tensor) -> None:
    if re.search(PREFIX_TOKENS, name):
        count = tensor.shape[1] if tensor.ndim == 3 else 1
        result.prefix_tokens += count
        result.register_tokens += count if re.search(REGISTER_TOKENS, name) else 0


def _take_pooled_norm(result: Conversion) -> None:
    """Use the norm behind the mean of the tokens where the file has none for each token."""
    for part in ("weight", "bias"):
        pooled = result.tensors.pop(f"fc_norm.{part}", None)
        if pooled is not None and f"norm.{part}" in result.tensors:
            result.dropped.append(f"fc_norm.{part}")
        elif pooled is not None:
            result.tensors[f"norm.{part}"] = pooled
            result.notes.append(
                f"fc_norm.{part}, made for the mean of the tokens, is used for each token"
            )


def _fold_layer_scale(result: Conversion) -> None:
    """Multiply LayerScale's factors into the layer before it, which is exact."""
    tensors = result.tensors
    scales = [name for name in tensors if ".layer_scale" in name]
    for name in scales:
        scale = tensors.pop(name)
        block, number = name.split(".layer_scale")
        layer = f"{block}.attn.out_proj" if number == "1" else f"{block}.mlp.linear2"
        for key, shape in ((f"{layer}.weight", (-1, 1)), (f"{layer}.bias", (-1,))):
            if key in tensors:
                tensors[key] = tensors[key] * scale.reshape(shape)
    if scales:
        result.notes.append(f"{len(scales)} LayerScale factors are multiplied into the weights")
