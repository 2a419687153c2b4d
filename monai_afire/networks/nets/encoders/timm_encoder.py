# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Models of timm: vision transformers (DINOv2, EVA-X's EVA-02, DeiT, ...), Swin and convolutional networks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapted_encoder import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    AdaptedEncoder,
)
from monai_afire.networks.nets.encoders.adapting import adapts
from monai_afire.networks.nets.encoders.radiograph_encoder import NUM_FEATURE_MAPS, spread_layers
from monai_afire.utils.text import first_line

# models of radiographs by their authors' names: arguments of timm.create_model
# EVA-X (github.com/hustvl/EVA-X) is EVA-02 with patches of 16; its tokens are normalized as in its pre-training
_EVA_X = {"patch_size": 16, "ref_feat_shape": (14, 14), "global_pool": "token"}
_EVA_X_IMAGES = {"mean": (0.49185243,) * 3, "std": (0.28509309,) * 3}
# torchxrayvision (github.com/mlmed/torchxrayvision) scales gray images to [-1024, 1024]
_XRV = {"in_chans": 1, "pretrained_cfg_overlay": {"mean": (0.5,), "std": (1 / 2048,)}}
PUBLISHED: dict[str, dict[str, Any]] = {
    f"eva_x_{size}_patch16": {
        "model_name": f"eva02_{size}_patch14_224",
        **_EVA_X,
        "pretrained_cfg_overlay": _EVA_X_IMAGES,
    }
    for size in ("tiny", "small", "base")
} | {f"xrv_{name}": {"model_name": name, **_XRV} for name in ("densenet121", "resnet50")}


@adapts("timm")
@keeps_arguments
class TimmEncoder(AdaptedEncoder):
    """
    A model of ``timm`` as an encoder: vision transformers, Swin and other hierarchical networks.

    Tokens are what the model's ``forward_features`` gives, without class and register tokens. Weights of a pre-trained
    model are downloaded by timm; for a file see :func:`monai_afire.networks.load_encoder_weights`. Rotary positions
    span the image whatever its size; other position embeddings of a file are interpolated by timm.

    Args:
        model: its name, see ``timm.list_models()``, or a model. Names of ``PUBLISHED`` models of radiographs, too:
            ``eva_x_tiny_patch16``, ``eva_x_small_patch16``, ``eva_x_base_patch16``, ``xrv_densenet121`` and
            ``xrv_resnet50``, which have no weights but those of their files.
        img_size: spatial size of the images in pixels, a multiple of the patch; None for the model's.
        in_channels: 1 for gray images, which become the model's channels, or the model's number of channels.
        mean: mean intensity that the model was trained with, one value or one per channel; None for the model's.
        std: standard deviation, in the same way.
        pretrained: whether timm is to load its weights.

    Raises:
        ImportError: without timm.
        ValueError: when timm has no such model, or images of this size do not fit.
    """

    def __init__(
        self,
        model: str | nn.Module,
        img_size: Sequence[int] | int | None = None,
        in_channels: int = 1,
        mean: Sequence[float] | float | None = None,
        std: Sequence[float] | float | None = None,
        pretrained: bool = False,
    ) -> None:
        if isinstance(model, str):
            model = _create(model, img_size, pretrained)
        super().__init__(model)
        if not hasattr(self.model, "forward_intermediates"):
            raise ValueError(
                f"{type(self.model).__name__} has no forward_intermediates(): choose another model"
            )
        config = getattr(self.model, "pretrained_cfg", None) or {}
        own_size = getattr(getattr(self.model, "patch_embed", None), "img_size", None)
        size = img_size or own_size or config.get("input_size", (3, 224, 224))[1:]
        # of the first convolution
        channels = next(p for p in self.model.parameters() if p.ndim == 4).shape[1]
        mean = _of(config.get("mean", IMAGENET_MEAN), channels) if mean is None else mean
        std = _of(config.get("std", IMAGENET_STD), channels) if std is None else std
        self.adapt(in_channels, channels, ensure_tuple_rep(size, 2), mean, std)

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Tokens ``(B, L, D)`` without class and register tokens."""
        return self._tokens(self.model.forward_features(pixels))

    def encode_maps(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """Maps ``(B, C_i, *S_i)``: of four blocks, or of the last four stages of a hierarchical network."""
        blocks = self._plain_blocks()
        layers = spread_layers(len(blocks)) if blocks else []
        different = sorted(set(layers))  # of few blocks some count twice, which timm gives once
        indices = different or NUM_FEATURE_MAPS
        final, maps = self.model.forward_intermediates(pixels, indices=indices)
        maps = [maps[different.index(layer)] for layer in layers] or maps
        last = self._tokens(final).transpose(1, 2).unflatten(2, maps[-1].shape[2:])
        return [*maps[:-1], last]

    def blocks(self) -> list[nn.Module]:
        """The model's blocks, counted through its stages; of a network without blocks its stages."""
        stages = getattr(self.model, "layers", None) or getattr(self.model, "stages", None) or ()
        of_stages = [block for stage in stages for block in getattr(stage, "blocks", ())]
        blocks = self._plain_blocks() or of_stages
        names = (stage["module"] for stage in getattr(self.model, "feature_info", ()))
        maps = (self.model.get_submodule(name) for name in names)
        return blocks or [each for each in maps if any(True for _ in each.parameters())]

    def own_tensors(
        self, tensors: Mapping[str, torch.Tensor], file: str
    ) -> dict[str, torch.Tensor]:
        """Tensors of a published file under the model's names and of its sizes, as timm translates such files."""
        expected = self.model.state_dict()
        fits = all(
            name in tensors and tensors[name].shape == each.shape
            for name, each in expected.items()
            if each.is_floating_point()
        )
        translate = getattr(sys.modules[type(self.model).__module__], "checkpoint_filter_fn", None)
        if translate is None or fits:
            return dict(tensors)
        try:
            translated = translate(dict(tensors), self.model)
        except Exception as error:  # of timm, of the file
            raise ValueError(
                f"timm cannot translate {file} for {type(self.model).__name__} ({first_line(error)}): take a file of "
                "this model"
            ) from error
        # timm moves the last norm of an EVA without labels behind the pooling: tokens need it where it was
        return {**tensors, **translated}

    def _plain_blocks(self) -> list[nn.Module]:
        """The blocks of a model without stages."""
        blocks = getattr(self.model, "blocks", None)
        return list(blocks) if isinstance(blocks, (nn.ModuleList, nn.Sequential)) else []

    def _tokens(self, features: torch.Tensor) -> torch.Tensor:
        """``(B, L, D)`` from timm's form of features: tokens, or a map with its channels last or first."""
        if features.ndim == 3:
            return features[:, getattr(self.model, "num_prefix_tokens", 0) :]
        if getattr(self.model, "output_fmt", "NCHW") == "NHWC":
            return features.flatten(1, 2)
        return features.flatten(2).transpose(1, 2)


def _create(name: str, img_size: Sequence[int] | int | None, pretrained: bool) -> nn.Module:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # the latter where torchvision does not fit torch
        raise ImportError(
            f"{error}; {name} is built by timm: pip install 'monai-afire[timm]'"
        ) from error
    if name in PUBLISHED and pretrained:
        raise ValueError(f"timm has no weights of {name}: download its file and give it as weights")
    settings = {"model_name": name, **PUBLISHED.get(name, {})}
    build = functools.partial(timm.create_model, **settings, pretrained=pretrained, num_classes=0)
    try:
        try:
            return build() if img_size is None else build(img_size=ensure_tuple_rep(img_size, 2))
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            return build()  # convolutions take images of any size
    except Exception as error:  # of timm, of the network, of the file
        close = get_close_matches(name, [*PUBLISHED, *timm.list_models()])
        raise ValueError(
            f"timm cannot build {name!r} for images of {img_size} pixels ({first_line(error)}): check the name "
            f"(similar: {', '.join(close) or 'none'}), and whether this machine reaches its weights"
        ) from error


def _of(values: Sequence[float], channels: int) -> Sequence[float]:
    """As many values as the model has channels."""
    return values if len(values) == channels else [sum(values) / len(values)] * channels
