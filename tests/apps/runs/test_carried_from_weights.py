# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A training takes the shape of its encoder from the file that it starts from, and refuses contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from apps.runs.bundle_configs import call_of
from torch import nn

from monai_afire.apps.runs import (
    ENCODER_OPTIONS,
    BundleCall,
    OptionError,
    check_call,
    described_options,
)
from monai_afire.networks.weights.model_file import Description, Preprocessing, with_description

ADAPT = ["afire/train", "afire/finetune_anomaly"]
TRANSFER = ["radiograph_segmentation/train"]
ENCODER = {
    "image_size": 64,
    "patch_size": 8,
    "hidden_size": 96,
    "num_layers": 3,
    "num_heads": 4,
    "standardize": True,
}


def start(run: list[str], **overrides: Any) -> BundleCall:
    """The start of a run whose expressions can be evaluated."""
    call = call_of(run, **overrides)
    call.parser.globals["monai_afire"] = __import__("monai_afire")
    return call


def checked(run: list[str], **overrides: Any) -> dict[str, Any]:
    call = start(run, **overrides)
    check_call(call)
    return call.config


def refused(run: list[str], **overrides: Any) -> str:
    with pytest.raises(OptionError) as caught:
        check_call(start(run, **overrides))
    return str(caught.value)


def save(path: Path, changed: dict[str, Any] | None = None, nested: bool = False) -> str:
    """A file with the description of a pre-trained network, whatever its tensors are."""
    options = {**ENCODER, **(changed or {})}
    shape = {
        name: options[name] for name in ("patch_size", "hidden_size", "num_layers", "num_heads")
    }
    encoder = {
        "class": "ViTEncoder",
        "arguments": {"img_size": [options["image_size"]] * 2, **shape},
    }
    network = {"class": "AFiRe", "arguments": {"encoder": encoder, "num_clusters": 12}}
    preprocessing = Preprocessing(options["image_size"], standardize=options["standardize"])
    description = Description("pre-trained AFiRe network", network, preprocessing)
    state = with_description(nn.Linear(2, 1).state_dict(), description)
    torch.save({"optimizer": {"state": {}}, "network": state} if nested else state, path)
    return str(path)


def test_a_file_says_it_by_the_names_of_options(tmp_path: Path) -> None:
    found = described_options(save(tmp_path / "model.pt"))
    assert found == {**ENCODER, "channels": 1}


def test_what_is_given_may_be_said_again_but_not_differ(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt")
    checked(ADAPT, pretrained=path, num_layers=3, standardize="yes", num_heads="$2 * 2")
    message = refused(ADAPT, pretrained=path, num_layers=5, standardize="false", epochs=0)
    assert message.startswith("3 options cannot be used, and nothing was started")
    trained = f"contradicts {path}, which was trained with"
    assert f"\n  --num_layers: 5 {trained} 3: leave it out" in message
    assert f"\n  --standardize: false {trained} true: leave it out" in message
    assert f"--num_heads: 6 {trained} 4" in refused(ADAPT, pretrained=path, num_heads="$2 * 3")
    assert f"--image_size: 128 {trained} 64" in refused(ADAPT, pretrained=path, image_size=128)


def test_a_transfer_may_have_another_resolution(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt")
    config = checked(TRANSFER, encoder_weights=path, image_size=96, patch_size=16)
    assert (config["image_size"], config["patch_size"], config["num_layers"]) == (96, 16, 3)
    assert "--standardize: false contradicts" in refused(
        TRANSFER, encoder_weights=path, standardize="false"
    )
    assert "--hidden_size: 192 contradicts" in refused(
        TRANSFER, encoder_weights=path, hidden_size=192
    )


def test_an_encoder_with_random_weights_may_have_the_shape_of_a_file(tmp_path: Path) -> None:
    """As the experiments compare them."""
    config = checked(
        TRANSFER, encoder_weights=save(tmp_path / "model.pt"), **{"load_encoder::_disabled_": True}
    )
    assert {name: config[name] for name in ENCODER} == ENCODER
    assert config["load_encoder"]["_disabled_"] is True


def test_an_overlay_in_place_of_a_default_is_given(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt")
    message = refused(["afire/train", "afire/paper", "afire/finetune_anomaly"], pretrained=path)
    assert (
        f"--num_layers: 12 (of paper.json) contradicts {path}, which was trained with 3: leave it out"
        in message
    )
    assert "memory_size" not in message


def test_values_that_go_together_in_the_file_are_no_problem_beside_defaults(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", {"image_size": 90, "patch_size": 9, "hidden_size": 100})
    checked(ADAPT, pretrained=path)
    assert "an image of (100, 100) pixels cannot be cut into patches of (9, 9)" in refused(
        TRANSFER, encoder_weights=path, image_size=100
    )


def test_a_resumed_run_goes_by_its_checkpoint_before_its_start(tmp_path: Path) -> None:
    pretrained = save(tmp_path / "pretrained.pt", {"num_layers": 2})
    save(tmp_path / "checkpoint.pt", nested=True)
    settings = {"ckpt_dir": str(tmp_path), "encoder_weights": pretrained}
    assert checked(TRANSFER, **settings, resume="true")["num_layers"] == 3
    assert checked(TRANSFER, **settings)["num_layers"] == 2
    assert checked(TRANSFER, **{**settings, "ckpt_dir": "none"}, resume="true")["num_layers"] == 2


def test_without_the_files_nothing_is_taken(tmp_path: Path) -> None:
    """What was given cannot be told from a default: so it is for MonaiAlgo, which makes its workflows itself."""
    call = start(ADAPT, pretrained=save(tmp_path / "model.pt"))
    check_call(BundleCall(call.parser))
    assert call.config["num_layers"] == 5


@pytest.mark.parametrize("content", [{}, None])
def test_weights_without_a_description_change_nothing(
    tmp_path: Path, content: dict[str, Any] | None
) -> None:
    path = tmp_path / "model.pt"
    if content is not None:
        torch.save(nn.Linear(1, 1).state_dict(), path)
    default = start(TRANSFER).config
    config = checked(TRANSFER, encoder_weights=str(path), num_layers=9)
    assert {name: config[name] for name in ENCODER} == {name: default[name] for name in ENCODER} | {
        "num_layers": 9
    }


def test_released_weights_need_no_shape() -> None:
    own = {
        "image_size": 64,
        "patch_size": 8,
        "hidden_size": 192,
        "num_layers": 6,
        "num_heads": 6,
        "standardize": True,
    }
    config = checked(TRANSFER, encoder_weights="released")
    assert {name: config[name] for name in own} == own
    assert own.keys() <= set(ENCODER_OPTIONS)
    assert "--num_layers: 5 contradicts" in refused(
        TRANSFER, encoder_weights="released", num_layers=5
    )


def test_a_file_is_not_trusted(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", {"num_layers": "$__import__('os').system('touch hacked')"})
    message = refused(TRANSFER, encoder_weights=path)
    assert f"--num_layers: {path} says " in message
    assert not Path("hacked").exists()
