# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the networks for labeled images: a pre-trained encoder that is fine-tuned or frozen."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TypeVar

import torch
from torch import nn

from monai_afire.networks.nets.encoders.adapting import as_encoder

Network = TypeVar("Network", bound="TransferNetwork")


class TransferNetwork(nn.Module):
    """
    Base of the networks that put a head on a pre-trained encoder.

    ``load_encoder_weights(network, ...)`` finds the encoder as ``network.encoder``. A frozen encoder's parameters have
    no gradient, it stays in evaluation mode (no dropout, no stochastic depth) whatever the network's mode, and it is
    run without recording operations: the head is all that is trained and paid for, as in a linear probe.

    Args:
        encoder: used as it is, not copied.
        num_classes: number of outputs per image or pixel.
        freeze_encoder: whether the encoder keeps its weights.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: when there is no class.
    """

    def __init__(self, encoder: nn.Module, num_classes: int, freeze_encoder: bool = False) -> None:
        super().__init__()
        encoder = as_encoder(encoder)
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        self.encoder = encoder
        self.freeze_encoder = freeze_encoder
        if freeze_encoder:
            encoder.requires_grad_(False)

    def train(self: Network, mode: bool = True) -> Network:
        """Set the network to training or evaluation mode; a frozen encoder stays in evaluation mode."""
        super().train(mode)
        if self.freeze_encoder:
            self.encoder.eval()
        return self

    def encoder_gradient(self) -> AbstractContextManager:
        """The context to run the encoder in: without gradients if it is frozen, else as outside."""
        return torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_encoder)
