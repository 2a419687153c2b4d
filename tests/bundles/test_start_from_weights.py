# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A training takes the shape of its encoder from the file that it starts from, and refuses contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import REPOSITORY_ROOT, all_messages, at
from monai.bundle import ConfigParser
from torch import nn

import monai_afire
from monai_afire.networks import AFiRe, SwinEncoder, ViTEncoder, save_network
from monai_afire.networks.weights.model_file import Description, Preprocessing, with_description

ADAPT = ("afire/train", "afire/finetune_anomaly")
TRANSFER = ("radiograph_segmentation/train",)
SIZES = {"hidden_size": 24, "num_layers": 3, "num_heads": 4}


def config(run: tuple[str, ...], **overrides: Any) -> ConfigParser:
    """The config of a run, whose expressions can be evaluated."""
    paths = [f"{REPOSITORY_ROOT}/bundles/{name.replace('/', '/configs/')}.json" for name in run]
    parser = ConfigParser(ConfigParser.load_config_files(paths))
    parser.update(overrides)
    parser.globals["monai_afire"] = monai_afire
    return parser


def encoder_of(run: tuple[str, ...], **overrides: Any) -> Any:
    return config(run, **overrides).get_parsed_content("encoder_def")


def refused(run: tuple[str, ...], part: str = "encoder_def", **overrides: Any) -> str:
    with pytest.raises((RuntimeError, ValueError)) as caught:
        config(run, **overrides).get_parsed_content(part)
    return all_messages(caught.value)


def save(path: Path, image_size: int = 64, patch_size: int = 8, **changed: Any) -> str:
    """A pre-trained network with a description."""
    encoder = ViTEncoder(1, image_size, patch_size, **{**SIZES, **changed})
    network = AFiRe(encoder, num_clusters=4, head_dim=8, decoder_dim=8, decoder_heads=2)
    save_network(network, path, {"preprocessing": {"standardize": True}})
    return str(path)


def with_definition(path: Path, definition: dict[str, Any]) -> str:
    """A file that says whatever somebody wrote."""
    description = Description("pre-trained AFiRe network", definition, Preprocessing(64))
    torch.save(with_description(nn.Linear(2, 1).state_dict(), description), path)
    return str(path)


@pytest.mark.parametrize(("run", "option"), [(TRANSFER, "encoder_weights"), (ADAPT, "pretrained")])
def test_a_run_has_the_encoder_and_the_images_of_its_file(
    run: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    parser = config(run, **{option: save(tmp_path / "model.pt")})
    encoder = parser.get_parsed_content("encoder_def")
    assert (encoder.img_size, encoder.patch_size) == ((64, 64), (8, 8))
    assert (encoder.hidden_size, len(encoder.blocks)) == (24, 3)
    images = [parser.get_parsed_content(name) for name in ("image_size", "channels", "standardize")]
    assert images == [64, 1, True]


def test_a_file_that_says_nothing_is_of_a_vit(tmp_path: Path) -> None:
    path = tmp_path / "plain.pt"
    torch.save(nn.Linear(1, 1).state_dict(), path)
    for weights in (str(path), str(tmp_path / "none.pt")):
        parser = config(TRANSFER, encoder_weights=weights, **{"encoder_def::pretrained": False})
        encoder = parser.get_parsed_content("encoder_def")
        assert (encoder.img_size, encoder.patch_size) == ((128, 128), (16, 16))
        assert (encoder.hidden_size, len(encoder.blocks)) == (192, 5)
        assert parser.get_parsed_content("standardize") is False
    sizes = at("encoder_def", pretrained=False, num_layers=2, hidden_size=96)
    assert len(encoder_of(TRANSFER, encoder_weights=str(path), **sizes).blocks) == 2


def test_an_encoder_that_no_option_describes_is_built_too(tmp_path: Path) -> None:
    swin = SwinEncoder(img_size=64, embed_dim=6, depths=(1, 1, 1, 1), num_heads=(1, 1, 1, 1))
    save_network(swin, tmp_path / "swin.pt", {"preprocessing": {}})
    built = encoder_of(TRANSFER, encoder_weights=str(tmp_path / "swin.pt"))
    assert isinstance(built, SwinEncoder)
    assert built.img_size == (64, 64)


def test_what_is_given_may_be_said_again_but_not_differ(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt")
    same = at("encoder_def", num_layers=3, num_heads="$2 * 2")
    encoder_of(TRANSFER, encoder_weights=path, standardize=True, **same)
    for name, value, trained in (
        ("encoder_def::num_layers", 5, 3),
        ("encoder_def::hidden_size", 192, 24),
        ("encoder_def::num_heads", "$2 * 3", 4),
        ("standardize", False, True),
        ("channels", 3, 1),
    ):
        message = refused(TRANSFER, encoder_weights=path, **{name: value})
        given = 6 if name.endswith("num_heads") else value
        assert f"--{name}: {given} contradicts {path}, which was trained with {trained}" in message
    assert "--encoder: residual contradicts" in refused(
        TRANSFER, encoder_weights=path, encoder="residual"
    )


def test_a_transfer_may_have_another_resolution_but_no_whole_network(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt")
    encoder = encoder_of(TRANSFER, encoder_weights=path, image_size=96, patch_size=16)
    assert (encoder.img_size, encoder.patch_size) == ((96, 96), (16, 16))
    assert "an image of (100, 100) pixels cannot be cut into patches of (8, 8)" in refused(
        TRANSFER, encoder_weights=path, image_size=100
    )
    message = refused(ADAPT, "network_def", pretrained=path, image_size=128)
    assert f"--image_size: 128 contradicts {path}, which was trained with 64" in message
    assert (
        config(ADAPT, pretrained=path).get_parsed_content("network_def").encoder.hidden_size == 24
    )


def test_the_settings_of_an_overlay_must_not_differ_either(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt")
    run = ("afire/train", "afire/paper", "afire/finetune_anomaly", "afire/paper_anomaly")
    assert "--encoder_def::hidden_size: 768 contradicts" in refused(run, pretrained=path)
    assert config(run, pretrained="").get_parsed_content("image_size") == 224


def test_released_weights_need_no_shape() -> None:
    encoder = encoder_of(TRANSFER, encoder_weights="released")
    assert (encoder.img_size, encoder.patch_size) == ((64, 64), (8, 8))
    assert (encoder.hidden_size, len(encoder.blocks)) == (192, 6)


def test_a_file_is_not_trusted(tmp_path: Path) -> None:
    code = "$__import__('os').system('touch hacked')"
    arguments = {"img_size": 64, "patch_size": 8, "num_layers": code}
    path = with_definition(tmp_path / "model.pt", {"class": "ViTEncoder", "arguments": arguments})
    assert "ViTEncoder.num_layers is" in refused(TRANSFER, encoder_weights=path)
    path = with_definition(
        tmp_path / "other.pt", {"class": "os.systemEncoder", "arguments": {"img_size": [[1]]}}
    )
    assert "is none of" in refused(TRANSFER, encoder_weights=path)
    assert not Path("hacked").exists()
