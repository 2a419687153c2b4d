# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole training passes of AFiRe, PEAC and ACE the slow way, with the parameters and equations of the package.

What benchmarks compare with. A pass does what research code usually does, and no more:

* AFiRe: the teacher sees each normal image once per lesion variant; the head's last layer is L linear layers, run one
  after the other; both contrastive losses loop over the tokens (each vectorised over images and clusters) and the
  category loss over the variants; the student sees all variants as one batch.
* PEAC and ACE: each crop passes each encoder by itself (four passes); matching patches are found in Python loops over
  the patches of each image, and the local losses computed image by image.
* all: attention with its matrix of weights in memory, the teacher moved parameter by parameter, PyTorch's optimizer as
  it is by default, float32 as it is by default.

Losses, gradients and one whole optimizer step equal the package's (test_published_methods.py).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from monai_afire.losses import ACELoss, AFiReLoss, PEACLoss
from monai_afire.networks import ACE, PEAC, AFiRe, patch_labels, patchify, sinkhorn_knopp

from .published_step import (
    LoopedLastLayer,
    loop_category_loss,
    loop_ema_update,
    loop_structure_loss,
    repeated_teacher_pass,
    unfused_attention,
)

__all__ = [
    "PublishedACE",
    "PublishedAFiRe",
    "PublishedMethod",
    "PublishedPEAC",
    "loop_targets",
    "published",
]

Outputs = dict[str, Tensor]


class UnfusedAttention(nn.Module):
    """Attention with separate products; its parameters are those of the block that it replaces."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.qkv, self.out_proj, self.num_heads = block.qkv, block.out_proj, block.num_heads

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Attend over all tokens: x (B,L,D) -> (B,L,D)."""
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = unfused_attention(*qkv.unbind(0))
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class PublishedMethod(nn.Module):
    """A copy of a method's network, trained the slow way; `loss` gives the numbers (weights, temperatures)."""

    teachers: tuple[str, ...] = ("encoder",)

    def __init__(self, network: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        self.settings = loss
        for part in self.network.children():
            for block in getattr(part, "blocks", ()):
                block.attn = UnfusedAttention(block.attn)

    def loss(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """The whole loss of what forward returned."""
        raise NotImplementedError

    def update_teacher(self) -> None:
        """Moves every teacher, parameter by parameter."""
        for name in self.teachers:
            teacher, student = getattr(self.network, f"teacher_{name}"), getattr(self.network, name)
            loop_ema_update(teacher, student, self.network.teacher_decay)


class PublishedAFiRe(PublishedMethod):
    """AFiRe with a prototype bank and mask tokens, contrasting probabilities."""

    teachers = ("encoder", "head")

    def __init__(self, network: AFiRe, loss: AFiReLoss) -> None:
        super().__init__(network, loss)
        for head in (self.network.head, self.network.teacher_head):
            weight = head.last_layer.weight
            layer = LoopedLastLayer(weight.shape[0], weight.shape[2], weight.shape[1]).to(weight)
            layer.set_vectors(weight)
            head.last_layer = layer
        self.network.teacher_head.requires_grad_(False)

    def forward(self, image: Tensor, lesion_image: Tensor, lesion_mask: Tensor) -> Outputs:
        """Images (B,C,*S), lesion images (B,N,C,*S) and maps (B,N,1,*S) -> what the losses need."""
        network, variants = self.network, lesion_image.shape[1]
        patch = network.encoder.patch_size
        logits = repeated_teacher_pass(
            lambda x: network.teacher_head(network.teacher_encoder(x)), image, variants
        )
        logits = logits.flatten(0, 1)
        network.bank.update(
            sinkhorn_knopp(logits.flatten(0, 1), network.teacher_temperature).view(logits.shape)
        )
        tokens = network.encoder(lesion_image.flatten(0, 1))
        abnormal = patch_labels(lesion_mask.flatten(0, 1), patch)
        return {
            "q": torch.softmax(network.head(tokens) / network.student_temperature, dim=-1),
            "prototypes": network.bank.prototypes.clone(),
            "abnormal": abnormal,
            "restored": network.decoder(tokens, abnormal),
            "target": patchify(
                network.encoder.normalize(image.repeat_interleave(variants, 0)), patch
            ),
            "variants": torch.arange(variants),
        }

    def loss(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """Weighted sum of Eq. 12, 14-16 and 20."""
        q, prototypes, abnormal = outputs["q"], outputs["prototypes"], outputs["abnormal"]
        weights, variants = self.settings.weights, len(outputs["variants"])
        temperature = self.settings.structure.similarity.temperature
        structure = loop_structure_loss(q, prototypes, ~abnormal, temperature)
        category = q.new_zeros(())
        for n in range(variants):
            ours = slice(n, None, variants)
            category = (
                category
                + loop_category_loss(q[ours], prototypes, ~abnormal[ours], temperature) / variants
            )
        weight = torch.where(abnormal, self.settings.restoration.abnormal_weight, 1.0)
        error = (outputs["restored"] - outputs["target"]).square().mean(-1)
        restoration = (weight * error).sum() / weight.sum()
        return (
            weights["structure"] * structure
            + weights["category"] * category
            + weights["restoration"] * restoration
        )


class PublishedPEAC(PublishedMethod):
    """PEAC with all of its parts."""

    teachers = ("encoder", "global_expander", "local_expander")

    def __init__(self, network: PEAC, loss: PEACLoss) -> None:
        super().__init__(network, loss)

    def forward(
        self,
        image_1: Tensor,
        image_2: Tensor,
        distorted: Tensor,
        order: Tensor,
        shuffled: Tensor,
        offset_1: Tensor,
        offset_2: Tensor,
    ) -> Outputs:
        """As `PEAC`: crops (B,C,*S), order (B,L), shuffled (B,), offsets (B,dims)."""
        network = self.network
        student_1, student_2 = network.encoder(distorted), network.encoder(image_2)
        with torch.no_grad():
            teacher_1, teacher_2 = (
                network.teacher_encoder(image_1),
                network.teacher_encoder(image_2),
            )
        outputs = {"order": order, "shuffled": shuffled, "offset_1": offset_1, "offset_2": offset_2}
        outputs["order_logits"] = network.order_head(student_1)
        outputs["restored"] = network.restoration_head(student_1)
        outputs["target"] = patchify(network.encoder.normalize(image_1), network.encoder.patch_size)
        for crop, student, teacher in ((1, student_1, teacher_1), (2, student_2, teacher_2)):
            outputs[f"global_{crop}"] = network.global_expander(student.mean(1))
            outputs[f"local_{crop}"] = network.local_expander(student)
            with torch.no_grad():
                outputs[f"teacher_global_{crop}"] = network.teacher_global_expander(teacher.mean(1))
                outputs[f"teacher_local_{crop}"] = network.teacher_local_expander(teacher)
        if network.global_balance == "center":
            self._center(outputs)
        return outputs

    def _center(self, outputs: Outputs) -> None:
        """Takes the center from the teacher's embeddings, then moves it."""
        center, momentum = self.network.global_center, self.network.center_momentum
        names = ("teacher_global_1", "teacher_global_2")
        mean = torch.cat([outputs[name] for name in names]).mean(0)
        for name in names:
            outputs[name] = outputs[name] - center
        center.copy_(momentum * center + (1 - momentum) * mean)

    def loss(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """Eq. 3, the local consistency image by image."""
        shuffled, weights = outputs["shuffled"].bool(), self.settings.weights
        order = outputs["order_logits"].sum() * 0
        if shuffled.any():
            logits = outputs["order_logits"][shuffled].flatten(0, 1)
            order = F.cross_entropy(logits, outputs["order"][shuffled].flatten())
        both = ((1, 2), (2, 1))
        whole = sum(
            _distance(outputs[f"global_{s}"], outputs[f"teacher_global_{t}"]).mean()
            for s, t in both
        )
        side = math.isqrt(outputs["order"].shape[1])
        local = outputs["restored"].sum() * 0
        for b, is_shuffled in enumerate(shuffled.tolist()):
            if is_shuffled:
                continue
            offsets = outputs["offset_1"][b].tolist(), outputs["offset_2"][b].tolist()
            pairs = matching_pairs(*offsets, side)
            if not pairs:
                continue
            for s, t in both:
                rows = [[pair[crop - 1] for pair in pairs] for crop in (s, t)]
                student, teacher = (
                    outputs[f"local_{s}"][b][rows[0]],
                    outputs[f"teacher_local_{t}"][b][rows[1]],
                )
                local = local + _distance(student, teacher).mean() / len(shuffled)
        return (
            weights["order"] * order
            + weights["restoration"] * F.mse_loss(outputs["restored"], outputs["target"])
            + weights["global"] * whole
            + weights["local"] * local
        )


class PublishedACE(PublishedMethod):
    """ACE with all of its parts."""

    def __init__(self, network: ACE, loss: ACELoss) -> None:
        super().__init__(network, loss)

    def forward(
        self, image_1: Tensor, image_2: Tensor, offset_1: Tensor, offset_2: Tensor
    ) -> Outputs:
        """As `ACE`: crops (B,C,*S) and offsets (B,dims) in cells."""
        network = self.network
        student = {1: network.encoder(image_1), 2: network.encoder(image_2)}
        with torch.no_grad():
            teacher = {1: network.teacher_encoder(image_1), 2: network.teacher_encoder(image_2)}
        means = (
            _overlap_means(student, offset_1, offset_2),
            _overlap_means(teacher, offset_1, offset_2),
        )
        distribution = torch.softmax(
            (means[1] - network.center) / network.teacher_temperature, dim=-1
        )
        center = means[1].mean((0, 1))
        network.center.copy_(
            network.center_momentum * network.center + (1 - network.center_momentum) * center
        )
        scale = network.logit_scale.exp()
        return {
            "offset_1": offset_1,
            "offset_2": offset_2,
            "composition_logits": scale * _cosines(teacher[2], network.composer(student[1])),
            "decomposition_logits": scale * _cosines(teacher[1], network.decomposer(student[2])),
            "global_student": torch.log_softmax(means[0] / network.student_temperature, dim=-1),
            "global_teacher": distribution,
        }

    def loss(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """Eq. 8 with the matching targets from a loop over pairs of patches."""
        cells = math.isqrt(outputs["composition_logits"].shape[1])
        offsets = outputs["offset_1"], outputs["offset_2"]
        composition, decomposition = loop_targets(*offsets, (cells, 2 * cells))
        student, teacher = outputs["global_student"], outputs["global_teacher"]
        weights, settings = self.settings.weights, self.settings
        swapped = (
            -(teacher[:, 1] * student[:, 0] + teacher[:, 0] * student[:, 1]).sum(-1).mean() / 2
        )
        composed = _matching(
            outputs["composition_logits"], composition.mT, settings.composition.alpha
        )
        decomposed = _matching(
            outputs["decomposition_logits"], decomposition, settings.decomposition.alpha
        )
        return (
            weights["global"] * swapped
            + weights["composition"] * composed
            + weights["decomposition"] * decomposed
        )


def published(network: nn.Module, loss: nn.Module) -> PublishedMethod:
    """The slow way of a method of the package."""
    kinds: dict[type[nn.Module], type[PublishedMethod]] = {
        AFiRe: PublishedAFiRe,
        PEAC: PublishedPEAC,
        ACE: PublishedACE,
    }
    return kinds[type(network)](network, loss)


def matching_pairs(offset_1: list[int], offset_2: list[int], side: int) -> list[tuple[int, int]]:
    """Row-major patches of two crops of `side` x `side` cells that show the same cell, by a loop over the first's."""
    pairs = []
    for row in range(side):
        for column in range(side):
            y, x = offset_1[0] + row - offset_2[0], offset_1[1] + column - offset_2[1]
            if 0 <= y < side and 0 <= x < side:
                pairs.append((row * side + column, y * side + x))
    return pairs


def loop_targets(offset_1: Tensor, offset_2: Tensor, crops: tuple[int, int]) -> list[Tensor]:
    """ACE's Eq. 4 for composition and decomposition, (B,L1,L2) each, image by image."""
    pairs = list(zip(offset_1, offset_2, strict=True))
    return [
        torch.stack([_loop_target(*pair, crops, side) for pair in pairs]).to(offset_1.device)
        for side in (2, 1)
    ]


def _loop_target(offset_1: Tensor, offset_2: Tensor, crops: tuple[int, int], side: int) -> Tensor:
    """The target of one image, pair by pair in plain numbers."""
    row, column = (
        (a - b) / side for a, b in zip(offset_1.tolist(), offset_2.tolist(), strict=True)
    )
    n1, n2 = crops[0] // side, crops[1] // side
    target = torch.zeros(n1 * n1, n2 * n2)
    for y1 in range(n1):
        for x1 in range(n1):
            near_rows = [y2 for y2 in range(n2) if abs(row + y1 - y2) <= 1]
            near_columns = [x2 for x2 in range(n2) if abs(column + x1 - x2) <= 1]
            for y2 in near_rows:
                for x2 in near_columns:
                    dy, dx = row + y1 - y2, column + x1 - x2
                    target[y1 * n1 + x1, y2 * n2 + x2] = math.exp(-(dx * dx + dy * dy) / 2)
    return target


def _distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared distances (...,) of vectors (...,H) after normalization."""
    return (F.normalize(student, dim=-1) - F.normalize(teacher, dim=-1)).square().sum(-1)


def _cosines(teacher: Tensor, student: Tensor) -> Tensor:
    """Of all pairs: (B,N,D), (B,M,D) -> (B,N,M)."""
    return F.normalize(teacher, dim=-1) @ F.normalize(student, dim=-1).mT


def _matching(logits: Tensor, target: Tensor, alpha: float) -> Tensor:
    """Balanced cross-entropy of (B,N,M), summed over M."""
    positive = alpha * target * F.logsigmoid(logits)
    negative = (1 - alpha) * (1 - target) * F.logsigmoid(-logits)
    return -(positive + negative).sum(-1).mean()


def _overlap_means(tokens: dict[int, Tensor], offset_1: Tensor, offset_2: Tensor) -> Tensor:
    """Mean token of each crop's patches that lie in the other crop, image by image: (B,2,D)."""
    side = math.isqrt(tokens[1].shape[1])
    places = offset_1.tolist(), offset_2.tolist()
    cells = (1, 2)  # of a patch, per axis
    images = []
    for b in range(len(offset_1)):
        means = []
        for crop in (0, 1):
            own, other = places[crop][b], places[1 - crop][b]
            length = side * cells[1 - crop]
            inside = [
                row * side + column
                for row in range(side)
                for column in range(side)
                if all(
                    0 <= own[axis] + step * cells[crop] - other[axis] <= length - cells[crop]
                    for axis, step in enumerate((row, column))
                )
            ]
            found = tokens[crop + 1][b][inside]
            means.append(found.mean(0) if inside else found.sum(0))
        images.append(torch.stack(means))
    return torch.stack(images)
