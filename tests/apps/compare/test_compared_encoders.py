# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders by their words: what is built, what tells two of them apart, and words that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from monai_afire.apps.compare import compared_encoder
from monai_afire.networks import TransferClassifier, ViTEncoder, save_network


def classifier(path: Path, seed: int = 0, channels: int = 1) -> TransferClassifier:
    torch.manual_seed(seed)
    encoder = ViTEncoder(
        channels, img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2
    )
    network = TransferClassifier(encoder, num_classes=1)
    save_network(network, path, {"preprocessing": {"image_size": 32, "standardize": True}})
    return network


def test_a_file_gives_its_encoder_and_its_preparation(tmp_path: Path) -> None:
    network = classifier(tmp_path / "model.pt")
    compared = compared_encoder(f"mine={tmp_path / 'model.pt'}", "image")
    assert (compared.name, compared.standardize) == ("mine", True)
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(compared.encoder(images), network.encoder.eval()(images))


def test_a_folder_may_have_the_sign_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "lr=0.1" / "model.pt"
    path.parent.mkdir()
    classifier(path)
    assert compared_encoder(str(path), "image").name == str(path)
    assert compared_encoder(f"mine={path}", "image").name == "mine"


def test_the_untrained_encoder_is_always_the_same_and_not_the_released_one() -> None:
    torch.manual_seed(5)
    first, second, released = (
        compared_encoder(word) for word in ("untrained", "untrained", "released")
    )
    assert first.key == second.key
    assert first.key != released.key
    assert compared_encoder("released", "image").key != released.key
    state = torch.get_rng_state()
    compared_encoder("untrained")
    torch.testing.assert_close(torch.get_rng_state(), state)


def test_the_network_of_a_file_without_its_weights(tmp_path: Path) -> None:
    for seed in (3, 4):
        classifier(tmp_path / f"{seed}.pt", seed)
    trained, *untrained = (
        compared_encoder(str(tmp_path / name)) for name in ("3.pt", "3.pt:random", "4.pt:random")
    )
    assert untrained[0].key == untrained[1].key != trained.key
    assert untrained[0].standardize
    assert compared_encoder("untrained").key == compared_encoder("released:random").key


def test_other_weights_have_another_key(tmp_path: Path) -> None:
    for seed in (0, 1):
        classifier(tmp_path / f"{seed}.pt", seed)
    assert (
        compared_encoder(str(tmp_path / "0.pt")).key != compared_encoder(str(tmp_path / "1.pt")).key
    )


def test_images_of_any_size_are_prepared(tmp_path: Path) -> None:
    classifier(tmp_path / "model.pt")
    compared = compared_encoder(str(tmp_path / "model.pt"), "lungs")
    assert compared.encode(torch.rand(3, 1, 80, 64)).shape == (3, 16, 24)


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    classifier(tmp_path / "model.pt")
    compared = compared_encoder(f"mine={tmp_path / 'model.pt'}", "image")
    with torch.no_grad():
        next(compared.encoder.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match="'mine': its features are not finite"):
        compared.encode(torch.rand(1, 1, 32, 32))


def test_files_that_are_no_encoder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.pt"):
        compared_encoder(str(tmp_path / "gone.pt"))
    torch.save({"weight": torch.ones(2)}, tmp_path / "plain.pt")
    with pytest.raises(ValueError, match=r"plain\.pt does not say how to build"):
        compared_encoder(str(tmp_path / "plain.pt"))
    classifier(tmp_path / "color.pt", channels=3)
    with pytest.raises(ValueError, match=r"color\.pt' takes other images than gray"):
        compared_encoder(str(tmp_path / "color.pt"))


def test_a_model_of_another_library_keeps_its_own_preparation(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    size = {
        "image_size": 32,
        "patch_size": 8,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    transformers.ViTModel(transformers.ViTConfig(**size, intermediate_size=48)).save_pretrained(
        tmp_path
    )
    compared = compared_encoder(f"theirs=hub:{tmp_path}", "image")
    assert (compared.name, compared.standardize) == ("theirs", False)
    assert compared.encode(torch.rand(2, 1, 64, 64)).shape == (2, 16, 24)
    assert compared.key == compared_encoder(f"hub:{tmp_path}", "image").key


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises((ValueError, OSError), match="nothing_here"):
        compared_encoder(f"hub:{tmp_path / 'nothing_here'}")


def test_a_word_that_names_nothing() -> None:
    with pytest.raises(FileNotFoundError, match="nosuch"):
        compared_encoder("nosuch")
