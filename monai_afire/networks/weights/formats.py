# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where an encoder lies in a checkpoint, and the key names of timm and MONAI translated to this package's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from monai_afire.networks.weights.report import LoadReport

__all__ = [
    "SWIN_FORMATS",
    "TIMM",
    "VIT_FORMATS",
    "Format",
    "find_encoder",
    "find_names",
    "translated",
]

Tensors = dict[str, torch.Tensor]

EMBEDDING = "patch_embedding.patch_embeddings"
POSITIONS = "patch_embedding.position_embeddings"
_TEACHER_WORDS = {"teacher", "ema", "momentum", "target"}


class Format(NamedTuple):
    """
    The key names of one source.

    Attributes:
        name: of the format, for the report.
        anchors: key names of the patch embedding, which show where in a checkpoint such an encoder lies.
        body: begin of the key names of the first block, one of which must lie beside the anchor.
        rules: patterns of whole keys and this package's names for them; the first that matches counts.
        dropped: pattern of the begin of keys that are left out on purpose.
    """

    name: str
    anchors: tuple[str, ...]
    body: str
    rules: Mapping[str, str]
    dropped: str


_SAME = {r".+": r"\g<0>"}
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
)
_MONAI = Format(
    "monai",
    (f"{EMBEDDING}.weight", f"{EMBEDDING}.1.weight"),
    "blocks.0.",
    # a perceptron's linear layer stands behind a reshaping layer
    {r"patch_embedding\.patch_embeddings\.1\.(weight|bias)": rf"{EMBEDDING}.\1", **_SAME},
    r"cls_token$|classification_head\.|blocks\.\d+\.cross_attn\.|conv3d_transpose",
)
_SWIN = Format(
    "afire",
    ("patch_embed.proj.weight",),
    "layers.0.blocks.0.mlp.linear1.",
    _SAME,
    r"head|mask_token$|layers\.\d+\.blocks\.\d+\.attn_mask",
)
VIT_FORMATS, SWIN_FORMATS = (_MONAI, TIMM), (_SWIN,)


def find_encoder(
    names: Iterable[str], formats: Sequence[Format], branch: str, key: str | None = None
) -> tuple[Format, str] | None:
    """
    Find an encoder below whatever prefixes ("state_dict.", "teacher.backbone.") a checkpoint has.

    Args:
        names: keys of the checkpoint.
        formats: to look for.
        branch: which to take of a student and a teacher, "student" or "teacher"; a single one is taken anyway.
        key: begin of the path to look below, e.g. "teacher" or "network.encoder".

    Returns:
        Its format and prefix; None if there is no encoder. A ValueError when several remain.
    """
    inside = _below(names, key)
    found = {prefix: each for each in formats for prefix in _prefixes(each, inside)}
    prefix = _of_branch(list(found), branch)
    return None if prefix is None else (found[prefix], prefix)


def find_names(
    names: Iterable[str], expected: Iterable[str], branch: str, key: str | None = None
) -> str | None:
    """The prefix below which most of an encoder's own names are; other arguments as of :func:`find_encoder`."""
    own = set(expected)
    counts = Counter(
        name[:start]
        for name in _below(names, key)
        for start in (0, *(dot.end() for dot in re.finditer(r"\.", name)))
        if name[start:] in own
    )
    most = max(counts.values(), default=0)
    return _of_branch([prefix for prefix, count in counts.items() if count == most], branch)


def translated(tensors: Tensors, source: Format, prefix: str, report: LoadReport) -> Tensors:
    """The tensors below a prefix under this package's names; what is left out is reported."""
    found: Tensors = {}
    for path, tensor in tensors.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or re.match(source.dropped, name):
            report.dropped.append(name)
        elif new_name := _new_name(name, source.rules):
            found[new_name] = tensor
        else:
            report.unexpected.append(name)
    if source is TIMM:
        _take_pooled_norm(found, report)
        _fold_layer_scale(found, report)
    return found


def _below(names: Iterable[str], key: str | None) -> list[str]:
    begin = "" if key is None else key.rstrip(".") + "."
    return [name for name in names if name.startswith(begin)]


def _prefixes(source: Format, names: Sequence[str]) -> Iterator[str]:
    """What stands before a format's keys, wherever there is an anchor with a body beside it."""
    for anchor in source.anchors:
        for name in names:
            prefix = name.removesuffix(anchor)
            is_anchor = f".{name}".endswith(f".{anchor}")
            if is_anchor and any(other.startswith(prefix + source.body) for other in names):
                yield prefix


def _of_branch(prefixes: list[str], branch: str) -> str | None:
    """The one prefix of the branch that is asked for, or the only one there is."""
    found = [each for each in prefixes if _is_teacher(each) == (branch == "teacher")] or prefixes
    if len(found) > 1:
        raise ValueError(
            f"the checkpoint has {len(found)} encoders, below {sorted(found)}: choose one by key="
        )
    return found[0] if found else None


def _is_teacher(prefix: str) -> bool:
    """Whether a prefix names the moving average of two networks."""
    return not _TEACHER_WORDS.isdisjoint(re.split(r"[._]", prefix.lower()))


def _new_name(name: str, rules: Mapping[str, str]) -> str | None:
    for pattern, new in rules.items():
        if match := re.fullmatch(pattern, name):
            return match.expand(new)
    return None


def _take_pooled_norm(tensors: Tensors, report: LoadReport) -> None:
    """Use the norm behind the mean of the tokens where the file has none for each token."""
    for part in ("weight", "bias"):
        pooled = tensors.pop(f"fc_norm.{part}", None)
        if pooled is not None and f"norm.{part}" in tensors:
            report.dropped.append(f"fc_norm.{part}")
        elif pooled is not None:
            tensors[f"norm.{part}"] = pooled
            report.notes.append(
                f"fc_norm.{part}, of the mean of the tokens, is used for each token"
            )


def _fold_layer_scale(tensors: Tensors, report: LoadReport) -> None:
    """Multiply LayerScale's factors into the layer before it, which is exact."""
    scales = [name for name in tensors if ".layer_scale" in name]
    for name in scales:
        scale = tensors.pop(name)
        block, number = name.split(".layer_scale")
        layer = f"{block}.attn.out_proj" if number == "1" else f"{block}.mlp.linear2"
        for key, shape in ((f"{layer}.weight", (-1, 1)), (f"{layer}.bias", (-1,))):
            if key in tensors:
                tensors[key] = tensors[key] * scale.reshape(shape)
    if scales:
        report.notes.append(f"{len(scales)} LayerScale factors are multiplied into the weights")
