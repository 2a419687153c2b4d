# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder that a fine-tuning starts from without weights, and the recipe that follows the encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import REPOSITORY_ROOT, all_messages, at
from monai.bundle import ConfigParser

import monai_afire
from monai_afire.handlers import HeadWarmStart
from monai_afire.networks import (
    ResidualEncoder,
    SwinEncoder,
    ViTEncoder,
    save_network,
    starting_encoder,
)

TASKS = ("classification", "landmarks", "segmentation")
BATCH = {"image": torch.rand(4, 1, 128, 128), "label": torch.tensor([[0.0], [0.0], [0.0], [1.0]])}
WARM_START = {
    "train::warm_start::train_batches": [BATCH],
    "train::warm_start::val_batches": [BATCH],
    "train::warm_start::validator": None,
}


def config(task: str, *overlays: str, **overrides: Any) -> ConfigParser:
    """The config of a fine-tuning, whose network can be built without data."""
    folder = REPOSITORY_ROOT / f"bundles/radiograph_{task}/configs"
    names = ("train", *overlays)
    parser = ConfigParser(
        ConfigParser.load_config_files([str(folder / f"{name}.json") for name in names])
    )
    warm_start = WARM_START if task == "classification" else {}
    parser.update({"class_names": ["one"], "device": "cpu", **warm_start, **overrides})
    parser.globals.update(monai_afire=monai_afire)
    return parser


def recipe(parser: ConfigParser) -> tuple[float, float, int, bool]:
    """Learning rate of the head, smallest share of it, number of shares, and whether the head starts warm."""
    groups = parser.get_parsed_content("optimizer").param_groups
    shares = {group["lr_scale"] for group in groups}
    is_warm = "warm_start" in parser["train"] and isinstance(
        parser.get_parsed_content("train::warm_start"), HeadWarmStart
    )
    return max(group["lr"] for group in groups), min(shares), len(shares), is_warm


def recipe_of_weights(task: str, num_blocks: int) -> tuple[Any, ...]:
    """What :func:`recipe` gives of a ViT: a share for each block, the embedding and the head."""
    is_classification = task == "classification"
    rate = 0.001 if is_classification else 0.002
    return rate, pytest.approx(0.6 ** (num_blocks + 1)), num_blocks + 2, is_classification


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("given", [{}, {"encoder": "residual"}, {"encoder_weights": ""}])
def test_without_weights_a_residual_network_learns_everywhere_alike(
    task: str, given: dict[str, Any]
) -> None:
    parser = config(task, **given)
    encoder = parser.get_parsed_content("encoder_def")
    assert isinstance(encoder, ResidualEncoder)
    assert (encoder.img_size, encoder.patch_size) == ((128, 128), (16, 16))
    assert encoder.feature_channels == (32, 64, 128, 256)
    assert recipe(parser) == (0.002, 1.0, 1, False)


@pytest.mark.parametrize("task", TASKS)
def test_weights_bring_their_network_and_learn_slower_below(task: str) -> None:
    parser = config(task, encoder_weights="released")
    encoder = parser.get_parsed_content("encoder_def")
    assert isinstance(encoder, ViTEncoder)
    assert (encoder.img_size, encoder.hidden_size, len(encoder.blocks)) == ((64, 64), 192, 6)
    assert recipe(parser) == recipe_of_weights(task, num_blocks=6)


@pytest.mark.parametrize("task", TASKS)
def test_a_vit_from_scratch_is_reached_by_name(task: str) -> None:
    parser = config(task, encoder="vit")
    encoder = parser.get_parsed_content("encoder_def")
    assert isinstance(encoder, ViTEncoder)
    assert (encoder.img_size, encoder.hidden_size, len(encoder.blocks)) == ((128, 128), 192, 5)
    assert recipe(parser) == recipe_of_weights(task, num_blocks=5)
    small = config(
        task, encoder="vit", **at("encoder_def", hidden_size=96, num_layers=4, num_heads=3)
    )
    assert len(small.get_parsed_content("encoder_def").blocks) == 4


def test_a_residual_network_with_weights_has_the_recipe_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    save_network(starting_encoder(image_size=32), path, {"preprocessing": {}})
    parser = config("classification", encoder_weights=str(path))
    assert isinstance(parser.get_parsed_content("encoder_def"), ResidualEncoder)
    rate, smallest, _, is_warm = recipe(parser)
    assert (rate, smallest, is_warm) == (0.001, pytest.approx(0.6**5), True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("overlay", "kind", "rates", "smallest"),
    [
        ("vit_b", ViTEncoder, (1e-3 * 32 / 256, 1e-4), 0.75**13),
        ("swin_b", SwinEncoder, (2e-4 * 32 / 256, 6e-5), 1.0),
    ],
)
def test_large_networks_have_recipes_of_their_own(
    task: str, overlay: str, kind: type, rates: tuple[float, float], smallest: float
) -> None:
    parser = config(task, overlay)
    assert isinstance(parser.get_parsed_content("encoder_def"), kind)
    is_classification = task == "classification"
    rate, share, _, is_warm = recipe(parser)
    assert rate == pytest.approx(rates[0] if is_classification else rates[1])
    assert (share, is_warm) == (pytest.approx(smallest), is_classification)


def test_the_recipe_can_be_chosen_as_a_whole_or_in_part() -> None:
    assert recipe(config("classification", residual_from_scratch=False))[::3] == (0.001, True)
    parser = config("classification", encoder_weights="released", residual_from_scratch=True)
    assert recipe(parser) == (0.002, 1.0, 1, False)
    own = {"learning_rate": 0.1, "optimizer::params::layer_decay": 0.5}
    assert recipe(config("classification", **own)) == (0.1, 0.5**5, 6, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"encoder_def::hidden_size": 100},
            "hidden_size: 100 is for a ViT, and the encoder is residual",
        ),
        (
            {"encoder_def::num_layers": 2, "encoder": "residual"},
            "leave it out, or give --encoder vit",
        ),
        ({"encoder_def::stem": "convolution"}, "--encoder_def::stem: convolution is for a ViT"),
        ({"encoder_def::use_checkpoint": True}, "--encoder_def::use_checkpoint: True is for"),
    ],
)
def test_what_is_for_a_vit_is_not_ignored(given: dict[str, Any], words: str) -> None:
    with pytest.raises((RuntimeError, ValueError)) as caught:
        config("segmentation", **given).get_parsed_content("encoder_def")
    assert words in all_messages(caught.value)


def test_a_vit_by_name_may_be_the_one_of_the_file_and_no_other(tmp_path: Path) -> None:
    same = starting_encoder("released", encoder="vit", num_layers=6)
    assert (same.hidden_size, same.patch_size) == (192, (8, 8))
    path = tmp_path / "model.pt"
    save_network(starting_encoder(image_size=32), path, {"preprocessing": {}})
    with pytest.raises(ValueError, match=r"--encoder: vit contradicts .*which has ResidualEncoder"):
        starting_encoder(path, encoder="vit", image_size=32)
    with pytest.raises(ValueError, match=r"ViT, and .* has ResidualEncoder: leave it out$"):
        starting_encoder(path, image_size=32, num_heads=3)


@pytest.mark.parametrize("method", ["ace", "afire", "dino", "peac"])
def test_pre_training_keeps_its_vit(method: str) -> None:
    file = REPOSITORY_ROOT / f"bundles/{method}/configs/train.json"
    parser = ConfigParser(ConfigParser.load_config_file(str(file)))
    parser.globals.update(monai_afire=monai_afire)
    encoder = parser.get_parsed_content("encoder_def")
    assert isinstance(encoder, ViTEncoder)
    assert (encoder.hidden_size, len(encoder.blocks), encoder.patch_size) == (192, 5, (16, 16))
