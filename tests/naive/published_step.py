# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The slow way, in PyTorch: loops where published code has them, with this package's settled equations.

Right but deliberately unoptimized, for benchmarks and for tests of gradients: one Python loop over the L tokens in
both contrastive losses, one separate linear layer per token, one teacher pass per lesion variant, one Python loop
over the parameters in the EMA.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

__all__ = [
    "LoopedLastLayer",
    "loop_category_loss",
    "loop_contrastive_loss",
    "loop_ema_update",
    "loop_structure_loss",
    "repeated_teacher_pass",
    "unfused_attention",
]


def loop_structure_loss(
    q: Tensor, prototypes: Tensor, normal: Tensor, temperature: float = 1.0, eps: float = 1e-8
) -> Tensor:
    """Eq. 12 with f = exp(-H/τ) formed explicitly: q (B,L,K), prototypes (L,K), normal (B,L) bool -> scalar."""
    losses = [q.sum() * 0.0]
    for j in range(q.shape[1]):
        # (B,L), by broadcasting
        entropy = -(q[:, j, None, :] * torch.log(prototypes + eps)).sum(-1)
        f = torch.exp(-entropy / temperature)
        per_image = -torch.log(f[:, j] / f.sum(-1))
        losses.append(per_image[normal[:, j]].sum())
    return torch.stack(losses).sum() / normal.sum().clamp(min=1)


def loop_category_loss(
    q: Tensor, prototypes: Tensor, normal: Tensor, temperature: float = 1.0, eps: float = 1e-8
) -> Tensor:
    """Eq. 14-16 with f = exp(-H/τ) formed explicitly, one (B,B) matrix per token by broadcasting -> scalar."""
    losses, num_anchors = [q.sum() * 0.0], 0
    different = ~torch.eye(q.shape[0], dtype=torch.bool, device=q.device)
    for j in range(q.shape[1]):
        tokens, is_normal = q[:, j], normal[:, j]
        entropy = -(tokens[:, None, :] * torch.log(tokens[None, :, :] + eps)).sum(-1)  # (B,B)
        f = torch.exp(-entropy / temperature)
        # (B,)
        to_prototype = torch.exp((tokens * torch.log(prototypes[j] + eps)).sum(-1) / temperature)
        is_positive = is_normal[None, :] & different
        anchors = is_normal & is_positive.any(-1)
        positive = (f * is_positive).sum(-1)
        negative = (f * ~is_normal[None, :]).sum(-1) + (to_prototype * ~is_normal).sum()
        losses.append(-torch.log(positive[anchors] / (positive[anchors] + negative[anchors])).sum())
        num_anchors += int(anchors.sum())
    return torch.stack(losses).sum() / max(num_anchors, 1)


def loop_contrastive_loss(
    q: Tensor, prototypes: Tensor, normal: Tensor, temperature: float = 1.0, eps: float = 1e-8
) -> Tensor:
    """L_cst = L_stru + L_cate (Eq. 17)."""
    structure = loop_structure_loss(q, prototypes, normal, temperature, eps)
    return structure + loop_category_loss(q, prototypes, normal, temperature, eps)


class LoopedLastLayer(nn.Module):
    """L separate weight-normalized linear layers without bias, g fixed at 1: (B,L,in_dim) -> logits (B,L,K).

    The input, the raw output of the MLP, is L2-normalized first, so that the logits are cosines.
    """

    def __init__(self, num_tokens: int, in_dim: int, num_clusters: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(num_tokens):
            layer = weight_norm(nn.Linear(in_dim, num_clusters, bias=False))
            gain = layer.parametrizations.weight.original0
            gain.data.fill_(1.0)
            gain.requires_grad_(False)
            self.layers.append(layer)

    def vectors(self) -> list[Tensor]:
        """The trainable, un-normalized rows v of each token's layer: L tensors (K,in_dim)."""
        return [
            parameter for name, parameter in self.named_parameters() if name.endswith("original1")
        ]

    @torch.no_grad()
    def set_vectors(self, vectors: Tensor) -> None:
        """Copies v (L,K,in_dim) into the layers."""
        for parameter, value in zip(self.vectors(), vectors, strict=True):
            parameter.copy_(value)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.normalize(x, dim=-1)
        return torch.stack([layer(x[:, j]) for j, layer in enumerate(self.layers)], dim=1)


@torch.no_grad()
def loop_ema_update(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """θT <- decay · θT + (1 - decay) · θS, parameter by parameter, in place; both modules have the same parameters."""
    for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
        old.copy_(decay * old + (1.0 - decay) * new)


@torch.no_grad()
def repeated_teacher_pass(
    teacher: Callable[[Tensor], Tensor], images: Tensor, num_variants: int
) -> Tensor:
    """The teacher on the same images (B,...) once for each of the N variants: (B,N,...), all variants alike."""
    return torch.stack([teacher(images) for _ in range(num_variants)], dim=1)


def unfused_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax attention (...,L,D) with the whole (L,L) matrix in memory."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores, dim=-1) @ value
