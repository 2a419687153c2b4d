# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The DINO pre-training network."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.networks.blocks.ema import TeacherNetwork, check_momentum, update_center
from monai_afire.networks.blocks.heads import DistillationHead
from monai_afire.networks.blocks.sinkhorn import sinkhorn_knopp
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.precision import at_least_float32

# what keeps the teacher from collapsing
TEACHER_BALANCES = ("center", "sinkhorn")


@keeps_arguments
class DINO(TeacherNetwork):
    r"""
    Self-distillation with no labels (Caron et al., ICCV 2021), the baseline that papers of the field compare with.

    Of each image there are G large (global) crops and N small (local) ones. The student sees all of them, the teacher,
    its slowly moving average, the global ones. An image's embedding is the mean of its tokens, since encoders here have
    no class token; a head of its own turns it into scores y for K prototypes, and these into distributions:

    .. math::
        P_s = \operatorname{softmax}(y_s / \tau_s), \qquad
        P_t = \operatorname{softmax}((y_t - c) / \tau_t), \qquad
        c \leftarrow m c + (1 - m) \operatorname{mean}(y_t)

    with the center c, which keeps one prototype from taking all images, while the low temperature :math:`\tau_t` keeps
    the distribution from becoming uniform. :class:`monai_afire.losses.DINOLoss` compares them. Instead of the center
    the Sinkhorn-Knopp algorithm can balance the teacher (as in SwAV; the paper's table 7). Mean and balance are of the
    global batch of all processes.

    Local crops have a size of their own: the position embedding is interpolated
    (:meth:`monai_afire.networks.ViTEncoder.encode_any_size`). The teacher always is in evaluation mode.

    Args:
        encoder: the student's encoder for the size of the global crops; the teacher starts as its copy.
        num_prototypes: K.
        head_dim: hidden width of the head.
        bottleneck_dim: width before the head's last layer.
        norm_last_layer: False trains the gains of the last layer, see :class:`DistillationHead`.
        student_temperature: τ_s > 0.
        teacher_temperature: τ_t > 0 (usually scheduled).
        teacher_decay: λ of the teacher's moving average (usually scheduled to 1).
        center_momentum: m in [0, 1); 0 keeps no memory.
        teacher_balance: "center" or "sinkhorn".
        batch_norm: of the heads, see :class:`DistillationHead`. The teacher takes the student's running statistics.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: for a momentum out of range or an unknown balance.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = DINO(encoder, num_prototypes=16, head_dim=12, bottleneck_dim=8)
        >>> outputs = network(torch.rand(3, 2, 1, 32, 32), torch.rand(3, 4, 1, 16, 16))
        >>> {name: tuple(value.shape) for name, value in outputs.items()}
        {'student': (3, 6, 16), 'teacher': (3, 2, 16)}
        >>> network(torch.rand(3, 1, 32, 32)).shape  # the teacher's feature map
        torch.Size([3, 24, 4, 4])
    """

    taught = ("encoder", "head")
    center: torch.Tensor
    teacher_encoder: RadiographEncoder
    teacher_head: DistillationHead

    def __init__(
        self,
        encoder: nn.Module,
        num_prototypes: int = 65536,
        head_dim: int = 2048,
        bottleneck_dim: int = 256,
        norm_last_layer: bool = True,
        student_temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        teacher_decay: float = 0.996,
        center_momentum: float = 0.9,
        teacher_balance: str = "center",
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        check_momentum("center_momentum", center_momentum)
        if teacher_balance not in TEACHER_BALANCES:
            raise ValueError(
                f"teacher_balance must be one of {TEACHER_BALANCES}, got {teacher_balance!r}"
            )
        self.encoder = encoder = as_encoder(encoder)
        self.head = DistillationHead(
            encoder.hidden_size,
            num_prototypes,
            head_dim,
            bottleneck_dim,
            norm_last_layer,
            batch_norm,
        )
        self.add_teachers()
        self.register_buffer("center", torch.zeros(num_prototypes))
        self.student_temperature = student_temperature
        self.teacher_temperature = teacher_temperature
        self.teacher_decay = teacher_decay
        self.center_momentum = center_momentum
        self.teacher_balance = teacher_balance
        self.train()

    def forward(
        self, image: torch.Tensor, local_crops: torch.Tensor | None = None
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """
        One pre-training pass, or, given images alone, the teacher's feature maps.

        In training mode the pass also updates the center.

        Args:
            image: images ``(B, C, H, W)``, or the global crops of each, ``(B, G, C, H, W)``, in [0, 1].
            local_crops: local crops ``(B, N, C, H', W')`` in [0, 1]; N may be 0 where G is 2 or more.

        Returns:
            For images alone the teacher's tokens as a feature map ``(B, D, *grid)``; DINO's teacher is better than its
            student. Else a dictionary of

            * "student" ``(B, G + N, K)``: logarithms of the student's distributions, global crops first,
            * "teacher" ``(B, G, K)``: the teacher's distributions,
            * in evaluation mode "teacher_tokens" ``(B, G, L, D)``, for previews,

            all at least float32.
        """
        if local_crops is None:
            return self.encoder.to_map(self.teacher_encoder(image))
        crops = image.shape[:2]
        embeddings = self.encoder(image.flatten(0, 1)).mean(1).unflatten(0, crops)
        if local_crops.shape[1]:
            tokens = self.encoder.encode_any_size(local_crops.flatten(0, 1))
            embeddings = torch.cat(
                [embeddings, tokens.mean(1).unflatten(0, local_crops.shape[:2])], dim=1
            )
        scores = at_least_float32(self.head(embeddings))
        outputs = {"student": torch.log_softmax(scores / self.student_temperature, dim=-1)}
        with torch.no_grad():
            teacher_tokens = self.teacher_encoder(image.flatten(0, 1))
            teacher_scores = at_least_float32(self.teacher_head(teacher_tokens.mean(1)))
            outputs["teacher"] = self._teacher_distribution(teacher_scores).unflatten(0, crops)
        if not self.training:
            outputs["teacher_tokens"] = at_least_float32(teacher_tokens).unflatten(0, crops)
        return outputs

    def _teacher_distribution(self, scores: torch.Tensor) -> torch.Tensor:
        """Balance (M, K) scores."""
        if self.teacher_balance == "sinkhorn":
            return sinkhorn_knopp(scores, self.teacher_temperature)
        distribution = torch.softmax((scores - self.center) / self.teacher_temperature, dim=-1)
        if self.training:
            update_center(self.center, scores, self.center_momentum)
        return distribution
