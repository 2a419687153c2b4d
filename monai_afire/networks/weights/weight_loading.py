# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading pre-trained weights into an encoder: find, translate, fit, check, load, report."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from monai.utils import ensure_tuple, ensure_tuple_rep
from torch import nn

from monai_afire.networks.blocks.position_embedding import resize_position_embedding
from monai_afire.networks.nets.encoders.adapted_encoder import AdaptedEncoder
from monai_afire.networks.nets.encoders.adapting import missing_parts
from monai_afire.networks.nets.encoders.encoder_building import build_encoder, is_encoder_name
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.checkpoint_files import Checkpoint, read_checkpoint
from monai_afire.networks.weights.finding import find_weights
from monai_afire.networks.weights.report import LoadReport
from monai_afire.networks.weights.resizing import (
    Normalization,
    fit_patch_embedding,
    fit_positions,
)
from monai_afire.networks.weights.tensor_names import (
    TIMM,
    Tensors,
    find_prefix,
    leave_out,
    vit_name,
)
from monai_afire.utils.text import first_few

__all__ = ["check_branch", "encoders_of", "load_encoder_weights"]

logger = logging.getLogger(__name__)

# tensors of a ViT or a Swin without which nothing else is of use
_NEEDED = r"\bblocks\.\d+\.(attn|mlp)\.|patch_embeddings\."
_IN_BLOCK = re.compile(r"(layers\.\d+\.)?blocks\.\d+\.")
_TIMM_EPS = 1e-6  # of its layer norms
# heads of the published models by width; the number is not in a state dict
_PUBLISHED_HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}
_AS_THEMSELVES = (
    "networks of other libraries come in as themselves, as encoder hub:FOLDER (Hugging Face) or timm:NAME "
    "(EVA-X: timm:eva_x_small_patch16)"
)


def load_encoder_weights(
    net: nn.Module,
    weights: str | os.PathLike | Mapping[str, Any],
    branch: str = "teacher",
    strict: bool = False,
) -> LoadReport:
    r"""
    Load pre-trained weights into an encoder.

    Understood are PyTorch and safetensors files with this package's key names (``model.pt``, ``checkpoint.pt``) and,
    for a ``ViTEncoder``, MONAI's and timm's (as in DINO, DINOv2, MAE, DeiT and the code of AFiRe's authors), nested and
    prefixed in any way. Code in a file never runs, and nothing in the network changes before all checks have passed.

    * *Patch embedding.* It is converted to the encoder's channels and normalization, exactly, and resampled to its
      patch size (FlexiViT): a gray image gives the token that the source gives for the same image as RGB. Color
      weights of timm have ImageNet's normalization, unless the file states another.
    * *Positions* are interpolated on the grid (bicubic, antialiased), which is square unless the file states another.
      They replace a sine-cosine embedding, too, and stay frozen if that was.
    * *A class token* is dropped with its position: patch tokens have fewer keys to attend to.
    * *Layer norms* get the eps of the source: 1e-6 of timm, 1e-5 of MONAI. No state dict holds it.
    * *Attention heads.* Their number is not in a foreign checkpoint; build the encoder with the right one.

    Encoders of other libraries (``TimmEncoder``, ``HuggingFaceEncoder``, ``MONAIEncoder``) take a file that has every
    tensor their tokens depend on, or the name of their model ("hub:...", "timm:..."). timm translates published files
    of its models and resizes their positions.

    Args:
        net: an encoder, or a network with one as `encoder` (``AFiRe``, classifiers, ...). Its `teacher_encoder`, if
            any, gets the same weights, since a teacher starts as the copy of its student.
        weights: a file, a word of :func:`monai_afire.networks.find_weights` such as "released", or a state dict, such
            as one of several in a file.
        branch: "teacher" (the papers' choice for transfer) or "student", where the checkpoint has both.
        strict: whether any missing or unexpected key is an error.

    Returns:
        What was loaded, missing, unexpected, resized and dropped; also logged.

    Raises:
        TypeError: when the network has no known encoder.
        FileNotFoundError: when there is no such file.
        ValueError: when the file is unreadable or carries code, nothing in it matches, a block is incomplete or has
            other parts, or a tensor does not fit or is not finite.

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
    checkpoint = _read(weights, encoder)
    report = LoadReport(checkpoint.name)
    tensors = _found(encoder, checkpoint, branch, report)
    if isinstance(encoder, (ViTEncoder, SwinEncoder)):
        _fit(tensors, encoder, checkpoint.arguments, report)
    else:
        tensors = _of_library(tensors, encoder, checkpoint, report)
    targets = [_network_of(each) for each in encoders]
    _compare(tensors, targets[0], getattr(encoder, "unused", ()), report)
    if strict and (report.missing or report.unexpected):
        raise ValueError(f"the checkpoint does not fit exactly, and strict is set:\n{report}")
    for target in targets:
        target.load_state_dict({name: tensors[name] for name in report.loaded}, strict=False)
    if isinstance(encoder, (ViTEncoder, SwinEncoder)):
        _set_layer_norm_eps(encoders, checkpoint.arguments.get("norm_eps"), report)
    incomplete = bool(report.missing or report.unexpected)
    logger.log(logging.WARNING if incomplete else logging.INFO, str(report))
    return report


def check_branch(branch: str) -> None:
    """Refuse what names neither of two encoders."""
    if branch not in ("teacher", "student"):
        raise ValueError(f"branch must be 'teacher' or 'student', got {branch!r}")


def encoders_of(net: nn.Module) -> list[nn.Module]:
    """The encoders of a network: itself, or its `encoder` and, where there is one, its `teacher_encoder`."""
    if not missing_parts(net):
        return [net]
    parts = dict(net.named_children())
    if "encoder" not in parts or missing_parts(parts["encoder"]):
        raise TypeError(
            f"{type(net).__name__} is no encoder and has none (its parts: {', '.join(parts) or 'none'}): pass the "
            "network as it is before compilation or distribution"
        )
    return [parts[name] for name in ("encoder", "teacher_encoder") if name in parts]


def _read(weights: Any, encoder: Any) -> Checkpoint:
    """A state dict in memory, a file, or a model of another library."""
    if isinstance(weights, Mapping):
        return read_checkpoint(weights)
    if is_encoder_name(weights):
        return Checkpoint(weights, _floating(build_encoder(weights, encoder)), {})
    return read_checkpoint(str(find_weights(weights)))


def _network_of(encoder: nn.Module) -> nn.Module:
    """What has the names of a file: of another library's encoder, the library's network."""
    return encoder.model if isinstance(encoder, AdaptedEncoder) else encoder


def _floating(module: nn.Module) -> Tensors:
    tensors = module.state_dict()
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _found(encoder: nn.Module, checkpoint: Checkpoint, branch: str, report: LoadReport) -> Tensors:
    """The tensors of the encoder in a checkpoint, under the names of the network that they are for."""
    is_vit, target = isinstance(encoder, ViTEncoder), _network_of(encoder)
    rename = vit_name if is_vit else str
    expected = _floating(target)
    prefix = find_prefix(checkpoint.tensors, expected, branch, rename)
    if prefix is None:
        raise ValueError(
            f"no encoder weights found in {checkpoint.name}. Its keys: {first_few(checkpoint.tensors)}. The encoder's: "
            f"{first_few(expected)}. Note that {_AS_THEMSELVES}"
        )
    is_timm = is_vit and f"{prefix}patch_embed.proj.weight" in checkpoint.tensors
    report.layout, report.prefix = TIMM if is_timm else type(target).__name__, prefix
    return {
        rename(name.removeprefix(prefix)): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(prefix)
    }


# ---- ViTEncoder and SwinEncoder


def _stated_normalization(stated: Mapping[str, Any]) -> Normalization | None:
    """Mean and standard deviation of the images that the file is for; None where it does not say."""
    if not {"mean", "std"} <= stated.keys():
        return None
    # as the encoder's buffers hold them: 0.449 itself is another number
    mean, std = (torch.tensor(ensure_tuple(stated[name])) for name in ("mean", "std"))
    return mean, std


def _stated_grid(stated: Mapping[str, Any], encoder: Any) -> tuple[int, ...] | None:
    """Patches along each axis of the images that the file is for; None where it does not say."""
    if not stated.get("img_size"):
        return None
    axes = len(encoder.grid_size)
    img_size = ensure_tuple_rep(stated["img_size"], axes)
    patch_size = ensure_tuple_rep(stated.get("patch_size") or encoder.patch_size, axes)
    return tuple(size // patch for size, patch in zip(img_size, patch_size, strict=True))


def _fit(
    tensors: Tensors,
    encoder: ViTEncoder | SwinEncoder,
    stated: Mapping[str, Any],
    report: LoadReport,
) -> None:
    """Bring tensors into the shapes of an encoder, in place, by what the file and its names say."""
    fit_patch_embedding(tensors, encoder, _stated_normalization(stated), report)
    if isinstance(encoder, ViTEncoder):
        _check_heads(encoder, stated.get("num_heads"), report)
        fit_positions(tensors, _stated_grid(stated, encoder), encoder.grid_size, report)
    leave_out(tensors, report)
    _fill_absent_biases(tensors, encoder, report)


def _check_heads(encoder: ViTEncoder, stated: int | None, report: LoadReport) -> None:
    """Refuse another number of heads, as far as it is known: all tensors would fit, and mean nothing."""
    block: Any = encoder.blocks[0]
    heads, width = block.attn.num_heads, encoder.hidden_size
    if stated not in (None, heads):
        raise ValueError(f"{report.file} needs an encoder with num_heads={stated}")
    published = _PUBLISHED_HEADS.get(width, heads)
    if stated is None and report.layout == TIMM and heads != published:
        report.notes.append(
            f"the encoder has {heads} attention heads, published models of width {width} have {published}; "
            "a checkpoint does not hold the number, and a wrong one spoils the features"
        )


def _fill_absent_biases(tensors: Tensors, encoder: nn.Module, report: LoadReport) -> None:
    """A layer that has no bias in the source has a bias of zero in the encoder."""
    filled = []
    for name, tensor in encoder.state_dict().items():
        layer, _, part = name.rpartition(".")
        if part == "bias" and name not in tensors and f"{layer}.weight" in tensors:
            tensors[name] = torch.zeros(tensor.shape)
            filled.append(name)
    if filled:
        report.notes.append(
            f"{len(filled)} biases that the source does not have are zero: {first_few(filled)}"
        )


def _set_layer_norm_eps(
    encoders: list[nn.Module], stated: float | None, report: LoadReport
) -> None:
    """Give the layer norms the eps that the file states, or timm's for its names."""
    eps = _TIMM_EPS if stated is None and report.layout == TIMM else stated
    if eps is None:
        return
    norms = [each for each in nn.ModuleList(encoders).modules() if isinstance(each, nn.LayerNorm)]
    former = {layer.eps for layer in norms} - {eps}
    if former:
        report.notes.append(
            f"eps of the layer norms set from {', '.join(map(str, sorted(former)))} to {eps}"
        )
    for layer in norms:
        layer.eps = eps


# ---- encoders of other libraries, and of convolutions


def _of_library(
    tensors: Tensors, encoder: Any, checkpoint: Checkpoint, report: LoadReport
) -> Tensors:
    """The tensors that have a network's own names, or names that its library translates."""
    own = tensors
    if isinstance(encoder, AdaptedEncoder):
        _fit_stated_positions(tensors, checkpoint.arguments, encoder)
        own = encoder.own_tensors(tensors, checkpoint.name)
    found = {name: own[name] for name in _floating(_network_of(encoder)) if name in own}
    used = {id(each) for each in found.values()}  # under another name, too
    for name, tensor in tensors.items():
        if name not in found and id(tensor) not in used:
            report.dropped.append(name)
        elif name in found and found[name].shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)} -> {tuple(found[name].shape)}"
            report.resized.append(f"{name} {shapes}")
    return found


def _fit_stated_positions(tensors: Tensors, stated: Mapping[str, Any], encoder: Any) -> None:
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


# ---- check


def _compare(
    tensors: Tensors, target: nn.Module, unused: Sequence[str], report: LoadReport
) -> None:
    """Report what is loaded and what not; refuse tensors that do not fit, and parts of a network."""
    expected = {name: tuple(tensor.shape) for name, tensor in _floating(target).items()}
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != expected.get(name, tuple(tensor.shape)):
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} in {report.file}, {expected[name]} in the encoder: build the encoder "
                "with the sizes of the file"
            )
        if not tensor.isfinite().all():
            raise ValueError(
                f"{report.file} has NaN or infinite values in {name}: take an earlier checkpoint"
            )
    report.loaded = [name for name in expected if name in tensors]
    # MONAI's norm_cross_attn is never used, so its absence is not reported
    needed = [name for name in expected if "norm_cross_attn" not in name and name not in unused]
    report.missing = [name for name in needed if name not in tensors]
    report.unexpected = [name for name in tensors if name not in expected]
    _refuse_other_networks(target, report)


def _refuse_other_networks(target: nn.Module, report: LoadReport) -> None:
    """Refuse a file that lacks what the tokens depend on, or whose network is deeper or has other blocks."""
    needed = _NEEDED if isinstance(target, (ViTEncoder, SwinEncoder)) else ""
    if absent := [name for name in report.missing if re.search(needed, name)]:
        raise ValueError(
            f"{report.file} lacks {len(absent)} tensors of this encoder ({first_few(absent)}), and has "
            f"{first_few(report.unexpected) or 'no others'} instead: take a checkpoint of this model and depth; "
            f"{_AS_THEMSELVES}"
        )
    if surplus := [name for name in report.unexpected if _IN_BLOCK.match(name)]:
        raise ValueError(
            f"{report.file} has parts of blocks that the encoder lacks ({first_few(surplus)}), and gives other tokens "
            f"without them: build an encoder of its depth; {_AS_THEMSELVES}"
        )
