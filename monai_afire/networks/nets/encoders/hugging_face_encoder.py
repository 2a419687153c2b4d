# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Vision models of Hugging Face transformers: ViT, DINOv2, DINOv3, Swin and their like."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.blocks.patches import grid_size
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapted_encoder import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    AdaptedEncoder,
)
from monai_afire.networks.nets.encoders.adapting import adapts
from monai_afire.networks.nets.encoders.radiograph_encoder import spread_layers
from monai_afire.utils.text import first_line

logger = logging.getLogger(__name__)

_PREPROCESSING = "preprocessor_config.json"
_FILES = "config.json, model.safetensors and preprocessor_config.json"


@adapts("transformers")
@keeps_arguments
class HuggingFaceEncoder(AdaptedEncoder):
    """
    A vision model of ``transformers`` as an encoder: ViT, DeiT, DINOv2 (also with registers), DINOv3, Swin.

    Weights are read from safetensors files only, and no code of a model's authors is run
    (``trust_remote_code=False``). Tokens are the model's ``last_hidden_state`` without class and register tokens.
    Position embeddings are interpolated by the model itself where images are of another size than those it was trained
    on.

    Args:
        model: a folder with ``config.json``, ``model.safetensors`` and ``preprocessor_config.json``, the name of a
            model on the hub, or a model. The text of a ``config.json`` builds the model with random weights.
        img_size: spatial size of the images in pixels, a multiple of the patch; None for the model's.
        in_channels: 1 for gray images, which become the model's channels, or the model's number of channels.
        mean: mean intensity that the model was trained with, one value or one per channel; None for that of the
            model's ``preprocessor_config.json``, or without one (with a warning) ImageNet's.
        std: standard deviation, in the same way.
        pretrained: False builds the model from its ``config.json`` alone, with random weights.

    Raises:
        ImportError: without transformers.
        ValueError: when the model cannot be read, weights that tokens need are missing, or images of this size do not
            fit.
    """

    def __init__(
        self,
        model: str | os.PathLike | nn.Module,
        img_size: Sequence[int] | int | None = None,
        in_channels: int = 1,
        mean: Sequence[float] | float | None = None,
        std: Sequence[float] | float | None = None,
        pretrained: bool = True,
    ) -> None:
        source, missing = None, set[str]()
        if not isinstance(model, nn.Module):
            source = os.path.expanduser(os.fspath(model))
            model, missing = _read_model(source, pretrained)
        super().__init__(model)
        config = self.model.config
        if mean is None or std is None:
            own_mean, own_std = _normalization(source)
            mean, std = own_mean if mean is None else mean, own_std if std is None else std
        size = getattr(config, "image_size", None) if img_size is None else img_size
        if size is None:
            raise ValueError(f"{type(config).__name__} has no image_size: give img_size")
        image_shape = ensure_tuple_rep(size, 2)
        self._grid = grid_size(image_shape, _token_size(config))
        self._sized = _size_options(self.model, image_shape)
        self._with_maps = {**self._sized, "output_hidden_states": True}
        if getattr(config, "depths", None) is not None:
            self._with_maps["output_hidden_states_before_downsampling"] = True
        self.adapt(in_channels, getattr(config, "num_channels", 3), image_shape, mean, std)
        if absent := missing - self.unused:
            raise ValueError(
                f"{source} lacks {len(absent)} tensors that the tokens depend on, such as "
                f"{', '.join(sorted(absent)[:3])}: get the files of one model ({_FILES})"
            )

    def changed_arguments(self) -> dict[str, Any]:
        """What a file says in the place of a folder, so that it needs none."""
        normalization = {
            "mean": self.model_mean.flatten().tolist(),
            "std": self.model_std.flatten().tolist(),
        }
        return {"model": self.model.config.to_json_string(), "pretrained": False, **normalization}

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Tokens ``(B, L, D)`` without class and register tokens."""
        return self._patches(self.model(pixel_values=pixels, **self._sized).last_hidden_state)

    def encode_maps(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """Maps ``(B, C_i, *S_i)``: of four blocks, or of a Swin's stages."""
        output = self.model(pixel_values=pixels, **self._with_maps)
        last = self._on_grid(output.last_hidden_state)
        stages = getattr(output, "reshaped_hidden_states", None)
        if stages is not None:  # the first is what enters the first stage
            return [*stages[1:-1], last]
        hidden = output.hidden_states[1:]  # the first is the embedding
        return [*(self._on_grid(hidden[layer]) for layer in spread_layers(len(hidden))[:-1]), last]

    def blocks(self) -> list[nn.Module]:
        """The transformer's blocks, counted through the stages."""
        config = self.model.config
        depths = getattr(config, "depths", None)
        count = getattr(config, "num_hidden_layers", 0) if depths is None else len(depths)
        lists = (each for each in self.model.modules() if isinstance(each, nn.ModuleList))
        layers = list(next((each for each in lists if len(each) == count), ()))
        if depths is None:
            return layers
        return [block for stage in layers for block in getattr(stage, "blocks", [])]

    def _patches(self, tokens: torch.Tensor) -> torch.Tensor:
        """Without what stands before the patches' tokens."""
        return tokens[:, tokens.shape[1] - math.prod(self._grid) :]

    def _on_grid(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._patches(tokens).transpose(1, 2).unflatten(2, self._grid)


def _read_model(source: str, pretrained: bool) -> tuple[nn.Module, set[str]]:
    """The model, in single precision, and the names of the parameters that its file does not have."""
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError as error:
        raise ImportError(
            f"{error}; {source} is read by transformers: pip install 'monai-afire[hub]'"
        ) from error
    try:
        if source.startswith("{"):  # a config itself
            config = AutoConfig.for_model(**json.loads(source))
        elif not pretrained:
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        else:
            model, info = AutoModel.from_pretrained(
                source,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                dtype=torch.float32,
            )
            return model, set(info["missing_keys"])
        return AutoModel.from_config(config, trust_remote_code=False), set()
    except Exception as error:  # of the library, of the network, of the file
        raise ValueError(
            f"{source} cannot be read as a model of transformers ({first_line(error)}): give a folder with {_FILES} "
            "(`hf download OWNER/NAME --local-dir FOLDER`), or the name of a model that this machine can reach"
        ) from error


def _normalization(source: str | None) -> tuple[Any, Any]:
    """Mean and standard deviation of the model's images in [0, 1]."""
    content = _preprocessing(source) if source and not source.startswith("{") else {}
    if not content:
        logger.warning(
            f"{source or 'the model'} comes without {_PREPROCESSING}: its images are normalized with ImageNet's mean "
            "and standard deviation; give mean and std if it was trained with others"
        )
        return IMAGENET_MEAN, IMAGENET_STD
    mean, std = content.get("image_mean", IMAGENET_MEAN), content.get("image_std", IMAGENET_STD)
    if not content.get("do_normalize", True):
        mean, std = 0.0, 1.0
    # the model saw images whose white is this; ours is 1
    white = 255 * content.get("rescale_factor", 1 / 255) if content.get("do_rescale", True) else 255
    scaled = [torch.as_tensor(each, dtype=torch.float64) / white for each in (mean, std)]
    return scaled[0], scaled[1]


def _preprocessing(source: str) -> dict[str, Any]:
    """The settings of the model's images; empty where it comes without."""
    from transformers.utils import cached_file

    try:
        path: Any = cached_file(source, _PREPROCESSING)
    except OSError:
        return {}
    content = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return content.get("image_processor", content)


def _size_options(model: Any, image_shape: tuple[int, ...]) -> dict[str, bool]:
    """What a pass of the model needs to take images of this size."""
    size = getattr(model.config, "image_size", None)
    own_shape = image_shape if size is None else ensure_tuple_rep(size, 2)
    can_interpolate = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
    # at its own size the model needs none; the library's takes all positions for those of a square
    if not can_interpolate or image_shape == own_shape:
        return {}
    if own_shape[0] != own_shape[1]:
        raise ValueError(
            f"{type(model).__name__} was trained on images of {own_shape}, and transformers resizes positions "
            f"of square images only: give images of its own size, {own_shape}"
        )
    return {"interpolate_pos_encoding": True}


def _token_size(config: Any) -> tuple[int, ...]:
    """Pixels per token along each axis."""
    if getattr(config, "patch_size", None) is None:
        raise ValueError(f"{type(config).__name__} has no patch_size: it is no vision transformer")
    merges = len(getattr(config, "depths", None) or [None]) - 1
    return tuple(patch * 2**merges for patch in ensure_tuple_rep(config.patch_size, 2))
