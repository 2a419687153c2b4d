# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Damaged weights are loaded or refused with the file's name; what would run code never does."""

from __future__ import annotations

import io
import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from mutations import Mutation, bounded, mutated, mutations
from safetensors.torch import save

from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.weight_loading import load_encoder_weights


def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)


class Harm:
    """What a malicious file asks the unpickler to call."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def saved(content: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


NAMES = ("weights.pt", "legacy.pt", "weights.safetensors", "harm.pt", "harm_legacy.pt", "harm.pkl")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """Contents of good weights, and of some that would make the file "harm" if they could."""
    state, harm = encoder().state_dict(), tmp_path / "harm"
    return {
        "weights.pt": saved(state),
        "legacy.pt": saved(state, _use_new_zipfile_serialization=False),
        "weights.safetensors": save(state),
        "harm.pt": saved({**state, "extra": Harm(harm)}),
        "harm_legacy.pt": saved(Harm(harm), _use_new_zipfile_serialization=False),
        "harm.pkl": pickle.dumps(Harm(harm)),
    }


def test_the_harm_is_real(files: dict[str, bytes], tmp_path: Path) -> None:
    pickle.loads(files["harm.pkl"])
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", NAMES)
@bounded
@given(steps=mutations)
def test_damaged_weights(
    name: str, steps: list[Mutation], files: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / name
    logging.disable(logging.WARNING)
    try:
        for content in (files[name], mutated(files[name], steps)):
            path.write_bytes(content)
            reason = ""
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    load_encoder_weights(encoder(), path)
                except ValueError as error:
                    reason = str(error)
            assert name in (reason or name)
            assert not (tmp_path / "harm").exists()
            if content is files[name]:
                assert bool(reason) == name.startswith("harm")
    finally:
        logging.disable(logging.NOTSET)
