# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A small network that tells how a picture of a chest is turned, and whether it is one at all."""

from __future__ import annotations

import torch
from monai.networks.nets import Classifier
from torch.nn import functional as F

from monai_afire.networks.nets.released_network import ReleasedNetwork, inner_parts, standardized

POSES = 8  # quarter turns 0 to 3, then the same of the mirror image
QUALITIES = ("inverted", "not_chest", "two_views")
_SIDE = 64


def turned(images: torch.Tensor, pose: int) -> torch.Tensor:
    """
    Turn pictures into a pose.

    Args:
        images: ``(..., H, W)``.
        pose: number of quarter turns against the clock, 0 to 3; from 4 to 7 those of the mirror image.

    Returns:
        The pictures, ``(..., H, W)`` or ``(..., W, H)``.

    Example:
        >>> turned(torch.tensor([[1, 2], [3, 4]]), 4)
        tensor([[2, 1],
                [4, 3]])
    """
    return torch.rot90(images.flip(-1) if pose >= 4 else images, pose % 4, (-2, -1))


class PoseClassifier(ReleasedNetwork):
    r"""
    Pose and kind of pictures, by MONAI's ``Classifier`` on 64 x 64 pixels.

    With ``average``, it sees each picture :math:`x` in all poses :math:`h`, and scores the pose :math:`g` by
    :math:`\frac{1}{8} \sum_h f(h x)_{h \circ g}`: turning the picture turns the answer. Poses are averaged over the
    whole picture and two parts of it, without a twentieth and a tenth at each edge.

    Args:
        average: see above; training does without.

    Example:
        >>> poses, qualities = PoseClassifier().eval()(torch.rand(2, 1, 96, 80))
        >>> poses.shape, qualities.shape
        (torch.Size([2, 8]), torch.Size([2, 3]))
    """

    weights_file = "pose.safetensors"

    def __init__(self, average: bool = True) -> None:
        super().__init__()
        self.average = average
        channels, strides = (16, 32, 64, 64, 96), (2, 2, 2, 2, 2)
        outputs = POSES + len(QUALITIES)
        self.net = Classifier(
            (1, _SIDE, _SIDE), outputs, channels, strides, num_res_units=2, norm="batch"
        )
        grid = torch.arange(9).view(3, 3)
        seen = {tuple(turned(grid, pose).flatten().tolist()): pose for pose in range(POSES)}
        self._composed = [
            [
                seen[tuple(turned(turned(grid, own), view).flatten().tolist())]
                for own in range(POSES)
            ]
            for view in range(POSES)
        ]

    def objection(self, images: torch.Tensor) -> torch.Tensor:
        """
        Whether pictures are anything but one upright frontal chest, mirrored or not.

        Args:
            images: ``(B, 1, H, W)``, dense parts bright.

        Returns:
            Logits ``(B,)``: of the strongest of turned, inverted, no chest, and two views.

        Example:
            >>> PoseClassifier().eval().objection(torch.rand(2, 1, 96, 80)).shape
            torch.Size([2])
        """
        poses, qualities = self(images)
        upright = [0, POSES // 2]
        others = [pose for pose in range(POSES) if pose not in upright]
        turned_logit = poses[:, others].logsumexp(1) - poses[:, upright].logsumexp(1)
        return torch.cat([turned_logit[:, None], qualities], 1).amax(1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Score pictures.

        Args:
            images: ``(B, 1, H, W)``, dense parts bright.

        Returns:
            Logits of the poses ``(B, 8)`` and of each of ``QUALITIES`` ``(B, 3)``.
        """
        small = F.interpolate(images, (_SIDE, _SIDE), mode="area")
        small = standardized(small, 1e-3)
        if not self.average:
            return self.net(small).split((POSES, len(QUALITIES)), 1)
        size = (_SIDE, _SIDE)
        parts = [F.interpolate(part, size, mode="bilinear") for part in inner_parts(small)]
        seen = [self._all_poses(part) for part in parts]
        return torch.stack([poses for poses, _ in seen]).mean(0), seen[0][1]

    def _all_poses(self, small: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of poses and qualities, averaged over the pictures in all poses."""
        views = [
            self.net(turned(small, view)).split((POSES, len(QUALITIES)), 1) for view in range(POSES)
        ]
        poses = torch.stack(
            [found[:, own] for (found, _), own in zip(views, self._composed, strict=True)]
        )
        return poses.mean(0), torch.stack([quality for _, quality in views]).mean(0)
