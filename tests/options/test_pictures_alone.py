# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is for pictures alone says so, and options that do not fit the images' axes are refused before a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from monai_afire.networks import ViTEncoder, build_encoder
from monai_afire.options.relations import RELATIONS
from monai_afire.transforms import AnatPaste, controlled_lesion, image_loader


def volume_encoder(**options: Any) -> ViTEncoder:
    sizes = {"img_size": 16, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
    return ViTEncoder(spatial_dims=3, **sizes, **options)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: build_encoder("timm:vit_tiny_patch16_224", volume_encoder()), "takes pictures"),
        (lambda: AnatPaste()(torch.rand(1, 16, 16, 16)), "volumes"),
        (lambda: controlled_lesion(torch.rand(1, 16, 16, 16), "AnatPaste", 0.5, 0.2, 0), "for volumes take"),
        (lambda: image_loader("image", spatial_dims=3, channels=3), "volumes have one channel"),
        (lambda: image_loader("image", intensity_window=(0, 1)), "is for volumes"),
    ],
)
def test_the_error_says_so(use: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use()


VOLUME = {"spatial_dims": 3, "channels": 1, "image_size": [32, 32, 16], "patch_size": 8, "spacing": 2.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"spatial_dims": 2, "image_size": 32}, "spacing 2.0 is for volumes"),
        ({"image_size": [32, 32]}, "one for each of spatial_dims 3 axes"),
        ({"patch_size": [8, 8, 12]}, "does not divide"),
        ({"spacing": [1.0, 1.0]}, "spacing [1.0, 1.0] is not one number"),
        ({"channels": 3}, "pictures have 1 or 3, volumes 1"),
        ({"grid": 9}, "give a number each"),
        ({"mask_ratio": 0.75}, "give a number each"),
        ({"saved": ["overlays", "maps"], "augmentation": "CutPaste", "cover_volume": True}, None),
        ({"saved": ["maps", "dicom"]}, "take maps, which are NIfTI"),
        ({"augmentation": "AnatPaste"}, "take SynthLesionMask or CutPaste"),
        ({"cover_volume": True, "spacing": None}, "give spacing in millimetres"),
        ({"cover_volume": False, "spacing": None}, None),
        (
            {"saved": ["dicom"], "augmentation": "AnatPaste", "spatial_dims": 2, "image_size": 32, "spacing": None},
            None,
        ),
        ({"intensity_window": [0, 1], "spatial_dims": 2, "image_size": 32, "spacing": None}, "is for volumes"),
    ],
)
def test_options_fit_the_axes(change: dict[str, Any], message: str | None) -> None:
    problems = [problem for relation in RELATIONS if (problem := relation.violated_by({**VOLUME, **change}))]
    assert (not problems) if message is None else any(message in problem for problem in problems), problems


def test_recomputed_activations_give_the_same_gradients() -> None:
    plain = volume_encoder()
    again = volume_encoder(use_checkpoint=True)
    again.load_state_dict(plain.state_dict())
    volumes = torch.rand(2, 1, 16, 16, 16)
    for encoder in (plain, again):
        encoder(volumes).square().mean().backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)
