# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoint filters of the vision transformer: timm (DINO, MAE, AFiRe's authors), Hugging Face, MONAI."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from monai_afire.networks.weights.filters import CheckpointFilter, Converted, rename_keys

__all__ = ["VIT_SOURCES"]

EMBEDDING = "patch_embedding.patch_embeddings"
POSITIONS = "patch_embedding.position_embeddings"

TIMM_RULES = {
    r"patch_embed\.proj\.(weight|bias)": rf"{EMBEDDING}.\1",
    r"pos_embed": POSITIONS,
    r"(blocks\.\d+\.norm[12]|blocks\.\d+\.attn\.qkv|norm|fc_norm)\.(weight|bias)": r"\1.\2",
    r"(blocks\.\d+)\.attn\.proj\.(weight|bias)": r"\1.attn.out_proj.\2",
    r"(blocks\.\d+)\.mlp\.fc([12])\.(weight|bias)": r"\1.mlp.linear\2.\3",
    r"(blocks\.\d+)\.(?:ls([12])\.gamma|gamma_([12]))": r"\1.layer_scale\2\3",
}
TIMM_DROPPED = r"(cls|dist|reg|mask)_token$|register_tokens$|head|decoder_|pre_logits"

# transformers 5 has other names in memory ("layers.0.attention.q_proj") than in files, which are as ever
HF_BLOCK = r"(?:encoder\.layer|layers)\.(\d+)"
HUGGING_FACE_RULES = {
    r"embeddings\.patch_embeddings\.projection\.(weight|bias)": rf"{EMBEDDING}.\1",
    r"embeddings\.position_embeddings": POSITIONS,
    HF_BLOCK + r"\.attention(?:\.attention)?\.([qkv])(?:uery|ey|alue|_proj)\.(weight|bias)": r"blocks.\1.attn.\2.\3",
    HF_BLOCK + r"\.attention\.(?:output\.dense|o_proj)\.(weight|bias)": r"blocks.\1.attn.out_proj.\2",
    HF_BLOCK + r"\.(?:layernorm_before|norm1)\.(weight|bias)": r"blocks.\1.norm1.\2",
    HF_BLOCK + r"\.(?:layernorm_after|norm2)\.(weight|bias)": r"blocks.\1.norm2.\2",
    HF_BLOCK + r"\.(?:intermediate\.dense|mlp\.fc1)\.(weight|bias)": r"blocks.\1.mlp.linear1.\2",
    HF_BLOCK + r"\.(?:output\.dense|mlp\.fc2)\.(weight|bias)": r"blocks.\1.mlp.linear2.\2",
    HF_BLOCK + r"\.layer_scale([12])\.lambda1": r"blocks.\1.layer_scale\2",
    r"layernorm\.(weight|bias)": r"norm.\1",
}
HUGGING_FACE_DROPPED = r"embeddings\.(cls_token|mask_token|register_tokens)$|pooler\.|classifier\.|decoder\."

MONAI_RULES = {
    # a perceptron's linear layer stands behind a reshaping layer
    r"patch_embedding\.patch_embeddings\.1\.(weight|bias)": rf"{EMBEDDING}.\1",
    r"(patch_embedding\.patch_embeddings\.(?:weight|bias)|patch_embedding\.position_embeddings)": r"\1",
    r"(blocks\.\d+\.(?:norm1|norm2|norm_cross_attn|attn\.qkv|attn\.out_proj|mlp\.linear[12])\.(?:weight|bias))": r"\1",
    r"(norm\.(?:weight|bias))": r"\1",
}
MONAI_DROPPED = r"cls_token$|classification_head\.|blocks\.\d+\.cross_attn\.|conv3d_transpose"


def _from_timm(state: Mapping[str, torch.Tensor]) -> Converted:
    result = rename_keys(state, TIMM_RULES, TIMM_DROPPED, layer_norm_eps=1e-6)
    result.prefix_tokens = _prefix_tokens(state)
    for part in ("weight", "bias"):
        pooled = result.tensors.pop(f"fc_norm.{part}", None)
        if pooled is None:
            continue
        if f"norm.{part}" in result.tensors:
            result.dropped.append(f"fc_norm.{part}")
        else:
            result.tensors[f"norm.{part}"] = pooled
            result.notes.append(f"fc_norm.{part}, made for the mean of the tokens, is used for each token")
    _fold_layer_scale(result)
    return result


def _from_hugging_face(state: Mapping[str, torch.Tensor]) -> Converted:
    is_dinov2 = any(".norm1." in name for name in state)
    result = rename_keys(state, HUGGING_FACE_RULES, HUGGING_FACE_DROPPED, layer_norm_eps=1e-6 if is_dinov2 else 1e-12)
    result.prefix_tokens = _prefix_tokens(state)
    _merge_query_key_value(result.tensors)
    _fold_layer_scale(result)
    return result


def _from_monai(state: Mapping[str, torch.Tensor]) -> Converted:
    return rename_keys(state, MONAI_RULES, MONAI_DROPPED, layer_norm_eps=None)


def _prefix_tokens(state: Mapping[str, torch.Tensor]) -> int:
    tokens = [value for name, value in state.items() if re.search(r"(cls|dist|reg)_token$|register_tokens$", name)]
    return sum(token.shape[1] if token.ndim == 3 else 1 for token in tokens)


def _fold_layer_scale(result: Converted) -> None:
    """Multiply LayerScale's factors into the layer before it, which is exact."""
    scales = [name for name in result.tensors if ".layer_scale" in name]
    for name in scales:
        scale = result.tensors.pop(name)
        block, number = name.split(".layer_scale")
        layer = f"{block}.attn.out_proj" if number == "1" else f"{block}.mlp.linear2"
        for part, shape in (("weight", (-1, 1)), ("bias", (-1,))):
            if f"{layer}.{part}" in result.tensors:
                result.tensors[f"{layer}.{part}"] = result.tensors[f"{layer}.{part}"] * scale.reshape(shape)
    if scales:
        result.notes.append(f"{len(scales)} LayerScale factors are multiplied into the weights")


def _merge_query_key_value(tensors: dict[str, torch.Tensor]) -> None:
    for name in [name for name in tensors if name.endswith(".attn.q.weight")]:
        attention = name.removesuffix(".q.weight")
        for part in ("weight", "bias"):
            parts = [tensors.pop(f"{attention}.{which}.{part}", None) for which in "qkv"]
            present = [tensor for tensor in parts if tensor is not None]
            if present:
                # a projection without bias adds nothing
                filled = [torch.zeros_like(present[0]) if tensor is None else tensor for tensor in parts]
                tensors[f"{attention}.qkv.{part}"] = torch.cat(filled)


TIMM = CheckpointFilter("timm", ("patch_embed.proj.weight",), ("blocks.0.",), _from_timm, of_photographs=True)
HUGGING_FACE = CheckpointFilter(
    "huggingface",
    ("embeddings.patch_embeddings.projection.weight",),
    ("encoder.layer.0.", "layers.0."),
    _from_hugging_face,
    of_photographs=True,
)
MONAI = CheckpointFilter(
    "monai", (f"{EMBEDDING}.weight", f"{EMBEDDING}.1.weight"), ("blocks.0.",), _from_monai, of_photographs=False
)

VIT_SOURCES: dict[str, tuple[CheckpointFilter, ...]] = {
    "auto": (MONAI, TIMM, HUGGING_FACE),
    "timm": (TIMM,),
    "dino": (TIMM,),
    "mae": (TIMM,),
    "afire": (MONAI, TIMM),
    "huggingface": (HUGGING_FACE,),
    "monai": (MONAI,),
}
