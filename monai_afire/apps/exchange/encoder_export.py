# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoder weights for other libraries: timm's or Hugging Face's key names in a safetensors file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.checkpoint_files import write_safetensors
from monai_afire.networks.weights.description import describe, one_for_all
from monai_afire.networks.weights.tensor_names import EMBEDDING, POSITIONS
from monai_afire.networks.weights.weight_loading import check_branch, encoders_of

__all__ = ["export_encoder"]

_NAMES = {
    "timm": {
        rf"{EMBEDDING}\.": "patch_embed.proj.",
        POSITIONS: "pos_embed",
        r"attn\.out_proj": "attn.proj",
        r"mlp\.linear([12])": r"mlp.fc\1",
    },
    "huggingface": {
        r"^norm\.": "layernorm.",
        rf"{EMBEDDING}\.": "embeddings.patch_embeddings.projection.",
        POSITIONS: "embeddings.position_embeddings",
        r"blocks\.(\d+)\.": r"encoder.layer.\1.",
        r"attn\.out_proj": "attention.output.dense",
        r"attn\.(query|key|value)": r"attention.attention.\1",
        r"norm1": "layernorm_before",
        r"norm2": "layernorm_after",
        r"mlp\.linear1": "intermediate.dense",
        r"mlp\.linear2": "output.dense",
    },
}


def export_encoder(
    net: nn.Module,
    path: str | os.PathLike,
    layout: str = "timm",
    branch: str = "teacher",
    description: Mapping[str, Any] | None = None,
) -> Path:
    """
    Write an encoder's weights under another library's key names.

    The safetensors header holds, as JSON, "description", from which :class:`monai_afire.networks.ModelFile` builds the
    encoder, and "config", the keyword arguments of the other library's class. :func:`load_encoder_weights` reads the
    file back bit by bit. Images must be normalized by the description's mean and std.

    * "timm": fits ``timm.models.VisionTransformer(**config, norm_layer=partial(nn.LayerNorm, eps=norm_eps))``,
      which then gives the same features in ``forward_features``.
    * "huggingface": fits ``transformers.ViTModel.from_pretrained(None, config=ViTConfig(**config),
      state_dict=load_file(path), add_pooling_layer=False)``. That model always has a class token: one of zeros is
      written, the other tokens attend to it, and features differ until fine-tuned.

    Args:
        net: a ``ViTEncoder``, or a network that has one.
        path: the file to write, complete or not at all.
        layout: "timm" or "huggingface".
        branch: "teacher" or "student", which encoder of a network to take that has both.
        description: further arguments of ``describe``. Without ``preprocessing``, that of the encoder's own images:
            gray, of its size, contrast not standardized.

    Returns:
        The file.

    Raises:
        TypeError: when the network has no encoder that can be exported.
        ValueError: for an unknown layout or branch.
    """
    if layout not in _NAMES:
        raise ValueError(f"layout must be one of {list(_NAMES)}, got {layout!r}")
    check_branch(branch)
    encoder = encoders_of(net)[-1 if branch == "teacher" else 0]
    if not isinstance(encoder, ViTEncoder):
        raise TypeError(
            f"only ViTEncoder can be exported; the .model of a {type(encoder).__name__} saves itself"
        )
    state = {name: tensor.detach().cpu() for name, tensor in encoder.state_dict().items()}
    if layout == "huggingface":
        state = _with_class_token(state)
    tensors = {
        _renamed(name, _NAMES[layout]): tensor.clone().contiguous()
        for name, tensor in state.items()
        if "norm_cross_attn" not in name  # never used
    }
    about = describe(encoder, **{"task": "encoder", "preprocessing": {}, **(description or {})})
    statistics = {name: getattr(encoder, name).flatten().tolist() for name in ("mean", "std")}
    arguments = {**(about.network or {}).get("arguments", {}), **statistics}  # in their precision
    header = {
        "format": "pt",  # what transformers asks for
        "producer": "monai_afire",
        "layout": layout,
        "config": json.dumps(_config(encoder, layout)),
    }
    about = replace(about, network={"class": ViTEncoder.__name__, "arguments": arguments})
    return write_safetensors(tensors, path, about, header)


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for pattern, new in names.items():
        name = re.sub(pattern, new, name)
    return name


def _with_class_token(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Query, key and value apart, and a class token of zeros."""
    split = dict(state)
    for name in [name for name in state if ".attn.qkv." in name]:
        for part, tensor in zip(("query", "key", "value"), split.pop(name).chunk(3), strict=True):
            split[name.replace("qkv", part)] = tensor
    class_token = torch.zeros_like(split[POSITIONS][:, :1])
    split[POSITIONS] = torch.cat([class_token, split[POSITIONS]], dim=1)
    return split | {"embeddings.cls_token": class_token}


def _config(encoder: ViTEncoder, layout: str) -> dict[str, Any]:
    """Arguments of the other library's class."""
    block: Any = encoder.blocks[0]
    sizes = {
        "image_size": one_for_all(encoder.img_size),
        "patch_size": one_for_all(encoder.patch_size),
        "qkv_bias": block.attn.qkv.bias is not None,
    }
    if layout == "timm":
        return {
            "img_size": sizes.pop("image_size"),
            **sizes,
            "in_chans": encoder.in_channels,
            "num_classes": 0,
            "global_pool": "avg",
            "embed_dim": encoder.hidden_size,
            "depth": len(encoder.blocks),
            "num_heads": block.attn.num_heads,
            "mlp_ratio": block.mlp.linear1.out_features / encoder.hidden_size,
            "class_token": False,
            "fc_norm": False,
        }
    return {
        **sizes,
        "model_type": "vit",
        "hidden_size": encoder.hidden_size,
        "num_hidden_layers": len(encoder.blocks),
        "num_attention_heads": block.attn.num_heads,
        "intermediate_size": block.mlp.linear1.out_features,
        "hidden_act": "gelu",
        "layer_norm_eps": encoder.norm.eps,
        "num_channels": encoder.in_channels,
    }
