# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is for pictures alone says so, and options that do not fit the images' axes are refused before a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from apps.runs.bundle_configs import call_of
from monai_afire.apps.runs import check_call

from monai_afire.networks import ViTEncoder, build_encoder
from monai_afire.transforms import AnatPaste
from monai_afire.transforms.controlled_lesions import controlled_lesion


def volume_encoder(**options: Any) -> ViTEncoder:
    sizes = {"img_size": 16, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
    return ViTEncoder(spatial_dims=3, **sizes, **options)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: build_encoder("timm:vit_tiny_patch16_224", volume_encoder()), "takes pictures"),
        (lambda: AnatPaste()(torch.rand(1, 16, 16, 16)), "volumes"),
        (
            lambda: controlled_lesion(torch.rand(1, 16, 16, 16), "AnatPaste", 0.5, 0.2, 0),
            "2 spatial dimensions",
        ),
    ],
)
def test_the_error_says_so(use: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use()


PICTURES = ["afire/train"]


def test_images_may_have_two_sides() -> None:
    check_call(call_of(PICTURES, image_size=[32, 48]))


@pytest.mark.parametrize(
    ("run", "change", "part"),
    [
        (PICTURES, {"channels": 2}, "load_image"),
        (["peac/train"], {"image_size": [32, 48]}, "make_crops"),
        (["mae/train"], {"image_size": [32, 48]}, "load_image"),
    ],
)
def test_parts_refuse_images_that_they_do_not_take(
    run: list[str], change: dict[str, Any], part: str
) -> None:
    with pytest.raises(RuntimeError):
        call_of(run, **change).parser.get_parsed_content(part)


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
