# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The PEAC pre-training network."""

from __future__ import annotations

import math

import torch
from torch import nn

from monai_afire.networks.blocks.ema import TeacherNetwork, check_momentum, update_center
from monai_afire.networks.blocks.heads import ProjectionMLP
from monai_afire.networks.blocks.transformer import init_linear
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.transforms.grid_crop import matching_patches
from monai_afire.utils.precision import at_least_float32

GLOBAL_BALANCES = ("center", "none")


@keeps_arguments
class PEAC(TeacherNetwork):
    r"""
    Patch embedding of anatomical consistency (Zhou et al., BMVC 2023).

    Two crops of one radiograph lie on a common grid whose cells are the encoder's patches
    (:class:`monai_afire.transforms.GridCropPaird`). The student sees the first crop with either its patches shuffled
    or its appearance distorted, names every patch's place and restores the crop. An expander on its mean token and
    one on every token embed the crop and its patches, to agree with those of the teacher, the student's slowly moving
    average, for the other crop (:class:`monai_afire.losses.PEACLoss`).

    The consistency is symmetrised. Only the first crop is ever distorted, and only for the student:

    ===========  ======================  ================
    pass         student sees            teacher sees
    ===========  ======================  ================
    as drawn     first crop, distorted   second crop
    swapped      second crop             first crop
    ===========  ======================  ================

    Student and teacher each encode their two crops as one batch of 2 B images.

    As printed, nothing keeps the embeddings of whole crops apart: a student that sees one crop can at best guess the
    mean of what the teacher may say of the other, that guess is nearer to the mean of all images, and the teacher
    follows. With the ``global_balance`` "center" the teacher's mean is taken away before Eq. 1 normalizes its
    embedding, as in DINO, which the paper refers to; "none" is as printed:

    .. math::
        \bar y_t = \frac{y_t - c}{\lVert y_t - c \rVert}, \qquad
        c \leftarrow m c + (1 - m) \operatorname{mean}(y_t)

    A part that is switched off costs nothing, and its parameters are frozen: ``DistributedDataParallel`` works without
    ``find_unused_parameters`` as long as every part that is on has a positive weight in the loss. Without both
    consistencies there is no teacher's pass either (POPAR, the method that PEAC is built on). The teacher always is in
    evaluation mode: dropout and stochastic depth would blur its targets.

    Args:
        encoder: the student's encoder, one token per grid cell; the teacher starts as its copy.
        expander_dim: H, width of the embeddings.
        expander_hidden_dim: width between the three layers of both expanders.
        teacher_decay: λ of the teacher's moving average (usually scheduled to 1).
        classify_order: False leaves out the order classifier.
        restore: False leaves out the restoration.
        global_consistency: False leaves out the embedding of whole crops.
        local_consistency: False leaves out the embeddings of patches.
        global_balance: "center" or "none", see above.
        center_momentum: m in [0, 1), of a pass; 0 keeps no memory.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: for an unknown balance, a momentum out of range, or an unequal grid of local consistency.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = PEAC(encoder, expander_dim=8, expander_hidden_dim=16)
        >>> crop_1, crop_2 = torch.rand(3, 1, 32, 32), torch.rand(3, 1, 32, 32)
        >>> order, shuffled = torch.arange(4).expand(3, 4), torch.zeros(3, dtype=torch.bool)
        >>> offset_1, offset_2 = torch.zeros(3, 2, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64)
        >>> outputs = network(crop_1, crop_2, crop_1.flip(-1), order, shuffled, offset_1, offset_2)
        >>> {name: tuple(value.shape) for name, value in outputs.items()}  # doctest: +NORMALIZE_WHITESPACE
        {'order': (3, 4), 'shuffled': (3,), 'order_logits': (3, 4, 4), 'restored': (3, 4, 256), 'target': (3, 4, 256),
         'global_1': (3, 8), 'global_2': (3, 8), 'local_1': (3, 4, 8), 'local_2': (3, 4, 8),
         'teacher_global_1': (3, 8), 'teacher_global_2': (3, 8),
         'teacher_local_1': (3, 4, 8), 'teacher_local_2': (3, 4, 8),
         'matches_1': (3, 4), 'matches_2': (3, 4)}
        >>> network(crop_1).shape  # its restored appearance
        torch.Size([3, 1, 32, 32])
    """

    taught = ("encoder", "global_expander", "local_expander")
    global_center: torch.Tensor
    teacher_encoder: RadiographEncoder
    teacher_global_expander: ProjectionMLP
    teacher_local_expander: ProjectionMLP

    def __init__(
        self,
        encoder: nn.Module,
        expander_dim: int = 512,
        expander_hidden_dim: int = 2048,
        teacher_decay: float = 0.996,
        classify_order: bool = True,
        restore: bool = True,
        global_consistency: bool = True,
        local_consistency: bool = True,
        global_balance: str = "center",
        center_momentum: float = 0.9,
    ) -> None:
        super().__init__()
        if global_balance not in GLOBAL_BALANCES:
            raise ValueError(
                f"global_balance must be one of {GLOBAL_BALANCES}, got {global_balance!r}"
            )
        check_momentum("center_momentum", center_momentum)
        encoder = as_encoder(encoder)
        if local_consistency and len(set(encoder.grid_size)) != 1:
            raise ValueError(
                f"local_consistency needs equally many cells on every axis, the encoder's grid is {encoder.grid_size}"
            )
        width, pixels = encoder.hidden_size, encoder.in_channels * math.prod(encoder.patch_size)
        self.encoder = encoder
        self.order_head = nn.Linear(width, math.prod(encoder.grid_size)).requires_grad_(
            classify_order
        )
        self.restoration_head = nn.Linear(width, pixels).requires_grad_(restore)
        for head in (self.order_head, self.restoration_head):
            init_linear(head)
        self.global_expander = ProjectionMLP(width, expander_hidden_dim, expander_dim, num_layers=3)
        self.local_expander = ProjectionMLP(width, expander_hidden_dim, expander_dim, num_layers=3)
        self.global_expander.requires_grad_(global_consistency)
        self.local_expander.requires_grad_(local_consistency)
        self.add_teachers()
        self.register_buffer("global_center", torch.zeros(expander_dim))
        self.teacher_decay = teacher_decay
        self.global_balance = global_balance
        self.center_momentum = center_momentum
        self.classify_order = classify_order
        self.restore = restore
        self.global_consistency = global_consistency
        self.local_consistency = local_consistency
        self.train()

    def forward(
        self,
        image_1: torch.Tensor,
        image_2: torch.Tensor | None = None,
        distorted: torch.Tensor | None = None,
        order: torch.Tensor | None = None,
        shuffled: torch.Tensor | None = None,
        offset_1: torch.Tensor | None = None,
        offset_2: torch.Tensor | None = None,
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """
        One pre-training pass, or, given an image alone, its restored appearance.

        Args:
            image_1: first crops ``(B, C, H, W)`` in [0, 1].
            image_2: second crops ``(B, C, H, W)`` in [0, 1].
            distorted: the first crops as the student sees them, ``(B, C, H, W)``.
            order: ``(B, L)`` int64, the place in the first crop of the patch at each place of ``distorted``.
            shuffled: ``(B,)`` bool, True where that order is not 0, 1, ..., L - 1.
            offset_1: places of the first crops ``(B, 2)`` in grid cells, that is in patches.
            offset_2: places of the second crops ``(B, 2)``.

        Returns:
            For an image alone the restored image ``(B, C, H, W)`` in [0, 1]. Else a dictionary of

            * "order" ``(B, L)`` and "shuffled" ``(B,)`` as given, "order_logits" ``(B, L, L)``,
            * "restored" and "target" ``(B, L, P)``: patches in normalized intensity, the target of ``image_1``,
            * in evaluation mode "corrupted" ``(B, L, P)``: the patches of ``distorted``, to compare with,
            * "global_1", "global_2" ``(B, H)``: the student's embeddings of ``distorted`` and ``image_2``,
            * "teacher_global_1", "teacher_global_2" ``(B, H)``: the teacher's of ``image_1`` and ``image_2``, less
              their center if ``global_balance`` is "center",
            * "local_1", "local_2", "teacher_local_1", "teacher_local_2" ``(B, L, H)``: the same of each patch,
            * "matches_1" ``(B, L)`` int64: the patch of the second crop that shows what each patch of the first crop
              does, -1 where there is none; "matches_2" the other way round,

            without those of the parts that are switched off. Embeddings are not normalized.
        """
        if image_2 is None:
            return self.encoder.to_images(self.restoration_head(self.encoder(image_1)))
        if (
            distorted is None
            or order is None
            or shuffled is None
            or offset_1 is None
            or offset_2 is None
        ):
            names = "image_1, image_2, distorted, order, shuffled, offset_1, offset_2"
            raise ValueError(
                f"PEAC takes an image, or all of {names}: name them as extra keys of prepare_batch"
            )
        outputs = {"order": order, "shuffled": shuffled.bool()}
        consistency = self.global_consistency or self.local_consistency
        tokens = self.encoder(torch.cat([distorted, image_2]) if consistency else distorted)
        outputs |= self._order_and_appearance(tokens[: len(image_1)], image_1, distorted)
        if consistency:
            outputs |= self._embeddings(tokens, torch.cat([image_1, image_2]))
        if self.local_consistency:
            cells = (self.encoder.grid_size[0],) * 2
            outputs["matches_1"] = matching_patches(offset_1, offset_2, cells)
            outputs["matches_2"] = matching_patches(offset_2, offset_1, cells)
        return outputs

    def _order_and_appearance(
        self, tokens: torch.Tensor, image: torch.Tensor, distorted: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """What the tokens (B, L, D) of distorted crops tell of the crops (B, C, H, W), as far as it is on."""
        outputs = {}
        if self.classify_order:
            outputs["order_logits"] = self.order_head(tokens)
        if self.restore:
            outputs["restored"] = self.restoration_head(tokens)
            outputs["target"] = self.encoder.to_patches(image)
        if self.restore and not self.training:
            outputs["corrupted"] = self.encoder.to_patches(distorted)
        return outputs

    def _embeddings(self, tokens: torch.Tensor, crops: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both networks' embeddings, from the student's tokens (2 B, L, D) and the teacher's images (2 B, C, *S)."""
        student = self._expand(tokens)
        with torch.no_grad():
            teacher = self._expand(self.teacher_encoder(crops), "teacher_")
        if self.global_consistency and self.global_balance == "center":
            teacher["global"] = self._centered(teacher["global"])
        embeddings = student | {f"teacher_{name}": embedding for name, embedding in teacher.items()}
        halves = {name: embedding.chunk(2) for name, embedding in embeddings.items()}
        return {
            f"{name}_{crop + 1}": pair[crop] for name, pair in halves.items() for crop in (0, 1)
        }

    def _expand(self, tokens: torch.Tensor, branch: str = "") -> dict[str, torch.Tensor]:
        """Embeddings of the whole and of each patch, as far as they are on, by one network's expanders."""
        embeddings = {}
        if self.global_consistency:
            embeddings["global"] = self.get_submodule(f"{branch}global_expander")(tokens.mean(1))
        if self.local_consistency:
            embeddings["local"] = self.get_submodule(f"{branch}local_expander")(tokens)
        return embeddings

    @torch.no_grad()
    def _centered(self, embeddings: torch.Tensor) -> torch.Tensor:
        """(M, H) less the center of the passes before; then, when training, moves the center."""
        embeddings = at_least_float32(embeddings)
        centered = embeddings - self.global_center
        if self.training:
            update_center(self.global_center, embeddings, self.center_momentum)
        return centered
