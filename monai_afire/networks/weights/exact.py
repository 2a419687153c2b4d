# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights of encoders that are not this package's own: name by name and shape by shape, or not at all."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from monai_afire.networks.nets.encoders.adapted_encoder import AdaptedEncoder
from monai_afire.networks.nets.encoders.build import build_encoder, is_encoder_name
from monai_afire.networks.weights.checkpoint_files import Checkpoint, read_checkpoint
from monai_afire.networks.weights.report import LoadReport, shorten

__all__ = ["load_exactly"]

logger = logging.getLogger(__name__)


def load_exactly(
    encoders: Sequence[nn.Module],
    path_or_state_dict: str | os.PathLike | Mapping[str, Any],
    key: str | None = None,
    branch: str = "teacher",
) -> LoadReport:
    """
    Load weights into adapted encoders from a file that has all of them, with the names of this package or the library.

    Args:
        encoders: of one architecture; all get the same weights.
        path_or_state_dict: a file of this package or of the library, a state dict, or the name of the model itself
            ("hub:...", "timm:..."), whose weights are then taken.
        key: part of the file to look in.
        branch: "teacher" or "student", where the file has both.

    Returns:
        What was loaded; also logged.

    Raises:
        ValueError: when no part of the file has every tensor that the tokens depend on, of its shape.

    Example:
        >>> from monai.networks.nets import ViT
        >>> from monai_afire.networks import MONAIEncoder
        >>> vit = ViT(1, (32, 32), (8, 8), hidden_size=24, mlp_dim=48, num_layers=1, num_heads=2, spatial_dims=2)
        >>> report = load_exactly([MONAIEncoder(vit)], {"model": vit.state_dict()})
        >>> report.prefix, report.missing
        ('model.', [])
    """
    encoder: Any = encoders[0]
    if is_encoder_name(path_or_state_dict):
        source = build_encoder(str(path_or_state_dict), encoder)
        checkpoint = Checkpoint(str(path_or_state_dict), dict(_floating(source)), {})
    else:
        checkpoint = read_checkpoint(path_or_state_dict)
    outer = "model." if isinstance(encoder, AdaptedEncoder) else ""
    expected = {name.removeprefix(outer): tensor for name, tensor in _floating(encoder)}
    prefix = _prefix(checkpoint, expected, key, branch)
    found = {name: checkpoint.tensors[prefix + name] for name in expected if prefix + name in checkpoint.tensors}
    missing = [name for name in expected if name not in found]
    needed = [name for name in missing if name not in getattr(encoder, "unused", ())]
    wrong = [name for name, tensor in found.items() if tensor.shape != expected[name].shape]
    bad = [name for name, tensor in found.items() if not tensor.isfinite().all()]
    _refuse(checkpoint.name, prefix, needed, wrong, bad, found, expected)
    for target in encoders:
        target.load_state_dict({outer + name: tensor for name, tensor in found.items()}, strict=False)
    inside = [name.removeprefix(prefix) for name in checkpoint.tensors if name.startswith(prefix)]
    report = LoadReport(
        file=checkpoint.name,
        layout=type(getattr(encoder, "model", encoder)).__name__,
        prefix=prefix,
        loaded=list(found),
        missing=missing,
        dropped=[name for name in inside if name not in expected],
    )
    logger.info(str(report))
    return report


def _floating(encoder: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor) for name, tensor in encoder.state_dict().items() if tensor.is_floating_point()]


def _prefix(checkpoint: Checkpoint, expected: Mapping[str, torch.Tensor], key: str | None, branch: str) -> str:
    """What precedes the encoder's names in the file: where most of them are, in the branch that is asked for."""
    counts: dict[str, int] = {}
    for name in checkpoint.tensors:
        parts = name.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in expected:
                prefix = "".join(f"{part}." for part in parts[:start])
                counts[prefix] = counts.get(prefix, 0) + 1
    within = {prefix: n for prefix, n in counts.items() if key is None or prefix.startswith(f"{key}.")}
    if not within:
        raise ValueError(
            f"no weights of this encoder found in {checkpoint.name}. Its keys: {shorten(list(checkpoint.tensors))}. "
            f"The encoder's: {shorten(list(expected))}. Is it a checkpoint of this model?"
        )
    most = [prefix for prefix, n in within.items() if n == max(within.values())]
    of_branch = [prefix for prefix in most if ("teacher" in prefix) == (branch == "teacher")] or most
    if len(of_branch) > 1:
        raise ValueError(f"{checkpoint.name} has several encoders, {', '.join(sorted(of_branch))}: name one as key")
    return of_branch[0]


def _refuse(
    file: str,
    prefix: str,
    needed: Sequence[str],
    wrong: Sequence[str],
    bad: Sequence[str],
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
) -> None:
    where = f"{file} (names behind {prefix!r})" if prefix else file
    if needed:
        raise ValueError(
            f"{where} lacks {len(needed)} of the {len(expected)} tensors of this encoder ({shorten(needed)}), which "
            "would keep their values: take a checkpoint of this very model; files of Hugging Face, whose names "
            "transformers translates, are read as hub:FOLDER"
        )
    if wrong:
        first = wrong[0]
        raise ValueError(
            f"{len(wrong)} tensors of {where} do not fit the encoder, first {first}: {tuple(found[first].shape)} in "
            f"the file, {tuple(expected[first].shape)} in the encoder; build it with the checkpoint's settings and "
            "image size"
        )
    if bad:
        raise ValueError(f"{where} has NaN or infinite values in {len(bad)} tensors ({shorten(bad)})")
