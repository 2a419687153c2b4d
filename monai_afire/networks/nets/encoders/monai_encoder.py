# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""MONAI's ViT, Swin transformer and U-Net as they are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from monai.networks.nets import BasicUNet, ViT
from monai.networks.nets.swin_unetr import SwinTransformer
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.blocks.patches import grid_size
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapted_encoder import AdaptedEncoder
from monai_afire.networks.nets.encoders.adapting import adapts
from monai_afire.networks.nets.encoders.radiograph_encoder import spread_layers

MONAI_NETWORKS = (ViT, SwinTransformer, BasicUNet)
_WAY_DOWN = ("conv_0", "down_1", "down_2", "down_3", "down_4")  # stages of a BasicUNet


@adapts("monai")
@keeps_arguments
class MONAIEncoder(AdaptedEncoder):
    """
    MONAI's ``ViT`` or ``SwinTransformer``, or the contracting path of its ``BasicUNet``, as an encoder.

    MONAI has no normalization of its own: the images reach the network as they are, in [0, 1], unless mean and standard
    deviation are given. A ViT's class token (``classification=True``) is left out, its head is not used. A
    ``SwinTransformer`` merges patches after its last stage, too: its tokens are the last of its five maps, each of
    16 x 16 patches. The tokens of a ``BasicUNet`` are the deepest of its five maps, each of 16 x 16 pixels. Its files
    can be built again with MONAI's activation, and MONAI's normalization or ``norm="batch"``.

    Args:
        model: the network; used as it is, not copied.
        img_size: spatial size of the images in pixels; None for that of a ViT, which knows it.
        mean: mean intensity to subtract, one value or one per channel.
        std: standard deviation to divide by, one value or one per channel.

    Raises:
        TypeError: for another network.
        ValueError: when the image size is not known or not the ViT's, or tokens do not fill it.
    """

    def __init__(
        self,
        model: nn.Module,
        img_size: Sequence[int] | int | None = None,
        mean: Sequence[float] | float = 0.0,
        std: Sequence[float] | float = 1.0,
    ) -> None:
        if not isinstance(model, MONAI_NETWORKS):
            raise TypeError(
                f"{type(model).__name__} is no encoder: take a ViT, SwinTransformer or BasicUNet of MONAI, or a "
                "RadiographEncoder, such as ResidualEncoder"
            )
        super().__init__(model)
        channels, patch = _channels_and_patch(model)
        size = _image_size(model, img_size, patch)
        self._grid = grid_size(size, patch)
        self.adapt(channels, channels, size, mean, std)

    def changed_arguments(self) -> dict[str, Any]:
        """The network as data, since MONAI's do not remember their arguments; a Swin transformer is not."""
        if isinstance(self.model, ViT):
            return {"model": _vit_definition(self.model, self.img_size)}
        if isinstance(self.model, BasicUNet):
            return {"model": _unet_definition(self.model, self.feature_channels)}
        return {}

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Tokens ``(B, L, D)``."""
        if not isinstance(self.model, ViT):
            return self.encode_maps(pixels)[-1].flatten(2).transpose(1, 2)
        return self._patch_tokens(self.model.norm(self.model(pixels)[1][-1]))

    def encode_maps(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """Maps ``(B, C_i, *S_i)``: of a ViT those of four blocks, of the others those of all stages."""
        if isinstance(self.model, SwinTransformer):
            return list(self.model(pixels))
        if isinstance(self.model, BasicUNet):
            maps = itertools.accumulate(
                self.blocks(), lambda maps, stage: stage(maps), initial=pixels
            )
            return list(maps)[1:]
        hidden = self.model(pixels)[1]
        tokens = [self._patch_tokens(hidden[layer]) for layer in spread_layers(len(hidden))[:-1]]
        tokens.append(self._patch_tokens(self.model.norm(hidden[-1])))
        return [each.transpose(1, 2).unflatten(2, self._grid) for each in tokens]

    def blocks(self) -> list[nn.Module]:
        """The transformer's blocks, counted through the stages; the stages of a U-Net on the way down."""
        if isinstance(self.model, ViT):
            return list(self.model.blocks)
        if isinstance(self.model, BasicUNet):
            return [getattr(self.model, name) for name in _WAY_DOWN]
        lists = [getattr(module, "blocks", None) for module in self.model.modules()]
        return [block for blocks in lists if isinstance(blocks, nn.ModuleList) for block in blocks]

    def _patch_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens[:, 1:] if hasattr(self.model, "cls_token") else tokens


def _channels_and_patch(model: Any) -> tuple[int, tuple[int, ...]]:
    """MONAI keeps them in a layer only: a convolution, or a perceptron behind a layer that cuts patches."""
    if isinstance(model, SwinTransformer):
        return model.patch_embed.proj.in_channels, tuple(model.patch_size)
    if isinstance(model, BasicUNet):
        first: Any = model.conv_0[0].conv
        return first.in_channels, (16,) * len(first.kernel_size)
    embedding = model.patch_embedding.patch_embeddings
    if not isinstance(embedding, nn.Sequential):
        return embedding.in_channels, tuple(embedding.kernel_size)
    cut: Any = embedding[0]
    linear: Any = embedding[1]
    patch = tuple(length for _, length in sorted(cut.axes_lengths.items()))
    return linear.in_features // math.prod(patch), patch


def _image_size(
    model: Any, img_size: Sequence[int] | int | None, patch: Sequence[int]
) -> tuple[int, ...]:
    """As given, or that of a ViT, which follows from the number of its patches."""
    if img_size is None and not isinstance(model, ViT):
        kind = type(model).__name__
        raise ValueError(
            f"{kind} does not know the size of its images: give MONAIEncoder(model, size)"
        )
    if img_size is None:
        edge = round(model.patch_embedding.n_patches ** (1 / len(patch)))
        img_size = [edge * each for each in patch]
    return ensure_tuple_rep(img_size, len(patch))


def _vit_definition(vit: Any, img_size: Sequence[int]) -> dict[str, Any]:
    channels, patch = _channels_and_patch(vit)
    embedding, block = vit.patch_embedding, vit.blocks[0]
    is_perceptron = isinstance(embedding.patch_embeddings, nn.Sequential)
    arguments: dict[str, Any] = {
        "in_channels": channels,
        "img_size": list(img_size),
        "patch_size": list(patch),
        "hidden_size": vit.norm.normalized_shape[0],
        "mlp_dim": block.mlp.linear1.out_features,
        "num_layers": len(vit.blocks),
        "num_heads": block.attn.num_heads,
        "proj_type": "perceptron" if is_perceptron else "conv",
        "pos_embed_type": embedding.pos_embed_type,
        "classification": hasattr(vit, "cls_token"),
        "spatial_dims": len(img_size),
        "qkv_bias": block.attn.qkv.bias is not None,
    }
    head = getattr(vit, "classification_head", None)
    if head is not None:  # without an activation behind it, the head is the linear layer itself
        has_tanh = isinstance(head, nn.Sequential)
        arguments["post_activation"] = "Tanh" if has_tanh else "x"
        arguments["num_classes"] = (head[0] if has_tanh else head).out_features
    return {"class": "ViT", "arguments": arguments}


def _unet_definition(unet: Any, widths: Sequence[int]) -> dict[str, Any] | None:
    """None for other layers than MONAI's, which the network does not all show."""
    arguments: dict[str, Any] = {
        "spatial_dims": len(unet.final_conv.kernel_size),
        "in_channels": unet.conv_0.conv_0.conv.in_channels,
        "out_channels": unet.final_conv.out_channels,
        "features": [*widths, unet.final_conv.in_channels],
    }
    for variant in (arguments, {**arguments, "norm": "batch"}):
        with torch.device("meta"):  # draws no random numbers
            network = BasicUNet(**variant)
        if str(network) == str(unet):
            return {"class": "BasicUNet", "arguments": variant}
    return None
