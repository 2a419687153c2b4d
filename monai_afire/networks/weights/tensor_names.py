# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where an encoder lies in a checkpoint, and this package's names for the tensors of timm's and MONAI's ViT."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

import torch

from monai_afire.networks.weights.report import LoadReport

__all__ = ["find_prefix", "leave_out", "vit_name"]

Tensors = dict[str, torch.Tensor]

EMBEDDING = "patch_embedding.patch_embeddings"
POSITIONS = "patch_embedding.position_embeddings"
TIMM = "timm"  # layout of the files of timm, DINO, MAE
_TEACHER_WORDS = {"teacher", "ema", "momentum", "target"}

# whole names of timm and, where it differs from this package, of MONAI
_OF_VIT = {
    r"patch_embed\.proj\.(weight|bias)": rf"{EMBEDDING}.\1",
    # a perceptron's linear layer stands behind a reshaping layer
    r"patch_embedding\.patch_embeddings\.1\.(weight|bias)": rf"{EMBEDDING}.\1",
    r"pos_embed": POSITIONS,
    r"(blocks\.\d+)\.attn\.proj\.(weight|bias)": r"\1.attn.out_proj.\2",
    r"(blocks\.\d+)\.mlp\.fc([12])\.(weight|bias)": r"\1.mlp.linear\2.\3",
}
# begins of names that mean nothing to an encoder of patches
_LEFT_OUT = (
    r"(cls|dist|reg|mask)_token$|register_tokens$|fc_norm\.|head|classification_head\.|decoder_|pre_logits"
    r"|conv3d_transpose|blocks\.\d+\.cross_attn\.|layers\.\d+\.blocks\.\d+\.attn_mask"
)


def vit_name(name: str) -> str:
    """The name of a ViT's tensor in this package; other names as they are."""
    for pattern, new in _OF_VIT.items():
        if match := re.fullmatch(pattern, name):
            return match.expand(new)
    return name


def find_prefix(
    names: Iterable[str],
    expected: Iterable[str],
    branch: str,
    rename: Callable[[str], str] = str,
) -> str | None:
    """
    The prefix ("state_dict.", "teacher.backbone.") below which a checkpoint has most of an encoder's tensors.

    Args:
        names: keys of the checkpoint.
        expected: names of the encoder's tensors.
        branch: which to take of a student and a teacher, "student" or "teacher"; a single one is taken anyway.
        rename: the encoder's name for one of the checkpoint.

    Returns:
        The prefix; None without any of the tensors. A ValueError when several prefixes remain.
    """
    own = set(expected)
    counts = Counter(
        name[:start]
        for name in names
        for start in (0, *(dot.end() for dot in re.finditer(r"\.", name)))
        if rename(name[start:]) in own
    )
    most = [prefix for prefix, count in counts.items() if count == max(counts.values())]
    found = [each for each in most if _is_teacher(each) == (branch == "teacher")] or most
    if len(found) > 1:
        raise ValueError(
            f"the checkpoint has {len(found)} encoders, below {sorted(found)}: give one of them as a state dict"
        )
    return found[0] if found else None


def _is_teacher(prefix: str) -> bool:
    """Whether a prefix names the moving average of two networks."""
    return not _TEACHER_WORDS.isdisjoint(re.split(r"[._]", prefix.lower()))


def leave_out(tensors: Tensors, report: LoadReport) -> None:
    """Remove tokens, heads and decoders."""
    report.dropped = [name for name in tensors if re.match(_LEFT_OUT, name)]
    for name in report.dropped:
        del tensors[name]
