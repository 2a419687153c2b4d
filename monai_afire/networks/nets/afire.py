# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The AFiRe pre-training network."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.networks.blocks.ema import TeacherNetwork
from monai_afire.networks.blocks.patches import patch_labels
from monai_afire.networks.blocks.prototype_bank import PrototypeBank
from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder
from monai_afire.networks.blocks.sinkhorn import sinkhorn_knopp
from monai_afire.networks.blocks.token_head import TokenProbabilityHead
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.precision import at_least_float32

CONTRAST_SPACES = ("probabilities", "features")


@keeps_arguments
class AFiRe(TeacherNetwork):
    """
    Anatomy-driven self-supervised learning of fine-grained representations (Liu et al., AAAI 2025).

    A student encoder sees radiographs with synthetic lesions, its slowly moving average (the teacher) the normal
    originals. The teacher's balanced token probabilities feed a bank of one prototype per position; the student's
    are contrasted with it (:class:`monai_afire.losses.AFiReLoss`), and a decoder restores the normal pixels with
    the abnormal tokens hidden. The teacher sees each normal image once, however many lesion variants there are.

    Args:
        encoder: the student's encoder; the teacher starts as its copy.
        num_clusters: K, clusters per token position, 64 to 256 in the paper.
        head_dim: width of the projection head.
        decoder_dim: width of the restoration decoder.
        decoder_layers: its number of blocks.
        decoder_heads: its attention heads.
        student_temperature: temperature of the student's softmax.
        teacher_temperature: temperature of the teacher's Sinkhorn-Knopp assignment (usually scheduled).
        teacher_decay: λ of the teacher's moving average (usually scheduled).
        prototype_momentum: momentum of the prototype bank.
        use_prototypes: False contrasts with the teacher's assignments of the same image instead of the bank
            (ablation, Table 1 row 3).
        use_mask_tokens: False lets the decoder see the abnormal tokens (ablation, Table 4 row 3).
        contrast_space: "probabilities", or "features" to contrast L2-normalized encoder tokens (ablation, Table 4
            row 2; use ``similarity="cosine"`` in the loss).
        contrast: False leaves out teacher, head and bank's work (ablation, Table 1 row 4).
        restore: False leaves out the decoder's work (ablation, Table 1 row 7).
        use_checkpoint: recompute the decoder's activations in the backward pass; the encoder has its own.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: for an unknown contrast_space.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> image, lesion_image = torch.rand(2, 1, 32, 32), torch.rand(2, 3, 1, 32, 32)
        >>> outputs = network(image, lesion_image, lesion_mask=torch.rand(2, 3, 1, 32, 32))
        >>> {name: tuple(value.shape) for name, value in outputs.items()}  # doctest: +NORMALIZE_WHITESPACE
        {'abnormal': (2, 3, 4), 'q': (2, 3, 4, 8), 'prototypes': (4, 8), 'restored': (2, 3, 4, 256),
         'target': (2, 1, 4, 256)}
        >>> network(image).shape  # a normal-looking restoration of the image
        torch.Size([2, 1, 32, 32])
    """

    taught = ("encoder", "head")
    teacher_encoder: RadiographEncoder
    teacher_head: TokenProbabilityHead

    def __init__(
        self,
        encoder: nn.Module,
        num_clusters: int = 256,
        head_dim: int = 256,
        decoder_dim: int = 512,
        decoder_layers: int = 8,
        decoder_heads: int = 16,
        student_temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        teacher_decay: float = 0.99,
        prototype_momentum: float = 0.9,
        use_prototypes: bool = True,
        use_mask_tokens: bool = True,
        contrast_space: str = "probabilities",
        contrast: bool = True,
        restore: bool = True,
        use_checkpoint: bool = False,
    ) -> None:
        super().__init__()
        encoder = as_encoder(encoder)
        if contrast_space not in CONTRAST_SPACES:
            raise ValueError(
                f"contrast_space must be one of {CONTRAST_SPACES}, got {contrast_space!r}"
            )
        num_tokens = math.prod(encoder.grid_size)
        self.encoder = encoder
        self.head = TokenProbabilityHead(encoder.hidden_size, num_tokens, num_clusters, head_dim)
        self.decoder = RestorationDecoder.for_encoder(
            encoder, decoder_dim, decoder_layers, decoder_heads, use_checkpoint=use_checkpoint
        )
        # parameters that an ablation leaves without a gradient would stop distributed training
        if not contrast or contrast_space == "features":
            self.head.requires_grad_(False)
        if not restore:
            self.decoder.requires_grad_(False)
        if not use_mask_tokens:
            self.decoder.mask_tokens.requires_grad_(False)
        self.add_teachers()
        width = num_clusters if contrast_space == "probabilities" else encoder.hidden_size
        self.bank = PrototypeBank(num_tokens, width, prototype_momentum)
        self.student_temperature = student_temperature
        self.teacher_temperature = teacher_temperature
        self.teacher_decay = teacher_decay
        self.use_prototypes = use_prototypes
        self.use_mask_tokens = use_mask_tokens
        self.contrast_space = contrast_space
        self.contrast = contrast
        self.restore = restore
        self.train()  # but for the teachers

    def forward(
        self,
        image: torch.Tensor,
        lesion_image: torch.Tensor | None = None,
        lesion_mask: torch.Tensor | None = None,
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """
        One pre-training pass, or, given an image alone, its restoration.

        In training mode the pass also updates the prototype bank.

        Args:
            image: normal radiographs ``(B, C, H, W)`` in [0, 1].
            lesion_image: each with synthetic lesions, ``(B, C, H, W)``, or N variants of each, ``(B, N, C, H, W)``, in
                [0, 1].
            lesion_mask: their lesion maps ``(B, 1, H, W)`` or ``(B, N, 1, H, W)``, 0 where nothing was added.

        Returns:
            Without lesions the restored image ``(B, C, H, W)`` in [0, 1]. With lesions a dictionary, N = 1 for a single
            variant, of

            * "abnormal" ``(B, N, L)`` bool: tokens that a lesion covers,
            * "q" ``(B, N, L, K)``: the student's token probabilities,
            * "prototypes" ``(L, K)``, or ``(B, L, K)`` of each image without the bank,
            * "restored" ``(B, N, L, P)`` and "target" ``(B, 1, L, P)``: patches in normalized intensity,
            * in evaluation mode "corrupted" ``(B, N, L, P)``: the patches of the lesion images, to compare with,

            without q and prototypes if ``contrast`` is False, without the patches if ``restore`` is False.
        """
        if lesion_image is None or lesion_mask is None:
            return self.encoder.to_images(self.decoder(self.encoder(image)))
        if lesion_image.ndim == image.ndim:
            lesion_image, lesion_mask = lesion_image.unsqueeze(1), lesion_mask.unsqueeze(1)
        variants = (len(image), lesion_image.shape[1])
        tokens = self.encoder(lesion_image.flatten(0, 1))
        abnormal = patch_labels(lesion_mask.flatten(0, 1), self.encoder.patch_size)
        outputs = {"abnormal": abnormal.unflatten(0, variants)}
        if self.contrast:
            outputs["q"] = self.token_probabilities(tokens).unflatten(0, variants)
            outputs["prototypes"] = self._prototypes(image)
        if self.restore:
            restored = self.decoder(tokens, abnormal if self.use_mask_tokens else None)
            outputs["restored"] = restored.unflatten(0, variants)
            outputs["target"] = self.encoder.to_patches(image).unsqueeze(1)
            if not self.training:
                outputs["corrupted"] = self.encoder.to_patches(
                    lesion_image.flatten(0, 1)
                ).unflatten(0, variants)
        return outputs

    def token_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        The student's view of its tokens ``(B, L, D)``, as the losses compare it with the prototypes.

        Returns:
            q ``(B, L, K)``, rows sum to 1; or the normalized features ``(B, L, D)`` if those are contrasted.
        """
        if self.contrast_space == "features":
            return F.normalize(at_least_float32(tokens), dim=-1)
        logits = self.head(tokens)
        return torch.softmax(at_least_float32(logits) / self.student_temperature, dim=-1)

    @torch.no_grad()
    def _prototypes(self, image: torch.Tensor) -> torch.Tensor:
        """The teacher's view of the normal images: into the bank (when training) and back as prototypes."""
        if not self.training and self.use_prototypes:
            return self.bank.prototypes
        tokens = self.teacher_encoder(image)
        if self.contrast_space == "features":
            q = F.normalize(at_least_float32(tokens), dim=-1)
        else:
            logits = self.teacher_head(tokens)
            q = sinkhorn_knopp(logits.flatten(0, 1), self.teacher_temperature).view(logits.shape)
        if self.training:
            self.bank.update(q)
        # a copy: the bank changes in place before a later backward pass may need it
        return self.bank.prototypes.clone() if self.use_prototypes else q
