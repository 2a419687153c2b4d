# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of older versions: options and headers translated to descriptions, tensors of detectors completed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from monai_afire.networks.nets.encoders.encoder_building import is_encoder_name, parse_encoder_name
from monai_afire.networks.weights.description import TASKS, Description, Preprocessing
from monai_afire.networks.weights.swin import swin_arguments

__all__ = ["completed", "described_by_header", "described_by_options"]

_VERSION = "0.1.0"
_OPTIONS = "options"
_PREPROCESSING = {each.name for each in fields(Preprocessing)}
_ARGUMENTS = {  # of each class, the options that have the argument's name
    "AFiRe": "num_clusters head_dim decoder_dim decoder_layers decoder_heads student_temperature contrast_space",
    "PEAC": "expander_dim expander_hidden_dim global_balance",
    "ACE": "",
    "DINO": "num_prototypes head_dim bottleneck_dim norm_last_layer",
    "MAE": "decoder_dim decoder_layers decoder_heads",
    "TransferClassifier": "standardize_features label_kind",
    "UPerNet": "",
    "AnomalyDetector": "fusion score_fusion aggregation similarity k_fraction memory_size copies views field_of_view",
}
_RENAMED = {"UPerNet": {"channels": "decoder_channels"}, "AnomalyDetector": {"layers": "feature_layers"}}
_TENSORS = {  # a tensor that only this class has; the first that fits counts
    "AnomalyDetector": "map_mean",
    "AFiRe": "bank.prototypes",
    "PEAC": "order_head.weight",
    "ACE": "logit_scale",
    "DINO": "center",
    "MAE": "decoder.",
    "UPerNet": "pyramid.",
    "TransferClassifier": "classifier.weight",
}


def completed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Give a detector of version 1.0 the scores of normal images that it lacks: NaN, so that it has no p-values.

    Args:
        state: of any network; changed in place.

    Returns:
        The state.

    Example:
        >>> completed({"normal_scores": torch.rand(101, 2)})["calibration_scores"].shape
        torch.Size([1024, 2])
    """
    for name in [name for name in state if name.endswith("normal_scores")]:
        unknown = state[name].new_full((1024, state[name].shape[1]), torch.nan)
        state.setdefault(f"{name.removesuffix('normal_scores')}calibration_scores", unknown)
    return state


def described_by_options(options: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> Description | None:
    """
    Translate the options that a state dict carries.

    Args:
        options: by name.
        state: the network's tensors.

    Returns:
        The description, without a digest; None for no network of this package.

    Example:
        >>> from monai_afire.networks import AFiRe, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> options = {"image_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
        >>> described_by_options(options, AFiRe(encoder, 8, 16, 16, 1, 2).state_dict()).task
        'pre-trained AFiRe network'
    """
    definition = _definition(options, state, "")
    if definition is None:
        return None
    task = "landmark detector" if "window" in options else TASKS[definition["class"]]
    return Description(
        task=task,
        network=definition,
        preprocessing=_preprocessing(options),
        class_names=options.get("class_names"),
        label_kind=options.get("label_kind"),
        settings={name: options[name] for name in ("cover_volume", "patch_size", "window") if name in options},
        version=_VERSION,
    )


def described_by_header(header: Mapping[str, str]) -> Description | None:
    """
    Translate the header of a safetensors file: a detector, or an exported encoder.

    Args:
        header: its entries, JSON texts.

    Returns:
        The description, without a digest; None for a file of another program.
    """
    options = json.loads(header.get(_OPTIONS, "{}"))
    if header.get("format") == "monai_afire detector 1":
        settings = json.loads(header["settings"])
        encoder = {"class": "ViTEncoder", "arguments": settings["encoder"]}
        network = {"class": "AFiRe", "arguments": {"encoder": encoder, **settings.get("network", {})}}
        detector = {"class": "AnomalyDetector", "arguments": {"network": network, **settings.get("detector", {})}}
        options = {"image_size": settings["encoder"]["img_size"], **options}
        return Description(TASKS["AnomalyDetector"], detector, _preprocessing(options), version=_VERSION)
    if header.get("producer") != "monai_afire" or "encoder" not in header:
        return None
    arguments = json.loads(header["encoder"])
    arguments["norm_eps"] = arguments.pop("layer_norm_eps")
    # channels and axes were left out of the options
    shape = {"image_size": arguments["img_size"], "channels": arguments["in_channels"]}
    options = {**shape, "spatial_dims": arguments["spatial_dims"], **options}
    network = {"class": "ViTEncoder", "arguments": arguments}
    return Description("encoder", network, _preprocessing(options), version=_VERSION)


def _preprocessing(options: Mapping[str, Any]) -> Preprocessing | None:
    found = {name: options[name] for name in _PREPROCESSING & options.keys()}
    return Preprocessing(**found) if "image_size" in found else None


def _definition(options: Mapping[str, Any], state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, Any] | None:
    """Of the network whose tensors have the prefix."""
    state = _below(state, prefix)
    kind = next((kind for kind, tensor in _TENSORS.items() if any(name.startswith(tensor) for name in state)), None)
    if kind is None:
        return None
    names = {name: name for name in _ARGUMENTS[kind].split()} | _RENAMED.get(kind, {})
    arguments = {name: options[option] for name, option in names.items() if option in options}
    if kind == "AnomalyDetector":
        inner = _definition(options, state, "network.")
        return {"class": kind, "arguments": {**arguments, "network": inner or _encoder(options, state, "network.")}}
    if kind in ("TransferClassifier", "UPerNet"):
        arguments["num_classes"] = state["classifier.weight"].shape[0]
    return {"class": kind, "arguments": {**arguments, "encoder": _encoder(options, state)}}


def _encoder(options: Mapping[str, Any], state: Mapping[str, torch.Tensor], prefix: str = "") -> dict[str, Any] | None:
    """Of the encoder of the network whose tensors have the prefix."""
    state = _below(state, f"{prefix}encoder.")
    shape = {"in_channels": options.get("channels", 1), "img_size": options.get("image_size", 128)}
    if is_encoder_name(options.get("encoder")):
        library, model, _ = parse_encoder_name(options["encoder"])
        kind = {"hub": "HuggingFaceEncoder", "timm": "TimmEncoder"}[library]
        return {"class": kind, "arguments": {**shape, "model": model, "pretrained": False}}
    shape["spatial_dims"] = options.get("spatial_dims", 2)
    if "patch_embed.norm.weight" in state:
        # the window stays unknown: the tables of relative positions only say how it is cut to the grid
        shape["patch_size"] = list(state["patch_embed.proj.weight"].shape[2:])
        return {"class": "SwinEncoder", "arguments": {**shape, **swin_arguments(state)}}
    if "patch_embedding.position_embeddings" not in state:
        return None  # another library's, which an overlay described
    own = ("patch_size", "hidden_size", "num_layers", "num_heads")
    return {"class": "ViTEncoder", "arguments": {**shape, **{name: options[name] for name in own if name in options}}}


def _below(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
