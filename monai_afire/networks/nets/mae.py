# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The masked autoencoder."""

from __future__ import annotations

import math

import torch
from torch import nn

from monai_afire.networks.blocks.patches import patch_statistics
from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.utils.precision import at_least_float32


@keeps_arguments
class MAE(nn.Module):
    r"""
    Masked autoencoder (He et al., *Masked Autoencoders Are Scalable Vision Learners*, CVPR 2022).

    The encoder sees the visible patches of an image alone (:class:`monai_afire.transforms.RandVisiblePatches`). A
    decoder gets its tokens at their places, one trainable mask token at all others, and reconstructs the pixels of
    the hidden patches (:class:`monai_afire.losses.MAELoss`). The target of patch j is, as the paper prefers,

    .. math:: \tilde x_j = (x_j - m_j) / s_j

    with mean and standard deviation of the patch itself (``patch_statistics``).

    MONAI's ``MaskedAutoEncoderViT`` always attends to a class token, which the encoders of this package do not have,
    and has no normalized target. The paper finds that the encoder works as well without a class token (A.1).

    Args:
        encoder: a vision transformer; a Swin transformer needs all patches of a window.
        decoder_dim: width of the decoder, 512 in the paper.
        decoder_layers: its number of blocks, 8 in the paper.
        decoder_heads: its attention heads, 16 in the paper.
        normalize_target: reconstruct patches normalized by their own mean and standard deviation; False takes
            the intensities as the encoder normalizes them.
        use_checkpoint: recompute the decoder's activations in the backward pass; the encoder has its own.

    Raises:
        TypeError: when the encoder cannot encode some patches alone.

    Example:
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = MAE(encoder, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> outputs = network(torch.rand(2, 1, 32, 32), visible=torch.tensor([[0, 3, 5, 9], [1, 2, 3, 15]]))
        >>> {name: tuple(value.shape) for name, value in outputs.items()}
        {'hidden': (2, 16), 'reconstructed': (2, 16, 64), 'target': (2, 16, 64)}
        >>> network(torch.rand(2, 1, 32, 32)).shape  # its feature map
        torch.Size([2, 24, 4, 4])
    """

    def __init__(
        self,
        encoder: ViTEncoder,
        decoder_dim: int = 512,
        decoder_layers: int = 8,
        decoder_heads: int = 16,
        normalize_target: bool = True,
        use_checkpoint: bool = False,
    ) -> None:
        super().__init__()
        if not hasattr(encoder, "visible_tokens"):
            raise TypeError(f"{type(encoder).__name__} cannot leave patches out: use a ViTEncoder")
        self.encoder = encoder
        self.decoder = RestorationDecoder.for_encoder(
            encoder,
            decoder_dim,
            decoder_layers,
            decoder_heads,
            mask_token_per_position=False,
            use_checkpoint=use_checkpoint,
        )
        self.normalize_target = normalize_target

    def forward(
        self, image: torch.Tensor, visible: torch.Tensor | None = None
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """
        One pre-training pass, or, given an image alone, its feature map.

        Args:
            image: radiographs ``(B, C, H, W)`` in [0, 1].
            visible: ``(B, K)`` int64, places of the patches that the encoder sees, K of 1 to L - 1, each named once.

        Returns:
            For an image alone the tokens of all its patches as a feature map ``(B, D, *grid)``. Else a dictionary of

            * "hidden" ``(B, L)`` bool: the patches that the encoder does not see,
            * "reconstructed" and "target" ``(B, L, P)``: patches in the intensity of the target,

            and in evaluation mode

            * "masked" ``(B, L, P)``: what the encoder sees, hidden patches filled with the mean of the visible ones,
            * "completed" ``(B, L, P)``: the same with the hidden patches reconstructed, both in the intensity of the
              encoder; a normalized reconstruction gets the true mean and standard deviation of its patch back,
            * "embedding" ``(B, D)``: the mean token of what the encoder sees.
        """
        if visible is None:
            return self.encoder.to_map(self.encoder(image))
        tokens = self.encoder.visible_tokens(image, visible)
        hidden = visible.new_ones(
            (image.shape[0], math.prod(self.encoder.grid_size)), dtype=torch.bool
        )
        hidden = hidden.scatter(1, visible, value=False)
        places = visible.unsqueeze(-1).expand_as(tokens)
        spread = tokens.new_zeros((*hidden.shape, tokens.shape[2])).scatter(1, places, tokens)
        reconstructed = self.decoder(spread, hidden)
        patches = self.encoder.to_patches(image)
        mean, std = patch_statistics(patches)
        target = (patches - mean) / std if self.normalize_target else patches
        outputs = {"hidden": hidden, "reconstructed": reconstructed, "target": target}
        if not self.training:
            guessed = reconstructed.to(patches.dtype)
            guessed = guessed * std + mean if self.normalize_target else guessed
            outputs |= self._pictures(patches, guessed, hidden)
            outputs["embedding"] = at_least_float32(tokens).mean(1)
        return outputs

    @staticmethod
    def _pictures(
        patches: torch.Tensor, guessed: torch.Tensor, hidden: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """What is seen and what is made of it, (B, L, P) each."""
        hidden = hidden.unsqueeze(-1)
        seen = torch.where(hidden, 0.0, patches)
        gray = seen.mean((1, 2), keepdim=True) * hidden.shape[1] / (~hidden).sum(1, keepdim=True)
        return {
            "masked": torch.where(hidden, gray, patches),
            "completed": torch.where(hidden, guessed, patches),
        }
