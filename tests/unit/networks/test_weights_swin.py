# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights of Swin encoders: the same network, other patches, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monai_afire.networks import PEAC, SwinEncoder, load_encoder_weights

State = dict[str, torch.Tensor]


def build(**options: Any) -> SwinEncoder:
    """A Swin encoder of which every parameter is random."""
    default: dict[str, Any] = {"img_size": 24, "patch_size": 2, "window_size": 3, "embed_dim": 8}
    default |= {"depths": (2, 1, 2), "num_heads": (2, 4, 2)}
    encoder = SwinEncoder(**(default | options)).eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder


def test_another_patch() -> None:
    report = load_encoder_weights(build(patch_size=4, img_size=48), build().state_dict())
    assert report.resized == ["patch_embed.proj.weight (8, 1, 2, 2) -> (8, 1, 4, 4)"]


def test_another_network_is_refused() -> None:
    state = build().state_dict()
    for encoder, content, words in (
        (build(img_size=32, window_size=4), state, "relative_position_bias_table"),
        (build(num_heads=(1, 2, 4)), state, "relative_position_bias_table"),
        (build(), {n.replace("linear", "fc"): each for n, each in state.items()}, "linear"),
        (build(depths=(2, 1, 1)), state, r"layers\.2\.blocks\.1"),
    ):
        with pytest.raises(ValueError, match=words):
            load_encoder_weights(encoder, content)


def test_own_weights_of_a_network_with_a_teacher() -> None:
    options = {"in_channels": 3, "img_size": 16, "depths": (1, 1), "num_heads": (1, 2)}
    source, network = build(**options), PEAC(build(**options), 4, 4)
    checkpoint = {
        f"network.{name}.{key}": tensor
        for name, encoder in (("teacher_encoder", source), ("encoder", build(**options)))
        for key, tensor in reversed(encoder.state_dict().items())
    }
    report = load_encoder_weights(network, checkpoint, strict=True)
    assert (report.prefix, report.resized) == ("network.teacher_encoder.", [])
    for encoder in (network.encoder, network.teacher_encoder):
        state = encoder.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in source.state_dict().items())
