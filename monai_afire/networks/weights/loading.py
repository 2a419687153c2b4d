# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading pre-trained weights into an encoder: the one place that owns the order of steps."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from monai_afire.networks.weights.architectures import Architecture, architecture_of, encoders_of
from monai_afire.networks.weights.checkpoint_files import Checkpoint, read_checkpoint
from monai_afire.networks.weights.exact import load_exactly
from monai_afire.networks.weights.filters import Converted, FoundEncoder, find_encoder
from monai_afire.networks.weights.patch_embedding import SourceImages
from monai_afire.networks.weights.released import RELEASED, released_encoder
from monai_afire.networks.weights.report import LoadReport, shorten

__all__ = ["load_encoder_weights"]

logger = logging.getLogger(__name__)


def load_encoder_weights(
    net: nn.Module,
    path_or_state_dict: str | os.PathLike | Mapping[str, Any],
    source: str = "auto",
    key: str | None = None,
    branch: str = "teacher",
    source_normalization: tuple[Any, Any] | None = None,
    source_grid: Sequence[int] | None = None,
    layer_norm_eps: float | None = None,
    strict: bool = False,
    allow_incomplete_blocks: bool = False,
) -> LoadReport:
    r"""
    Load pre-trained weights of almost any ViT or Swin checkpoint into an encoder.

    Understood are PyTorch and safetensors files with the key names of timm (as in DINO, DINOv2, MAE, DeiT, SimMIM, the
    original Swin and the code of AFiRe's authors), of Hugging Face's ViT, ViT-MAE and DINOv2, and of MONAI (as in this
    package's ``model.pt`` and ``checkpoint.pt``), nested and prefixed in any way. Files are read with
    ``weights_only=True``. Nothing in the network changes before all checks have passed. The steps, in this order:

    1. Read the file, find the encoder in it, take the teacher's where there are two, strip the prefix.
    2. Translate the key names; multiply LayerScale into the weights.
    3. Convert the patch embedding to the encoder's channels and normalisation. For gray that is the sum over RGB,
       corrected so that a gray image gives the token that the source network gives for the same image as RGB in its
       own normalisation: exact, not an approximation.
    4. Resample the patch embedding to the patch size (FlexiViT) and interpolate the position embedding on the grid
       (bicubic, antialiased). It replaces a sine-cosine embedding too, and stays frozen if that was. A Swin's tables
       of relative positions are interpolated to the windows in the same way.
    5. Load, and give the layer norms the eps of the source.

    *Class token.* The encoder has none: the checkpoint's, its register tokens and their positions are dropped. All
    other weights are equal, but the patch tokens' features are not, since attention now has one key less.

    *Layer norm.* The eps of timm's ViT is 1e-6, of Hugging Face's 1e-12, of MONAI's (and of every Swin) 1e-5. It is
    not part of a state dict: for the saved result, build the encoder with that ``norm_eps``; else features change by
    about 1e-5.

    *Attention heads.* Their number is not in a ViT's checkpoint; ``ViTEncoder`` must be built with the right one.

    *Encoders of other libraries* (:class:`monai_afire.networks.AdaptedEncoder`) take a file that has every tensor their
    tokens depend on, of its shape, or the name of their model ("hub:...", "timm:..."): nothing is converted, and of the
    arguments only ``key`` and ``branch`` count.

    Args:
        net: a ``ViTEncoder``, ``SwinEncoder`` or adapted encoder, or a network with one as `encoder` (``AFiRe``,
            ``PEAC``, ``ACE``, classifiers). If it has a `teacher_encoder`, that gets the same weights, since a teacher
            starts as the copy of its student.
        path_or_state_dict: the file, "released" for the weights that come with the package
            (:func:`monai_afire.networks.released_encoder`), or a state dict in memory.
        source: "auto", or restrict to "timm", "dino", "mae", "afire" (ours or its authors'), "huggingface" or "monai";
            a Swin has "timm" and "afire".
        key: part of the file to look in, e.g. "state_dict_ema" or "network.encoder"; needed where several encoders
            remain.
        branch: "teacher" (the papers' choice for transfer) or "student", where the checkpoint has both.
        source_normalization: mean and standard deviation that the checkpoint's images were normalised with, one
            value or one per channel each. None: ImageNet's for three-channel weights in timm's or Hugging Face's
            format (but Google's ViTs have ``(0.5, 0.5)``), else the encoder's own.
        source_grid: patches along each axis of the checkpoint's images; needed only where they are not square.
        layer_norm_eps: eps for the layer norms; None for the source's.
        strict: whether any missing or unexpected key is an error.
        allow_incomplete_blocks: whether the checkpoint may lack attention or MLP tensors of some blocks, which keep
            their random values: for an encoder that is deeper than the checkpoint's. Otherwise that is an error, since
            checkpoints with other key names would seem to load.

    Returns:
        What was loaded, missing, unexpected, resized and dropped; also logged.

    Raises:
        TypeError: when the network has no known encoder.
        FileNotFoundError: when there is no such file.
        ValueError: when the file is unreadable or carries code, nothing in it matches, a block is incomplete, a tensor
            does not fit or is not finite, or an argument is out of range.

    Example:
        >>> from monai_afire.networks.nets.vit_encoder import ViTEncoder
        >>> pretrained = ViTEncoder(in_channels=3, img_size=64, hidden_size=24, num_layers=1, num_heads=2)
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> report = load_encoder_weights(encoder, {"model": pretrained.state_dict()})
        >>> len(report.loaded), report.missing, report.resized
        (19, [], ['patch_embedding.patch_embeddings.weight (24, 3, 16, 16) -> (24, 1, 8, 8)'])
    """
    if branch not in ("teacher", "student"):
        raise ValueError(f"branch must be 'teacher' or 'student', got {branch!r}")
    encoders = encoders_of(net)
    encoder = encoders[0]
    architecture = architecture_of(encoder)
    if architecture is None:
        return load_exactly(encoders, path_or_state_dict, key, branch)
    if source not in architecture.sources:
        raise ValueError(f"source must be one of {list(architecture.sources)}, got {source!r}")

    checkpoint = read_checkpoint(released_encoder() if path_or_state_dict == RELEASED else path_or_state_dict)
    found = find_encoder(checkpoint.tensors, architecture.sources[source], branch, key)
    if found is None:
        raise ValueError(_nothing_matched(checkpoint, encoder, source))
    converted = found.filter.convert(found.state)
    _check_finite(converted.tensors, checkpoint.name)
    shapes = {name: tuple(tensor.shape) for name, tensor in converted.tensors.items()}
    images = _source_images(checkpoint.header, encoder, source_normalization, source_grid)
    architecture.fit(converted, found.filter, encoder, images)
    _fill_absent_biases(converted, encoder)
    report = _report(checkpoint, found, converted, encoder, architecture, shapes)
    if not allow_incomplete_blocks:
        _check_blocks(report)
    if strict and (report.missing or report.unexpected):
        raise ValueError(f"the checkpoint does not fit exactly, and strict is set:\n{report}")

    for target in encoders:
        target.load_state_dict({name: converted.tensors[name] for name in report.loaded}, strict=False)
    if layer_norm_eps is None:
        layer_norm_eps = checkpoint.header.get("layer_norm_eps", converted.layer_norm_eps)
    _set_layer_norm_eps(encoders, layer_norm_eps, report)
    incomplete = bool(report.missing or report.unexpected)
    logger.log(logging.WARNING if incomplete else logging.INFO, str(report))
    return report


def _source_images(
    header: dict[str, Any], encoder: Any, normalization: tuple[Any, Any] | None, grid: Sequence[int] | None
) -> SourceImages:
    """The user's word before the file's."""
    heads, expected = header.get("num_heads"), encoder.blocks[0].attn.num_heads if header else None
    if heads != expected:
        raise ValueError(
            f"the file's encoder has {heads} attention heads, the network's {expected}: build it with num_heads={heads}"
        )
    if header:
        normalization = normalization or (header["mean"], header["std"])
        grid = grid or [size // patch for size, patch in zip(header["img_size"], header["patch_size"], strict=True)]
    return SourceImages(normalization, None if grid is None else tuple(grid), heads_are_known=bool(header))


def _nothing_matched(checkpoint: Checkpoint, encoder: nn.Module, source: str) -> str:
    return (
        f"no encoder weights found in {checkpoint.name} (source={source!r}). Its keys: "
        f"{shorten(list(checkpoint.tensors))}. The encoder's: {shorten(list(encoder.state_dict()))}. Is it a "
        f"checkpoint of this architecture ({type(encoder).__name__}), with its patch embedding? Rename other names to "
        "timm's or MONAI's."
    )


def _check_blocks(report: LoadReport) -> None:
    absent = [name for name in report.missing if re.search(r"\bblocks\.\d+\.(attn|mlp)\.", name)]
    if absent:
        raise ValueError(
            f"{report.file} lacks {len(absent)} attention and MLP tensors of the encoder's blocks ({shorten(absent)}): "
            "these would keep their random values. If the keys that mean nothing to the encoder "
            f"({shorten(report.unexpected) or 'none'}) are theirs, rename them to timm's or MONAI's names; if the "
            "checkpoint has fewer blocks, build an encoder of its depth, or set allow_incomplete_blocks=True"
        )


def _check_finite(tensors: Mapping[str, torch.Tensor], file: str) -> None:
    bad = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if bad:
        raise ValueError(
            f"{file} has NaN or infinite values in {len(bad)} tensors ({shorten(bad)}): its training diverged or the "
            "file is damaged; take an earlier checkpoint"
        )


def _fill_absent_biases(converted: Converted, encoder: nn.Module) -> None:
    """A layer that has no bias in the source has a bias of zero in the encoder."""
    filled = []
    for name, tensor in encoder.state_dict().items():
        weight = name.removesuffix(".bias") + ".weight"
        if name.endswith(".bias") and name not in converted.tensors and weight in converted.tensors:
            converted.tensors[name] = torch.zeros(tensor.shape)
            filled.append(name)
    if filled:
        converted.notes.append(f"{len(filled)} biases that the source does not have are zero: {shorten(filled)}")


def _report(
    checkpoint: Checkpoint,
    found: FoundEncoder,
    converted: Converted,
    encoder: nn.Module,
    architecture: Architecture,
    shapes: Mapping[str, tuple[int, ...]],
) -> LoadReport:
    """Compare names and shapes; a shape that still differs is an error."""
    expected = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    tensors = converted.tensors
    wrong = [name for name in tensors if name in expected and tuple(tensors[name].shape) != expected[name]]
    if wrong:
        raise ValueError(
            f"{len(wrong)} tensors of {checkpoint.name} do not fit the encoder, first {wrong[0]}: {shapes[wrong[0]]} "
            f"in the file, {expected[wrong[0]]} in the encoder; build it with the checkpoint's settings: "
            f"{architecture.settings(tensors)}, and the number of heads of that model"
        )
    return LoadReport(
        file=checkpoint.name,
        layout=found.filter.name,
        prefix=found.prefix,
        loaded=[name for name in expected if name in tensors],
        missing=[name for name in expected if name not in tensors and architecture.unused not in name],
        unexpected=converted.unexpected + [name for name in tensors if name not in expected],
        resized=converted.resized,
        dropped=converted.dropped + found.others,
        notes=converted.notes,
    )


def _set_layer_norm_eps(encoders: list[nn.Module], eps: float | None, report: LoadReport) -> None:
    layers = [layer for encoder in encoders for layer in encoder.modules() if isinstance(layer, nn.LayerNorm)]
    old = sorted({layer.eps for layer in layers if eps is not None and layer.eps != eps})
    if eps is None or not old:
        return
    for layer in layers:
        layer.eps = eps
    report.notes.append(f"eps of the layer norms set from {', '.join(map(str, old))} to {eps}; no state dict keeps it")
