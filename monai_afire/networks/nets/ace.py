# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The ACE pre-training network."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from monai_afire.networks.blocks.composition_heads import Composer, Decomposer
from monai_afire.networks.blocks.ema import TeacherNetwork, check_momentum, update_center
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.transforms.grid_crop import overlap_masks
from monai_afire.utils.precision import at_least_float32, without_autocast


@keeps_arguments
class ACE(TeacherNetwork):
    r"""
    Anatomically consistent embeddings in composition and decomposition (Zhou et al., WACV 2025).

    Two crops of one radiograph lie on a common grid; one patch of the second, larger crop C2 shows exactly 2 x 2
    patches of the first, C1 (:class:`monai_afire.transforms.GridCropPaird` with ``GRID_CROP_SETTINGS["ace_448"]``; an
    encoder's patch is one cell of C1). Student and teacher, the student's slowly moving average, both encode crops:

    =============  =================================  ======================  ==============================
    branch         student                            teacher                 compared by
    =============  =================================  ======================  ==============================
    global         mean token of the overlap          the other crop's        distributions over the D axes
    composition    C1, every 2 x 2 tokens composed    tokens of C2            similarity of every pair
    decomposition  C2, every token decomposed         tokens of C1            similarity of every pair
    =============  =================================  ======================  ==============================

    :class:`monai_afire.losses.ACELoss` makes these agree. The distributions (Eq. 1, symmetrised) are

    .. math::
        P_s = \operatorname{softmax}(\bar y_s / \tau_s), \qquad
        P_t = \operatorname{softmax}((\bar y_t - c) / \tau_t), \qquad
        c \leftarrow m c + (1 - m) \operatorname{mean}(\bar y_t)

    with :math:`\bar y` a crop's mean token over the overlap and c the center, as in DINO, against a collapse. The
    matching matrices (Eq. 3) are :math:`\sigma(e^s \hat y_t^T \hat y_s)` with L2-normalized embeddings and a learned
    logarithmic scale s that starts at ln(1 / 0.07); the paper prints neither center nor scale. Composer and decomposer
    are the student's alone, as printed: the teacher is an encoder.

    A part that is switched off costs nothing, and its parameters are frozen. The teacher always is in evaluation
    mode: dropout and stochastic depth would blur its targets.

    Args:
        encoder: the student's encoder, with an even number of patches, the same on every axis; the teacher starts as
            its copy.
        head_dim: width between the two layers of composer and decomposer; None for the encoder's (the paper gives
            none).
        teacher_decay: λ of the teacher's moving average (usually scheduled to 1).
        student_temperature: τ_s > 0.
        teacher_temperature: τ_t > 0.
        center_momentum: m in [0, 1); 0 keeps no memory.
        compose: False leaves out the composition.
        decompose: False leaves out the decomposition.
        global_consistency: False leaves out the distributions.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: when the encoder's grid is odd or unequal, or the momentum is out of range.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = ACE(encoder)
        >>> crop_1, crop_2 = torch.rand(3, 1, 32, 32), torch.rand(3, 1, 32, 32)
        >>> outputs = network(crop_1, crop_2, torch.full((3, 2), 2), torch.zeros(3, 2, dtype=torch.int64))
        >>> {name: tuple(value.shape) for name, value in outputs.items()}  # doctest: +NORMALIZE_WHITESPACE
        {'offset_1': (3, 2), 'offset_2': (3, 2), 'composition_logits': (3, 16, 4), 'decomposition_logits': (3, 16, 64),
         'global_student': (3, 2, 24), 'global_teacher': (3, 2, 24)}
        >>> network(crop_1).shape  # its feature map
        torch.Size([3, 24, 4, 4])
    """

    tracked_attributes = ("logit_scale",)

    center: torch.Tensor
    teacher_encoder: RadiographEncoder

    def __init__(
        self,
        encoder: nn.Module,
        head_dim: int | None = None,
        teacher_decay: float = 0.996,
        student_temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        center_momentum: float = 0.9,
        compose: bool = True,
        decompose: bool = True,
        global_consistency: bool = True,
    ) -> None:
        super().__init__()
        encoder = as_encoder(encoder)
        if len(set(encoder.grid_size)) != 1:
            raise ValueError(
                f"the encoder's grid must have equally many cells on every axis, got {encoder.grid_size}"
            )
        check_momentum("center_momentum", center_momentum)
        self.encoder = encoder
        self.composer = Composer(encoder.hidden_size, encoder.grid_size, head_dim).requires_grad_(
            compose
        )
        self.decomposer = Decomposer(
            encoder.hidden_size, encoder.grid_size, head_dim
        ).requires_grad_(decompose)
        self.logit_scale = nn.Parameter(
            torch.tensor(math.log(1 / 0.07)), requires_grad=compose or decompose
        )
        self.add_teachers()
        self.register_buffer("center", torch.zeros(encoder.hidden_size))
        self.teacher_decay = teacher_decay
        self.student_temperature = student_temperature
        self.teacher_temperature = teacher_temperature
        self.center_momentum = center_momentum
        self.compose = compose
        self.decompose = decompose
        self.global_consistency = global_consistency
        self.train()

    def forward(
        self,
        image_1: torch.Tensor,
        image_2: torch.Tensor | None = None,
        offset_1: torch.Tensor | None = None,
        offset_2: torch.Tensor | None = None,
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """
        One pre-training pass, or, given an image alone, its feature map.

        In training mode the pass also updates the center.

        Args:
            image_1: first crops ``(B, C, H, W)`` in [0, 1].
            image_2: second crops ``(B, C, H, W)`` in [0, 1], which show twice as many cells along each axis.
            offset_1: places of the first crops ``(B, 2)`` in grid cells.
            offset_2: places of the second crops ``(B, 2)``; the difference must be even.

        Returns:
            For an image alone the student's tokens as a feature map ``(B, D, *grid)``. Else a dictionary of

            * "offset_1", "offset_2" as given,
            * "composition_logits" ``(B, L, L / 4)``: the teacher's tokens of the second crop (rows)
              with the patches composed from the first,
            * "decomposition_logits" ``(B, L, 4 L)``: the teacher's tokens of the first crop with the parts
              decomposed from the second, in row-major order of the doubled grid,
            * "global_student" ``(B, 2, D)``: logarithms of the student's distributions for both crops,
            * "global_teacher" ``(B, 2, D)``: the teacher's distributions for both crops,

            all at least float32, without those of the parts that are switched off.
        """
        if image_2 is None:
            tokens = self.encoder(image_1)
            return self.encoder.to_map(tokens)
        if offset_1 is None or offset_2 is None:
            names = "image_1, image_2, offset_1, offset_2"
            raise ValueError(
                f"ACE takes an image alone, or all of {names}: name them as extra keys of prepare_batch"
            )
        self._check_shift(offset_1 - offset_2)
        student, teacher = self._encode_crops(image_1, image_2)
        outputs = {"offset_1": offset_1, "offset_2": offset_2}
        if self.compose:
            composed = self.composer(student[1])
            outputs["composition_logits"] = self._matching_logits(teacher[2], composed)
        if self.decompose:
            decomposed = self.decomposer(student[2])
            outputs["decomposition_logits"] = self._matching_logits(teacher[1], decomposed)
        if self.global_consistency:
            cells = self.encoder.grid_size[0]
            masks = overlap_masks(offset_1, offset_2, (cells, 2 * cells), (1, 2))
            scores = _mean_tokens(student, masks) / self.student_temperature
            outputs["global_student"] = torch.log_softmax(scores, dim=-1)
            outputs["global_teacher"] = self._teacher_distribution(_mean_tokens(teacher, masks))
        return outputs

    def _check_shift(self, shift: torch.Tensor) -> None:
        """Refuse crops whose whole patches do not correspond; not on a GPU, which would have to wait."""
        if shift.device.type == "cpu" and bool((shift % 2 != 0).any()):
            raise ValueError(
                f"offset_1 - offset_2 must be even, got {shift.tolist()}: cut the crops with align=2"
            )

    def _encode_crops(
        self, image_1: torch.Tensor, image_2: torch.Tensor
    ) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
        """The student's and the teacher's tokens by the number of the crop, of the crops that a part needs."""
        images = {1: image_1, 2: image_2}
        composes = self.compose or self.global_consistency
        decomposes = self.decompose or self.global_consistency
        # each branch compares with the other crop
        student = _encode(self.encoder, images, {1: composes, 2: decomposes})
        with torch.no_grad():
            teacher = _encode(self.teacher_encoder, images, {1: decomposes, 2: composes})
        return student, teacher

    def _matching_logits(self, teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
        """Scaled cosines of every pair: (B, N, D) and (B, M, D) to (B, N, M)."""
        with without_autocast(student):
            teacher, student = at_least_float32(teacher), at_least_float32(student)
            teacher = F.normalize(teacher, dim=-1, eps=1e-6)
            student = F.normalize(student, dim=-1, eps=1e-6)
            # scaled before the product, whose many pairs would be kept for the scale's gradient
            return teacher @ (self.logit_scale.exp() * student).mT

    @torch.no_grad()
    def _teacher_distribution(self, means: torch.Tensor) -> torch.Tensor:
        """With the center of the passes before; then, when training, moves the center."""
        distribution = torch.softmax((means - self.center) / self.teacher_temperature, dim=-1)
        if self.training:
            update_center(self.center, means.flatten(0, 1), self.center_momentum)
        return distribution


def _encode(
    encoder: nn.Module, images: dict[int, torch.Tensor], is_needed: dict[int, bool]
) -> dict[int, torch.Tensor]:
    """The tokens (B, L, D) of the batches of images that are needed, in one pass."""
    needed = {crop: image for crop, image in images.items() if is_needed[crop]}
    tokens = encoder(torch.cat(list(needed.values())))
    return dict(zip(needed, tokens.chunk(len(needed)), strict=True))


def _mean_tokens(
    tokens: dict[int, torch.Tensor], masks: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Mean token of each crop over its patches (B, L) in the overlap: (B, 2, D); 0 without an overlap."""
    features = at_least_float32(torch.stack([tokens[1], tokens[2]], dim=1))
    mask = torch.stack(masks, dim=1).unsqueeze(2).to(features.dtype)
    with without_autocast(features):
        return (mask / mask.sum(-1, keepdim=True).clamp_min(1) @ features).squeeze(2)
