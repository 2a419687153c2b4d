# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic Lesion Masks (AFiRe, Eq. 2-5) on a whole batch of images, on any device."""

from __future__ import annotations

from typing import Any

import torch
from monai.utils import convert_to_tensor
from torch import Tensor

from monai_afire.transforms.argument_checks import check_image_range, check_positive
from monai_afire.transforms.lesion_synthesis.parameters import (
    LesionParameters,
    LesionSettings,
    draw_lesion_parameters,
    num_lesion_uniforms,
)
from monai_afire.transforms.lesion_synthesis.rendering import render_boxes, render_dense


def render_lesion_maps(
    images: Tensor, parameters: LesionParameters, backend: str = "auto"
) -> Tensor:
    """
    The additive map ``M = sum_r amplitude_r * eta_r * delta_r`` of each lesion variant (Eq. 4).

    Args:
        images: (B, C, *S), floating point in [0, 1]; the texture comes from the mean of the channels.
        parameters: the lesions, from ``draw_lesion_parameters``.
        backend: "boxes" (lesion by lesion, only the pixels near it), "dense" (the whole batch at once, no host
            synchronization) or "auto": "boxes" on a CPU, "dense" elsewhere. Both give the same maps up to rounding.

    Returns:
        M (B, N, 1, *S), not negative, in float32 or the wider type of ``images``.

    Raises:
        ValueError: when ``backend`` is none of these.
    """
    if backend not in ("auto", "boxes", "dense"):
        raise ValueError(f'backend must be "auto", "boxes" or "dense", got {backend!r}.')
    source = images.to(parameters.center.dtype).mean(1, keepdim=True)
    if backend == "auto":
        backend = "boxes" if images.device.type == "cpu" else "dense"
    maps = (
        render_boxes(source, parameters) if backend == "boxes" else render_dense(source, parameters)
    )
    return maps.unsqueeze(2)


def add_lesion_maps(images: Tensor, maps: Tensor) -> Tensor:
    """
    Lesion images ``x' = x + M`` (Eq. 5), clipped to the valid range [0, 1].

    Args:
        images: normal images x (B, C, *S).
        maps: additive maps M (B, N, 1, *S).

    Returns:
        (B, N, C, *S) in the dtype of ``images``.
    """
    return (images.unsqueeze(1) + maps).clamp_(0, 1).to(images.dtype)


@torch.no_grad()
def synth_lesion_masks(
    images: Tensor,
    num_masks: int = 1,
    *settings: Any,
    generator: torch.Generator | None = None,
    backend: str = "auto",
    validate: bool | None = None,
    **named_settings: Any,
) -> tuple[Tensor, Tensor]:
    r"""
    Add synthetic lesions to a batch of normal images: N lesion variants of each, with their maps (AFiRe, Eq. 2-5).

    .. math::
        M_i^n = \sum_{r=1}^{R} a_r\, \eta_r \cdot \delta_r, \qquad x_i'^n = \mathrm{clip}_{[0,1]}(x_i \oplus M_i^n)

    :math:`\eta` is a texture cut out of the image itself around a random bright (Otsu-foreground) pixel and resized to
    the lesion, :math:`\delta` a profile that falls from 1 at the center to exactly 0 on an ellipse
    (``lesion_profile``), :math:`a` a random strength. Lesions lie anywhere in the image, as wholes.

    The returned map is M itself, before clipping: where it is 0 the image is unchanged; where the image is already 1,
    M may be positive without visible change. Its mean over a patch against its mean over the image separates abnormal
    from normal tokens. In a constant image the texture is that constant; in an all-black image M is therefore 0.

    Args:
        images: (B, C, *S), floating point in [0, 1] (*before* normalization), 2 or 3 spatial dimensions, any device.
            All channels get the same map; its texture comes from their mean.
        num_masks: number N of lesion variants per image.
        settings: as for ``LesionSettings``, such as ``num_lesions`` and ``amplitude``.
        generator: source of random numbers, on the device of ``images``; the default generator if None.
        backend: "auto", "boxes" or "dense", see ``render_lesion_maps``.
        validate: check that the values are in [0, 1]. None: on a CPU only, since elsewhere it waits for the device.

    Returns:
        Lesion images (B, N, C, *S) in [0, 1] and lesion maps M (B, N, 1, *S) >= 0, both in the dtype of ``images`` and
        without the metadata of a ``MetaTensor``.

    Raises:
        ValueError: on images of wrong shape, dtype or range, and on settings out of range.

    Example:
        >>> images = torch.rand(2, 1, 64, 64) * 0.5
        >>> lesion_images, maps = synth_lesion_masks(images, num_masks=3, generator=torch.Generator().manual_seed(0))
        >>> lesion_images.shape, maps.shape
        (torch.Size([2, 3, 1, 64, 64]), torch.Size([2, 3, 1, 64, 64]))
        >>> torch.equal(lesion_images, (images.unsqueeze(1) + maps).clamp(0, 1))
        True
    """
    lesions = LesionSettings(*settings, **named_settings)
    check_positive("num_masks", num_masks)
    # a batch's metadata does not fit its variants
    images = convert_to_tensor(images, track_meta=False)
    check_image_range(images, batched=True, validate=validate)
    shape = (
        images.shape[0],
        num_masks,
        int(lesions.num_lesions[1]),
        num_lesion_uniforms(images.ndim - 2),
    )
    uniforms = torch.rand(shape, generator=generator, device=images.device)
    parameters = draw_lesion_parameters(images, lesions, uniforms)
    maps = render_lesion_maps(images, parameters, backend)
    return add_lesion_maps(images, maps), maps.to(images.dtype)
