# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a step keeps for its backward pass: the option reaches every transformer, and gradients stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from integration.bundle_runs import at
from monai.bundle import ConfigParser
from monai.networks.nets.swin_unetr import BasicLayer
from torch import nn

from monai_afire.losses import ACELoss
from monai_afire.networks import ViTEncoder
from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder


def kept_bytes(function: Callable[[], torch.Tensor], but: set[int] = frozenset()) -> int:  # type: ignore[assignment]
    """Bytes of the storages that autograd keeps for the backward pass, without those at the addresses of ``but``."""
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in but:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = function()
    assert result.requires_grad
    return sum(kept.values())


def addresses(network: nn.Module) -> set[int]:
    return {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}


def test_a_decoder_keeps_the_tokens_between_its_blocks_alone() -> None:
    kept, gradients = [], []
    tokens, hidden = torch.rand(2, 64, 12), torch.rand(2, 64) > 0.5
    for use_checkpoint in (False, True):
        torch.manual_seed(0)
        decoder = RestorationDecoder(12, (8, 8), 8, 24, 3, 2, use_checkpoint=use_checkpoint)
        kept.append(
            kept_bytes(lambda decoder=decoder: decoder(tokens, hidden).sum(), addresses(decoder))
        )
        decoder(tokens, hidden).square().mean().backward()
        gradients.append(
            [parameter.grad for parameter in decoder.parameters() if parameter.grad is not None]
        )
    assert 5 * kept[1] < kept[0]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_matching_keeps_nothing_as_large_as_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monai_afire.losses.ace.PAIRS_AT_ONCE", 64 * 256)
    offset = torch.zeros(4, 2, dtype=torch.int64)
    logits = torch.rand(4, 64, 256, requires_grad=True)
    outputs = {"offset_1": offset, "offset_2": offset, "decomposition_logits": logits}
    loss = ACELoss(global_weight=0, composition_weight=0)
    assert (
        kept_bytes(lambda: loss(outputs), {logits.untyped_storage().data_ptr()})
        < logits.nbytes / 10
    )


def checkpointed(part: nn.Module) -> bool | None:
    """Whether a part with transformer blocks recomputes them; None without."""
    if isinstance(part, (ViTEncoder, RestorationDecoder)):
        return part.use_checkpoint
    return bool(part.use_checkpoint) if isinstance(part, BasicLayer) else None


TINY = {"channels": 1, "image_size": 64}
TINY_VIT = {"patch_size": 16, "hidden_size": 48, "num_layers": 1, "num_heads": 2}
TINY_SWIN = {"depths": [1, 1, 1, 1], "embed_dim": 24, "num_heads": [2, 2, 2, 2], "window_size": 2}
WITH_DECODER = ("afire", "mae")
BUNDLES = (
    "ace",
    "afire",
    "dino",
    "mae",
    "peac",
    "radiograph_classification",
    "radiograph_landmarks",
    "radiograph_segmentation",
)
OWN = {
    "afire": {
        **at(
            "network_def",
            decoder_dim=16,
            decoder_layers=1,
            decoder_heads=2,
            head_dim=8,
            num_clusters=4,
        ),
    },
    "mae": {**at("network_def", decoder_dim=16, decoder_layers=1, decoder_heads=2)},
    "dino": {
        "make_crops::local_size": 32,
        **at("network_def", num_prototypes=8, head_dim=8, bottleneck_dim=8),
    },
}


def overlays_of(bundle: str) -> list[str]:
    """Overlays of a bundle that bring an encoder."""
    configs = sorted((Path("bundles") / bundle / "configs").glob("*.json"))
    return [path.name for path in configs if "monai_afire.networks.SwinEncoder" in path.read_text()]


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize("bundle", BUNDLES)
def test_the_option_reaches_every_transformer(
    bundle: str, switch: bool, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository_root)
    folder = Path("bundles") / bundle / "configs"
    for overlay in ("", *overlays_of(bundle)):
        parser = ConfigParser()
        parser.read_config([folder / name for name in ("train.json", overlay) if name])
        sizes: dict[str, Any] = {**TINY, **OWN.get(bundle, {})}
        sizes |= {"patch_size": 32} if overlay else TINY_VIT
        if bundle.startswith("radiograph") and not overlay:
            sizes["encoder"] = "vit"
        parser.update(sizes)
        parser[f"{'encoder' if overlay else 'encoder_def'}::use_checkpoint"] = switch
        if bundle in WITH_DECODER:
            parser["network_def::use_checkpoint"] = switch
        if overlay:
            parser.update({f"encoder::{name}": value for name, value in TINY_SWIN.items()})
        network = parser.get_parsed_content(
            "network_def" if bundle in WITH_DECODER else "encoder_def"
        )
        found = [state for part in network.modules() if (state := checkpointed(part)) is not None]
        assert len(found) >= (2 if bundle in WITH_DECODER else 1)
        assert set(found) == {switch}, (bundle, overlay)
