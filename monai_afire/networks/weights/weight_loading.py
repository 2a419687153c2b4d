# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading pre-trained weights into an encoder: find, translate, fit, check, load."""

from __future__ import annotations

import logging
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
from monai_afire.networks.weights.filters import (
    CheckpointFilter,
    Conversion,
    begin_of,
    convert_names,
    find_encoder,
    is_teacher,
)
from monai_afire.networks.weights.finding import find_weights
from monai_afire.networks.weights.report import LoadReport
from monai_afire.networks.weights.swin import SWIN_FORMATS, fit_swin, swin_arguments
from monai_afire.networks.weights.vit import VIT_FORMATS, fit_vit, vit_arguments
from monai_afire.utils.text import first_few

__all__ = ["encoders_of", "load_encoder_weights"]

logger = logging.getLogger(__name__)

# tensors of a ViT or a Swin without which nothing else is of use
_NEEDED = r"\bblocks\.\d+\.(attn|mlp)\.|patch_embeddings\."
_BLOCK = re.compile(r"(?:.+?\.)?(?:blocks|layers?)\.\d+(?:\.blocks\.\d+)?(?=\.)")

# formats that are looked for; the fit of tensors to an encoder; arguments of an encoder that tensors fit
ARCHITECTURES: dict[type[nn.Module], tuple[Any, Any, Any]] = {
    ViTEncoder: (VIT_FORMATS, fit_vit, vit_arguments),
    SwinEncoder: (SWIN_FORMATS, fit_swin, swin_arguments),
}


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
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> pretrained = ViTEncoder(in_channels=3, img_size=64, hidden_size=24, num_layers=1, num_heads=2)
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> report = load_encoder_weights(encoder, {"model": pretrained.state_dict()})
        >>> len(report.loaded), report.missing, report.resized
        (19, [], ['patch_embedding.patch_embeddings.weight (24, 3, 16, 16) -> (24, 1, 8, 8)'])
    """
    check_branch(branch)
    if not isinstance(path_or_state_dict, Mapping) and not is_encoder_name(path_or_state_dict):
        path_or_state_dict = str(find_weights(path_or_state_dict))
    encoders = targets = encoders_of(net)
    encoder: Any = encoders[0]
    rules = next(
        (rules for kind, rules in ARCHITECTURES.items() if isinstance(encoder, kind)), None
    )
    if rules is None:
        targets = [each.model if isinstance(each, AdaptedEncoder) else each for each in encoders]
        conversion = _convert_exactly(encoder, targets[0], path_or_state_dict, key, branch)
        needed, arguments = "", {}
    else:
        formats, fit, arguments_of = rules
        conversion = _convert(encoder, read_checkpoint(path_or_state_dict), formats, key, branch)
        conversion.normalization = source_normalization or conversion.normalization
        conversion.grid = conversion.grid if source_grid is None else tuple(source_grid)
        fit(conversion, encoder)
        _fill_absent_biases(conversion, encoder)
        needed, arguments = _NEEDED, arguments_of(conversion.tensors)
    report = _compare(conversion, targets[0], getattr(encoder, "unused", ()), arguments)
    _refuse_absent(report, needed)
    _refuse_surplus(report.file, _surplus_blocks(conversion.tensors, targets[0]), arguments)
    if strict and (report.missing or report.unexpected):
        raise ValueError(f"the checkpoint does not fit exactly, and strict is set:\n{report}")
    for target in targets:
        target.load_state_dict(
            {name: conversion.tensors[name] for name in report.loaded}, strict=False
        )
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
        names = f"its parts: {', '.join(parts) or 'none'}"
        found = f"{type(net).__name__} is no ViTEncoder, SwinEncoder or adapted encoder and has none ({names})"
        raise TypeError(f"{found}: pass the network as it is before compilation or distribution")
    return [parts[name] for name in ("encoder", "teacher_encoder") if name in parts]


def _convert(
    encoder: Any,
    checkpoint: Checkpoint,
    formats: Sequence[CheckpointFilter],
    key: str | None,
    branch: str,
) -> Conversion:
    """The encoder in a checkpoint under this package's names, with what its file says of it."""
    found = find_encoder(checkpoint.tensors, formats, branch, key)
    if found is None:
        keys = f"Its keys: {first_few(checkpoint.tensors)}. The encoder's: {first_few(encoder.state_dict())}"
        names = " or ".join(each.name for each in formats)
        raise ValueError(
            f"no encoder weights found in {checkpoint.name} by the names of {names}. {keys}. A network of another "
            "library comes in as itself: --encoder hub:FOLDER (Hugging Face) or --encoder timm:NAME."
        )
    conversion = convert_names(checkpoint, *found)
    _take_stated(conversion, checkpoint.arguments, encoder)
    return conversion


def _take_stated(conversion: Conversion, stated: Mapping[str, Any], encoder: Any) -> None:
    """Note what the file says of its encoder, which tensors do not show."""
    if stated.get("patch_size"):
        patch_size = ensure_tuple_rep(stated["patch_size"], len(encoder.grid_size))
        conversion.grid = _stated_grid(stated, patch_size)
    heads = stated.get("num_heads")
    if isinstance(heads, int):
        own = encoder.blocks[0].attn.num_heads
        if heads != own:
            raise ValueError(
                f"it has {heads} attention heads, not {own}: build the network with num_heads={heads}"
            )
        conversion.num_heads = heads
    if {"mean", "std"} <= stated.keys():
        # as the encoder's buffers hold them: 0.449 itself is another number
        mean, std = (torch.tensor(ensure_tuple(stated[name])) for name in ("mean", "std"))
        conversion.normalization = mean, std
    conversion.layer_norm_eps = stated.get("norm_eps", conversion.layer_norm_eps)


def _stated_grid(stated: Mapping[str, Any], patch_size: Sequence[int]) -> tuple[int, ...] | None:
    """Patches along each axis of the images that the file is for; None where it does not say."""
    if not stated.get("img_size"):
        return None
    img_size = ensure_tuple_rep(stated["img_size"], len(patch_size))
    return tuple(size // patch for size, patch in zip(img_size, patch_size, strict=True))


def _convert_exactly(
    encoder: Any, target: nn.Module, weights: Any, key: str | None, branch: str
) -> Conversion:
    """The tensors in a checkpoint that have a network's own names, or names that its library translates."""
    if is_encoder_name(weights):
        checkpoint = Checkpoint(weights, _floating(build_encoder(weights, encoder)))
    else:
        checkpoint = read_checkpoint(weights)
    expected = _floating(target)
    prefix = _common_prefix(checkpoint, expected, key, branch)
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
    source = CheckpointFilter(type(target).__name__, (), (), {}, "", of_photographs=False)
    report = LoadReport(checkpoint.name, source.name, prefix)
    used = {id(each) for each in found.values()}  # under another name, too
    for name, tensor in inside.items():
        if name not in found and id(tensor) not in used:
            report.dropped.append(name)
        elif name in found and found[name].shape != tensor.shape:
            report.resized.append(f"{name} {tuple(tensor.shape)} -> {tuple(found[name].shape)}")
    return Conversion(source, found, report)


def _fit_stated_positions(
    tensors: dict[str, torch.Tensor], stated: Mapping[str, Any], encoder: Any
) -> None:
    """Resize positions of an encoder whose image size the file states, which its library would take for a square."""
    grid = _stated_grid(stated, encoder.patch_size)
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


def _common_prefix(
    checkpoint: Checkpoint, expected: Mapping[str, Any], key: str | None, branch: str
) -> str:
    """What precedes the encoder's names in the file: where most of them are, in the branch that is asked for."""
    counts: Counter[str] = Counter()
    for path in checkpoint.tensors:
        for start in (0, *(dot.end() for dot in re.finditer(r"\.", path))):
            if path[start:] in expected:
                counts[path[:start]] += 1
    below = begin_of(key)
    within = {prefix: count for prefix, count in counts.items() if prefix.startswith(below)}
    if not within:
        keys = f"Its keys: {first_few(checkpoint.tensors)}. The encoder's: {first_few(expected)}"
        raise ValueError(
            f"no weights of this encoder found in {checkpoint.name}. {keys}. Is it of this model?"
        )
    largest = max(within.values())
    most = [prefix for prefix, count in within.items() if count == largest]
    of_branch = [prefix for prefix in most if is_teacher(prefix) == (branch == "teacher")] or most
    if len(of_branch) > 1:
        raise ValueError(
            f"{checkpoint.name} has several encoders, {', '.join(sorted(of_branch))}: name one as key"
        )
    return of_branch[0]


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
        conversion.report.notes.append(note)


def _compare(
    conversion: Conversion, target: nn.Module, unused: Collection[str], arguments: Mapping[str, Any]
) -> LoadReport:
    """Complete the report; a tensor that is not finite or of another shape is an error."""
    report, tensors = conversion.report, conversion.tensors
    expected = {name: tuple(tensor.shape) for name, tensor in _floating(target).items()}
    wrong = [
        name
        for name in tensors
        if name in expected and tuple(tensors[name].shape) != expected[name]
    ]
    if wrong:
        given = "".join(f"{name}={value}, " for name, value in arguments.items())
        first = f"{wrong[0]}: {tuple(tensors[wrong[0]].shape)} in the file, {expected[wrong[0]]} in the encoder"
        remedy = "give the model that the file is of as --encoder"
        if given:
            remedy = f"build it with the checkpoint's settings: {given}heads, image size"
        raise ValueError(
            f"{len(wrong)} tensors of {report.file} do not fit the encoder, first {first}; {remedy}"
        )
    bad = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if bad:
        where = f"{len(bad)} tensors ({first_few(bad)})"
        raise ValueError(
            f"{report.file} has NaN or infinite values in {where}: take an earlier checkpoint"
        )
    report.loaded = [name for name in expected if name in tensors]
    # never used, so their absence is no news
    needless = {name for name in expected if "norm_cross_attn" in name}.union(unused)
    report.missing = [name for name in expected if name not in tensors and name not in needless]
    report.unexpected += [name for name in tensors if name not in expected]
    return report


def _surplus_blocks(tensors: Mapping[str, torch.Tensor], target: nn.Module) -> list[str]:
    """Names of blocks of the file for which the encoder has a list of blocks, but a shorter one."""
    own = {match[0] for name in target.state_dict() if (match := _BLOCK.match(name))}
    lists = {name.rpartition(".")[0] for name in own}
    found = {match[0] for name in tensors if (match := _BLOCK.match(name))}
    return sorted(name for name in found - own if name.rpartition(".")[0] in lists)


def _refuse_surplus(file: str, blocks: Sequence[str], arguments: Mapping[str, Any]) -> None:
    """Refuse a file with blocks that the encoder lacks."""
    if blocks:
        raise ValueError(
            f"{file} has {len(blocks)} blocks that the encoder lacks ({first_few(blocks)}), and a network cut "
            f"short gives other tokens: build an encoder of its depth{_depth_in_words(arguments)}"
        )


def _depth_in_words(arguments: Mapping[str, Any]) -> str:
    for name in ("num_layers", "depths"):
        if name in arguments:
            return f" ({name}={arguments[name]})"
    return ""


def _refuse_absent(report: LoadReport, needed: str) -> None:
    """Refuse a file that lacks tensors whose names fit a pattern."""
    absent = [name for name in report.missing if re.search(needed, name)]
    if not absent:
        return
    total = len(report.loaded) + len(report.missing)
    raise ValueError(
        f"{report.file} lacks {len(absent)} of the {total} tensors of this encoder ({first_few(absent)}), which would "
        f"keep their values. Take a checkpoint of this model (files of Hugging Face are read as hub:FOLDER, of EVA-X "
        f"with --encoder timm:eva_x_small_patch16), rename keys that mean nothing to the encoder "
        f"({first_few(report.unexpected) or 'none'}) to timm's or MONAI's names, or, "
        "for a checkpoint with fewer blocks, build an encoder of its depth"
    )


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
