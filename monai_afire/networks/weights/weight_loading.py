# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading pre-trained weights into an encoder: find, translate, fit, check, load, report."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from monai.utils import ensure_tuple, ensure_tuple_rep
from torch import nn

from monai_afire.networks.blocks.position_embedding import resize_position_embedding
from monai_afire.networks.nets.encoders.adapted_encoder import AdaptedEncoder
from monai_afire.networks.nets.encoders.encoder_building import (
    build_encoder,
    is_encoder_name,
    missing_parts,
)
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.checkpoint_files import Checkpoint, read_checkpoint
from monai_afire.networks.weights.finding import find_weights
from monai_afire.networks.weights.formats import (
    SWIN_FORMATS,
    VIT_FORMATS,
    Conversion,
    Format,
    find_encoder,
    same_names,
)
from monai_afire.networks.weights.resizing import fit_swin, fit_vit
from monai_afire.utils.text import first_few

__all__ = ["LoadReport", "check_branch", "encoders_of", "load_encoder_weights"]

logger = logging.getLogger(__name__)

# tensors of a ViT or a Swin without which nothing else is of use
_NEEDED = r"\bblocks\.\d+\.(attn|mlp)\.|patch_embeddings\."
_BLOCK = re.compile(r"(?:.+?\.)?(?:blocks|layers?)\.\d+(?:\.blocks\.\d+)?(?=\.)")


@dataclass
class LoadReport:
    """
    The outcome of ``load_encoder_weights``; ``print`` it for a summary.

    Attributes:
        file: where the weights came from.
        layout: whose key names the checkpoint has, e.g. "timm".
        prefix: what preceded these names in the file, e.g. "teacher.backbone.".
        loaded: the encoder's keys that were overwritten.
        missing: the encoder's keys that the checkpoint does not have; they keep their values.
        unexpected: the checkpoint's keys (without prefix) that mean nothing to the encoder.
        resized: the loaded keys that were resampled or had other channels, with both sizes.
        dropped: the checkpoint's keys that are left out on purpose: class token, heads, decoders, other branches.
        notes: assumptions and conversions that are worth knowing.

    Example:
        >>> print(LoadReport(file="dino.pth", layout="timm", loaded=["norm.weight"], missing=["norm.bias"]))
        encoder weights from dino.pth (timm names)
          loaded     1: norm.weight
          missing    1: norm.bias
          unexpected 0
          resized    0
          dropped    0
    """

    file: str
    layout: str
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


def load_encoder_weights(
    net: nn.Module,
    path_or_state_dict: str | os.PathLike | Mapping[str, Any],
    key: str | None = None,
    branch: str = "teacher",
    source_normalization: tuple[Any, Any] | None = None,
    source_grid: Sequence[int] | None = None,
    strict: bool = False,
) -> LoadReport:
    r"""
    Load pre-trained weights into an encoder.

    Understood are PyTorch and safetensors files with this package's key names (``model.pt``, ``checkpoint.pt``) and,
    for a ``ViTEncoder``, MONAI's and timm's (as in DINO, DINOv2, MAE, DeiT and the code of AFiRe's authors), nested and
    prefixed in any way. Other networks of timm and those of Hugging Face come in as themselves
    (:class:`monai_afire.networks.TimmEncoder`, :class:`monai_afire.networks.HuggingFaceEncoder`). Files are read with
    ``weights_only=True``. Nothing in the network changes before all checks have passed. The steps, in this order:

    1. Read the file, find the encoder in it, take the teacher's where there are two, strip the prefix.
    2. Translate the key names; multiply LayerScale into the weights.
    3. Convert the patch embedding to the encoder's channels and normalization. For gray that is the sum over RGB,
       corrected so that a gray image gives the token that the source network gives for the same image as RGB in its
       own normalization: exact, not an approximation.
    4. Resample the patch embedding to the patch size (FlexiViT) and interpolate the position embedding on the grid
       (bicubic, antialiased). It replaces a sine-cosine embedding too, and stays frozen if that was. A Swin's tables
       of relative positions are interpolated to the windows in the same way.
    5. Load, and give the layer norms the eps of the source.

    *Class token.* The encoder has none: the checkpoint's, its register tokens and their positions are dropped. All
    other weights are equal, but the patch tokens' features are not, since attention now has one key less.

    *Layer norm.* The eps of timm's ViT is 1e-6, of MONAI's (and of every Swin) 1e-5. It is not part of a state dict:
    for the saved result, build the encoder with that ``norm_eps``; else features change by about 1e-5.

    *Attention heads.* Their number is not in a ViT's checkpoint; ``ViTEncoder`` must be built with the right one.

    *Encoders of other libraries* (``AdaptedEncoder``) take a file that has every tensor their
    tokens depend on, or the name of their model ("hub:...", "timm:..."). For a model of timm, timm translates the names
    of published files and resizes their position embeddings; ``source_normalization`` and ``source_grid`` do not
    count.

    Args:
        net: a ``ViTEncoder``, ``SwinEncoder`` or adapted encoder, or a network with one as `encoder` (``AFiRe``,
            ``PEAC``, ``ACE``, classifiers). If it has a `teacher_encoder`, that gets the same weights, since a teacher
            starts as the copy of its student.
        path_or_state_dict: the file, a word of :func:`monai_afire.networks.find_weights` such as "released", or a
            state dict in memory.
        key: part of the file to look in, e.g. "state_dict_ema" or "network.encoder"; needed where several encoders
            remain.
        branch: "teacher" (the papers' choice for transfer) or "student", where the checkpoint has both.
        source_normalization: mean and standard deviation that the checkpoint's images were normalized with, one
            value or one per channel each. None: ImageNet's for three-channel weights in timm's format (but
            Google's ViTs have ``(0.5, 0.5)``), else the encoder's own.
        source_grid: patches along each axis of the checkpoint's images; needed only where they are not square, and the
            file does not state its image size, as files of this package do.
        strict: whether any missing or unexpected key is an error.

    Returns:
        What was loaded, missing, unexpected, resized and dropped; also logged.

    Raises:
        TypeError: when the network has no known encoder.
        FileNotFoundError: when there is no such file.
        ValueError: when the file is unreadable or carries code, nothing in it matches, a block is incomplete, a tensor
            does not fit or is not finite, or an argument is out of range.

    Example:
        >>> pretrained = ViTEncoder(in_channels=3, img_size=64, hidden_size=24, num_layers=1, num_heads=2)
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> report = load_encoder_weights(encoder, {"model": pretrained.state_dict()})
        >>> len(report.loaded), report.missing, report.resized
        (19, [], ['patch_embedding.patch_embeddings.weight (24, 3, 16, 16) -> (24, 1, 8, 8)'])
    """
    check_branch(branch)
    encoders = encoders_of(net)
    encoder: Any = encoders[0]
    targets = [each.model if isinstance(each, AdaptedEncoder) else each for each in encoders]
    checkpoint = _read(path_or_state_dict, encoder)
    if isinstance(encoder, (ViTEncoder, SwinEncoder)):
        conversion = _convert(encoder, checkpoint, key, branch, source_normalization, source_grid)
    else:
        conversion = _convert_exactly(encoder, targets[0], checkpoint, key, branch)
    report = _compare(conversion, targets[0], checkpoint.name, getattr(encoder, "unused", ()))
    _refuse_parts_of_a_network(conversion, targets[0], report)
    if strict and (report.missing or report.unexpected):
        raise ValueError(f"the checkpoint does not fit exactly, and strict is set:\n{report}")
    for target in targets:
        found = {name: conversion.tensors[name] for name in report.loaded}
        target.load_state_dict(found, strict=False)
    _set_layer_norm_eps(encoders, conversion.layer_norm_eps, report)
    incomplete = bool(report.missing or report.unexpected)
    logger.log(logging.WARNING if incomplete else logging.INFO, str(report))
    return report


def check_branch(branch: str) -> None:
    """Refuse what names neither of two encoders."""
    if branch not in ("teacher", "student"):
        raise ValueError(f"branch must be 'teacher' or 'student', got {branch!r}")


def encoders_of(net: nn.Module) -> list[nn.Module]:
    """
    The encoder(s) of a network: itself, or its `encoder` and, where there is one, its `teacher_encoder`.

    Args:
        net: an encoder or a network that has one.

    Returns:
        The encoder, then the teacher.

    Raises:
        TypeError: when there is no known encoder.

    Example:
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> encoders_of(nn.ModuleDict({"encoder": encoder})) == encoders_of(encoder)
        True
    """
    if not missing_parts(net):
        return [net]
    parts = dict(net.named_children())
    if "encoder" not in parts or missing_parts(parts["encoder"]):
        raise TypeError(
            f"{type(net).__name__} is no encoder and has none (its parts: {', '.join(parts) or 'none'}): pass the "
            "network as it is before compilation or distribution"
        )
    return [parts[name] for name in ("encoder", "teacher_encoder") if name in parts]


def _read(source: Any, encoder: Any) -> Checkpoint:
    """A state dict in memory, a file, or a model of another library."""
    if isinstance(source, Mapping):
        return read_checkpoint(source)
    if is_encoder_name(source):
        return Checkpoint(source, _floating(build_encoder(source, encoder)))
    return read_checkpoint(str(find_weights(source)))


def _convert(
    encoder: Any,
    checkpoint: Checkpoint,
    key: str | None,
    branch: str,
    normalization: tuple[Any, Any] | None,
    grid: Sequence[int] | None,
) -> Conversion:
    """The ViT or Swin in a checkpoint under this package's names, in the encoder's shapes."""
    is_vit = isinstance(encoder, ViTEncoder)
    formats = VIT_FORMATS if is_vit else SWIN_FORMATS
    conversion = find_encoder(checkpoint.tensors, formats, branch, key)
    if conversion is None:
        raise _nothing_found(checkpoint, encoder.state_dict())
    _take_stated(conversion, checkpoint, encoder)
    conversion.normalization = normalization or conversion.normalization
    conversion.grid = conversion.grid if grid is None else tuple(grid)
    fit_vit(conversion, encoder) if is_vit else fit_swin(conversion, encoder)
    _fill_absent_biases(conversion, encoder)
    return conversion


def _nothing_found(checkpoint: Checkpoint, expected: Mapping[str, Any]) -> ValueError:
    return ValueError(
        f"no encoder weights found in {checkpoint.name}. Its keys: {first_few(checkpoint.tensors)}. The encoder's: "
        f"{first_few(expected)}. A network of another library comes in as itself: encoder hub:FOLDER (Hugging Face) or "
        "timm:NAME."
    )


def _take_stated(conversion: Conversion, checkpoint: Checkpoint, encoder: Any) -> None:
    """Note what the file says of its encoder, which tensors do not show."""
    stated = checkpoint.arguments
    conversion.grid = _stated_grid(stated, encoder)
    heads = stated.get("num_heads")
    if isinstance(heads, int):
        own = encoder.blocks[0].attn.num_heads
        if heads != own:
            raise ValueError(
                f"{checkpoint.name} has {heads} attention heads, the encoder {own}: build it with num_heads={heads}"
            )
        conversion.num_heads = heads
    if {"mean", "std"} <= stated.keys():
        # as the encoder's buffers hold them: 0.449 itself is another number
        mean, std = (torch.tensor(ensure_tuple(stated[name])) for name in ("mean", "std"))
        conversion.normalization = mean, std
    conversion.layer_norm_eps = stated.get("norm_eps", conversion.layer_norm_eps)


def _stated_grid(stated: Mapping[str, Any], encoder: Any) -> tuple[int, ...] | None:
    """Patches along each axis of the images that the file is for; None where it does not say."""
    if not stated.get("img_size"):
        return None
    axes = len(encoder.grid_size)
    img_size = ensure_tuple_rep(stated["img_size"], axes)
    patch_size = ensure_tuple_rep(stated.get("patch_size") or encoder.patch_size, axes)
    return tuple(size // patch for size, patch in zip(img_size, patch_size, strict=True))


def _convert_exactly(
    encoder: Any, target: nn.Module, checkpoint: Checkpoint, key: str | None, branch: str
) -> Conversion:
    """The tensors in a checkpoint that have a network's own names, or names that its library translates."""
    expected = _floating(target)
    prefix = same_names(checkpoint.tensors, expected, branch, key)
    if prefix is None:
        raise _nothing_found(checkpoint, expected)
    inside = {
        name.removeprefix(prefix): each
        for name, each in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
    translated = inside
    if isinstance(encoder, AdaptedEncoder):
        _fit_stated_positions(inside, checkpoint.arguments, encoder)
        translated = encoder.own_tensors(inside, checkpoint.name)
    found = {name: translated[name] for name in expected if name in translated}
    conversion = Conversion(Format(type(target).__name__), prefix, found)
    used = {id(each) for each in found.values()}  # under another name, too
    for name, tensor in inside.items():
        if name not in found and id(tensor) not in used:
            conversion.dropped.append(name)
        elif name in found and found[name].shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)} -> {tuple(found[name].shape)}"
            conversion.resized.append(f"{name} {shapes}")
    return conversion


def _fit_stated_positions(
    tensors: dict[str, torch.Tensor], stated: Mapping[str, Any], encoder: Any
) -> None:
    """Resize positions of an encoder whose image size the file states, which its library would take for a square."""
    grid = _stated_grid(stated, encoder)
    if grid is None or grid == encoder.grid_size:
        return
    for name, positions in tensors.items():
        if positions.ndim != 3 or not re.search(r"(^|\.)(pos_embed|position_embeddings)$", name):
            continue
        skip = positions.shape[1] - math.prod(grid)
        if skip >= 0:
            resized = resize_position_embedding(positions[:, skip:], grid, encoder.grid_size)
            tensors[name] = torch.cat([positions[:, :skip], resized], dim=1)


def _floating(module: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()
    }


def _fill_absent_biases(conversion: Conversion, encoder: nn.Module) -> None:
    """A layer that has no bias in the source has a bias of zero in the encoder."""
    tensors, filled = conversion.tensors, []
    for name, tensor in encoder.state_dict().items():
        layer, _, part = name.rpartition(".")
        if part == "bias" and name not in tensors and f"{layer}.weight" in tensors:
            tensors[name] = torch.zeros(tensor.shape)
            filled.append(name)
    if filled:
        note = f"{len(filled)} biases that the source does not have are zero: {first_few(filled)}"
        conversion.notes.append(note)


def _compare(
    conversion: Conversion, target: nn.Module, file: str, unused: Sequence[str]
) -> LoadReport:
    """What is loaded and what not; a tensor that is not finite or of another shape is an error."""
    tensors, own = conversion.tensors, _floating(target)
    expected = {name: tuple(tensor.shape) for name, tensor in own.items()}
    found = {name: tuple(tensors[name].shape) for name in expected if name in tensors}
    if wrong := [name for name, shape in found.items() if shape != expected[name]]:
        first = f"{wrong[0]} is {found[wrong[0]]} in the file, {expected[wrong[0]]} in the encoder"
        raise ValueError(
            f"{len(wrong)} tensors of {file} do not fit the encoder: {first}; build it with the file's sizes "
            f"({_sizes_of(tensors)})"
        )
    if bad := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise ValueError(
            f"{file} has NaN or infinite values in {len(bad)} tensors ({first_few(bad)}): take an earlier checkpoint"
        )
    # never used, so their absence is no news
    needless = {name for name in expected if "norm_cross_attn" in name}.union(unused)
    return LoadReport(
        file,
        conversion.source.name,
        conversion.prefix,
        loaded=list(found),
        missing=[name for name in expected if name not in tensors and name not in needless],
        unexpected=conversion.unexpected + [name for name in tensors if name not in expected],
        resized=conversion.resized,
        dropped=conversion.dropped,
        notes=conversion.notes,
    )


def _sizes_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Width and depth of a transformer in words."""
    norms = [tensor.shape[0] for name, tensor in tensors.items() if name == "norm.weight"]
    blocks = {match[0] for name in tensors if (match := _BLOCK.match(name))}
    width = f"width {norms[0]}, " if norms else ""
    return f"{width}{len(blocks)} blocks"


def _refuse_parts_of_a_network(
    conversion: Conversion, target: nn.Module, report: LoadReport
) -> None:
    """Refuse a file that lacks what the tokens depend on, or that is of a deeper network."""
    needed = _NEEDED if isinstance(target, (ViTEncoder, SwinEncoder)) else ""
    if absent := [name for name in report.missing if re.search(needed, name)]:
        raise ValueError(
            f"{report.file} lacks {len(absent)} of the {len(report.loaded) + len(report.missing)} tensors of this "
            f"encoder ({first_few(absent)}), which would keep their values; it has "
            f"{first_few(report.unexpected) or 'no others'} instead. Take a checkpoint of this model and depth; files "
            "of Hugging Face are read as hub:FOLDER, of EVA-X with the encoder timm:eva_x_small_patch16"
        )
    if surplus := _surplus_blocks(conversion.tensors, target):
        raise ValueError(
            f"{report.file} has {len(surplus)} blocks that the encoder lacks ({first_few(surplus)}), and a network cut "
            f"short gives other tokens: build an encoder of its depth ({_sizes_of(conversion.tensors)})"
        )


def _surplus_blocks(tensors: Mapping[str, torch.Tensor], target: nn.Module) -> list[str]:
    """Names of blocks of the file for which the encoder has a list of blocks, but a shorter one."""
    own = {match[0] for name in target.state_dict() if (match := _BLOCK.match(name))}
    lists = {name.rpartition(".")[0] for name in own}
    found = {match[0] for name in tensors if (match := _BLOCK.match(name))}
    return sorted(name for name in found - own if name.rpartition(".")[0] in lists)


def _set_layer_norm_eps(encoders: list[nn.Module], eps: float | None, report: LoadReport) -> None:
    if eps is None:
        return
    old = set()
    for layer in nn.ModuleList(encoders).modules():
        if isinstance(layer, nn.LayerNorm) and layer.eps != eps:
            old.add(layer.eps)
            layer.eps = eps
    if old:
        former = ", ".join(map(str, sorted(old)))
        report.notes.append(
            f"eps of the layer norms set from {former} to {eps}; no state dict keeps it"
        )
