# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the small networks whose weights come with the package."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import torch
from torch import nn

from monai_afire.networks.weights.checkpoint_files import read_safetensors
from monai_afire.networks.weights.finding import released_file

Self = TypeVar("Self", bound="ReleasedNetwork")


class ReleasedNetwork(nn.Module):
    """
    A network with weights in the file ``weights_file`` of the bundles.

    A subclass is built without arguments.
    """

    weights_file: ClassVar[str]

    @classmethod
    def released(cls: type[Self]) -> Self:
        """
        With the weights that come with the package, frozen and in evaluation mode.

        Raises:
            FileNotFoundError: where the package was installed without its bundles.
        """
        network = cls()
        tensors, _ = read_safetensors(released_file(cls.weights_file))
        network.load_state_dict(tensors)  # copies into parameters of single precision
        return network.requires_grad_(False).eval()


def inner_parts(pictures: torch.Tensor) -> list[torch.Tensor]:
    """Pictures ``(B, 1, 64, 64)``, and the same without a twentieth and without a tenth at each edge."""
    return [pictures[..., margin : 64 - margin, margin : 64 - margin] for margin in (0, 3, 6)]


def standardized(pictures: torch.Tensor, least_spread: float) -> torch.Tensor:
    """Pictures ``(B, 1, H, W)`` with mean 0 and standard deviation 1, but for those of hardly any."""
    mean, spread = pictures.mean((2, 3), keepdim=True), pictures.std((2, 3), keepdim=True)
    return (pictures - mean) / (spread + least_spread)
