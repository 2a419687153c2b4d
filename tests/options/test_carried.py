# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What travels with weights is written with them, taken from there, and not contradicted in silence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.bundle import ConfigParser
from safetensors.torch import save_file
from torch import nn

from monai_afire.networks import TransferClassifier, ViTEncoder, export_encoder
from monai_afire.networks.weights.released import released_encoder
from monai_afire.options import OPTIONS, BundleCall, OptionError, check_call, kinds, taken_names, travelling_options
from monai_afire.options.carried import carried_options
from monai_afire.utils import read_options, with_options
from tests.options.bundle_configs import BUNDLES, call_of, config_files, paths_of

ADAPT = ["afire/train", "afire/finetune_anomaly"]
TRANSFER = ["radiograph_segmentation/train"]
EVALUATE = ["radiograph_segmentation/train", "radiograph_segmentation/evaluate"]
USE = ["afire/inference"]
ENCODER = {"image_size": 64, "patch_size": 8, "hidden_size": 96, "num_layers": 3, "num_heads": 4, "standardize": True}


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


def save(path: Path, options: dict[str, Any], nested: bool = False) -> str:
    state = with_options(nn.Linear(2, 1).state_dict(), options)
    torch.save({"optimizer": {"state": {}}, "network": state} if nested else state, path)
    return str(path)


def travelling_run(run: list[str], **overrides: Any) -> dict[str, Any]:
    """What a run saves with its weights."""
    content = ConfigParser.load_config_files(paths_of(run))
    parser = ConfigParser(json.loads(json.dumps(content)), globals={"monai_afire": "monai_afire"})
    parser.update({**overrides, "saved": "$monai_afire.options.travelling_options()"})
    found = parser.get_parsed_content("saved")
    assert isinstance(found, dict)
    return found


def test_a_state_dict_that_carries_options_is_a_plain_one(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    options = {"a": 1, "b": 0.1, "c": "x", "d": True, "e": [1, [2.5, "y"]]}
    state = with_options(network.state_dict(), options)
    assert not network.state_dict()._metadata[""].get("monai_afire"), "the network itself was changed"
    torch.save(state, tmp_path / "model.pt")
    read = torch.load(tmp_path / "model.pt", weights_only=True)
    assert list(read) == list(network.state_dict())
    assert all(isinstance(value, torch.Tensor) for value in read.values())
    assert read._metadata["1"] == network.state_dict()._metadata["1"]  # type: ignore[attr-defined]
    network.load_state_dict(read, strict=True)
    assert read_options(tmp_path / "model.pt") == options
    torch.save(read, tmp_path / "again.pt")
    assert read_options(tmp_path / "again.pt") == options, "lost by whom reads and saves it"
    torch.save(dict(read), tmp_path / "bare.pt")
    assert read_options(tmp_path / "bare.pt") == {}


def test_files_of_others_and_damaged_ones_carry_none(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(1)}, "epoch": 3}, tmp_path / "timm.pth")
    torch.save(nn.Linear(1, 1).state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(nn.Linear(1, 1), tmp_path / "code.pt")
    save_file({"w": torch.ones(1)}, tmp_path / "other.safetensors")
    save_file({"w": torch.ones(1)}, tmp_path / "list.safetensors", metadata={"options": "[1]"})
    save_file({"w": torch.ones(1)}, tmp_path / "text.safetensors", metadata={"options": "{"})
    whole = Path(save(tmp_path / "whole.pt", {"num_layers": 3})).read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.pt").touch()
    (tmp_path / "folder").mkdir()
    paths = [path for path in tmp_path.iterdir() if path.name != "whole.pt"]
    assert {path.name: read_options(path) for path in paths} == {path.name: {} for path in paths}


def drawn(kind: kinds.Kind, rng: random.Random) -> Any:
    """Some value of a kind."""
    if isinstance(kind, kinds.Integer):
        return rng.randint(int(kind.minimum or 0), int(kind.maximum or 999))
    if isinstance(kind, kinds.Number):
        low, high = kind.minimum or kind.above or 0.0, kind.maximum or kind.below or 10.0
        return rng.uniform(low + 1e-6, high - 1e-6)
    if isinstance(kind, kinds.Switch):
        return rng.random() < 0.5
    if isinstance(kind, kinds.Choice):
        return rng.choice(kind.words)
    if isinstance(kind, kinds.Encoder):
        return rng.choice(["timm:vit_small_patch16_224", "hub:some/model", "hub:folder:random"])
    if isinstance(kind, kinds.PerAxis):
        value = drawn(kind.kind, rng)
        return rng.choice([value, [value] * 2, [value] * 3])
    assert isinstance(kind, kinds.ListOf), kind
    values = [drawn(kind.kind, rng) for _ in range(kind.length or rng.randint(1, 3))]
    return sorted(values) if kind.ascending else values


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("nested", [False, True])
def test_any_values_arrive_as_they_were_written(tmp_path: Path, seed: int, nested: bool) -> None:
    rng = random.Random(seed)
    values = {name: drawn(OPTIONS[name].kind, rng) for name in taken_names("result")}
    path = save(tmp_path / "model.pt", values, nested)
    run = rng.choice([["afire/inference"], ["peac/inference"], ["ace/inference"], ["radiograph_landmarks/inference"]])
    call = start(run, ckpt_path=path)
    found = {carried.name: carried.value for carried in carried_options(call) if not isinstance(carried, tuple)}
    expected = {name: values[name] for name in values if name in call.config and name in call.read_names}
    assert found == expected
    assert {"image_size", "hidden_size", "standardize"} <= set(found)
    assert all(type(found[name]) is type(values[name]) for name in found)


def test_a_described_encoder_does_not_travel(tmp_path: Path) -> None:
    vit = {"_target_": "monai.networks.nets.ViT", "in_channels": 1, "img_size": [32, 32], "patch_size": [8, 8]}
    vit |= {"hidden_size": 24, "mlp_dim": 48, "num_layers": 1, "num_heads": 2, "spatial_dims": 2}
    saved = travelling_run(["afire/train"], encoder=vit, image_size=32, patch_size=8)
    assert "encoder" not in saved
    assert saved["image_size"] == 32
    assert (
        travelling_run(["afire/train"], encoder="timm:vit_tiny_patch16_224")["encoder"] == "timm:vit_tiny_patch16_224"
    )


@pytest.mark.parametrize("run", [run for run in config_files() if run.endswith("/train")])
def test_what_a_training_saves_is_what_its_steps_take(tmp_path: Path, run: str) -> None:
    given = {name: value for name, value in ENCODER.items() if name != "patch_size"} | {"patch_size": 4}
    given |= {"grid": 40} if "grid" in config_files()[run] else {}
    saved = travelling_run([run], **given)
    assert given.items() <= saved.items()
    plain = {name for name, value in config_files()[run].items() if value is not None}
    assert taken_names("result") & plain == set(saved) - {"class_names"}
    path = save(tmp_path / "model.pt", saved)
    config = checked([run.replace("train", "inference")], ckpt_path=path)
    assert {name: config[name] for name in given} == given


def test_every_level_takes_its_own(tmp_path: Path) -> None:
    saved = {**ENCODER, "decoder_channels": 16, "num_classes": 3, "num_clusters": 12, "similarity": "cosine"}
    path = save(tmp_path / "model.pt", saved)
    transfer = checked(TRANSFER, encoder_weights=path)
    assert {name: transfer[name] for name in ENCODER} == ENCODER
    assert (transfer["decoder_channels"], transfer["num_classes"]) == (64, None), "of another task"
    adapt = checked(ADAPT, pretrained=path)
    assert (
        ENCODER.items() | {("num_clusters", 12)} <= {name: adapt[name] for name in (*ENCODER, "num_clusters")}.items()
    )
    assert adapt["similarity"].startswith("$"), "how to go on training is free"
    assert checked(USE, ckpt_path=path)["similarity"] == "cosine"
    evaluation = checked(EVALUATE, ckpt_path=path, encoder_weights="elsewhere.pt")
    assert (evaluation["decoder_channels"], evaluation["num_classes"]) == (16, 3)


def test_what_is_given_may_be_said_again_but_not_differ(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", ENCODER)
    checked(ADAPT, pretrained=path, num_layers=3, standardize="yes", num_heads="$2 * 2")
    message = refused(ADAPT, pretrained=path, num_layers=5, standardize="false", epochs=0)
    assert message.startswith("3 options cannot be used, and nothing was started")
    trained = f"contradicts {path}, which was trained with"
    assert f"\n  --num_layers: 5 {trained} 3: leave it out" in message
    assert f"\n  --standardize: false {trained} true: leave it out" in message
    assert f"--num_heads: 6 {trained} 4" in refused(ADAPT, pretrained=path, num_heads="$2 * 3")
    assert f"--image_size: 128 {trained} 64" in refused(ADAPT, pretrained=path, image_size=128)


def test_a_transfer_may_have_another_resolution(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", ENCODER)
    config = checked(TRANSFER, encoder_weights=path, image_size=96, patch_size=16)
    assert (config["image_size"], config["patch_size"], config["num_layers"]) == (96, 16, 3)
    assert "--standardize: false contradicts" in refused(TRANSFER, encoder_weights=path, standardize="false")
    assert "--hidden_size: 192 contradicts" in refused(TRANSFER, encoder_weights=path, hidden_size=192)


def test_an_overlay_in_place_of_a_default_is_given(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", ENCODER)
    message = refused(["afire/train", "afire/paper", "afire/finetune_anomaly"], pretrained=path)
    assert f"--num_layers: 12 (of paper.json) contradicts {path}, which was trained with 3: leave it out" in message
    assert "memory_size" not in message
    # what a step's own overlay brings is its default
    resumed = save(tmp_path / "checkpoint.pt", {**ENCODER, "memory_size": 7}, nested=True)
    config = checked(ADAPT, ckpt_dir=str(Path(resumed).parent), resume="true", pretrained=None)
    assert config["memory_size"] == 7


def test_values_that_go_together_in_the_file_are_no_problem_beside_defaults(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", {**ENCODER, "image_size": 90, "patch_size": 9, "hidden_size": 100})
    checked(ADAPT, pretrained=path)
    assert "patch_size 9 does not divide image_size 100" in refused(TRANSFER, encoder_weights=path, image_size=100)


def test_a_resumed_run_goes_by_its_checkpoint_before_its_start(tmp_path: Path) -> None:
    pretrained = save(tmp_path / "pretrained.pt", {**ENCODER, "num_layers": 2})
    save(tmp_path / "checkpoint.pt", ENCODER, nested=True)
    settings = {"ckpt_dir": str(tmp_path), "encoder_weights": pretrained}
    assert checked(TRANSFER, **settings, resume="true")["num_layers"] == 3
    assert checked(TRANSFER, **settings)["num_layers"] == 2
    assert checked(TRANSFER, **{**settings, "ckpt_dir": "none"}, resume="true")["num_layers"] == 2


@pytest.mark.parametrize("content", [{}, None])
def test_weights_without_options_change_nothing(tmp_path: Path, content: dict[str, Any] | None) -> None:
    path = tmp_path / "model.pt"
    if content is not None:
        torch.save(nn.Linear(1, 1).state_dict(), path)
    default = start(TRANSFER).config
    config = checked(TRANSFER, encoder_weights=str(path), num_layers=9)
    assert {name: config[name] for name in ENCODER} == {name: default[name] for name in ENCODER} | {"num_layers": 9}


def test_without_the_files_nothing_is_taken(tmp_path: Path) -> None:
    """What was given cannot be told from a default: so it is for MonaiAlgo, which makes its workflows itself."""
    call = start(ADAPT, pretrained=save(tmp_path / "model.pt", ENCODER))
    check_call(BundleCall(call.parser))
    assert call.config["num_layers"] == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_layers", "$__import__('os').system('touch hacked')"),
        ("num_layers", 0),
        ("num_layers", "@epochs"),
        ("standardize", {"_target_": "os.getcwd"}),
        ("fusion", ["$print()"]),
        ("image_size", None),
    ],
)
def test_a_file_is_not_trusted(tmp_path: Path, name: str, value: Any) -> None:
    path = save(tmp_path / "model.pt", {**ENCODER, name: value, "run": ["$print()"], "epochs": 3, "newer_option": 1})
    message = refused(USE, ckpt_path=path)
    assert message.startswith("1 option cannot be used")
    assert f"--{name}: {path} says " in message
    assert not Path("hacked").exists()


def test_an_analysis_goes_by_the_encoders_that_it_compares(tmp_path: Path) -> None:
    run = ["peac/inference", "peac/analysis"]
    paths = [save(tmp_path / f"{size}.pt", {**ENCODER, "image_size": size}) for size in (64, 32)]
    config = checked(run, weights={"a": paths[0], "b": paths[1], "untrained": None, "timm": "dino.pth"})
    assert (config["image_size"], config["num_layers"], config["standardize"]) == (64, 3, True)
    other = save(tmp_path / "other.pt", {**ENCODER, "standardize": False})
    message = refused(run, weights={"a": paths[0], "b": other})
    assert f"--standardize: {other} was trained with false, {paths[0]} with true" in message
    assert checked(run, ckpt_path=paths[1])["image_size"] == 32


def test_wrong_paths_are_for_their_own_message() -> None:
    message = refused(USE, ckpt_path=True, epochs=3)
    assert "--ckpt_path: found True, needs a path" in message


def test_safetensors_carry_them_too(tmp_path: Path) -> None:
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    for network in (encoder, TransferClassifier(encoder, 2)):
        path = export_encoder(network, tmp_path / "encoder.safetensors", options={"standardize": True, "num_layers": 9})
        own = {"image_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
        assert read_options(path) == {**own, "standardize": True}
    oblong = ViTEncoder(img_size=(32, 64), patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    assert "image_size" not in read_options(export_encoder(oblong, tmp_path / "oblong.safetensors"))


def test_released_weights_need_no_shape() -> None:
    own = {"image_size": 64, "patch_size": 8, "hidden_size": 192, "num_layers": 6, "num_heads": 6, "standardize": True}
    assert read_options(released_encoder()) == own
    config = checked(TRANSFER, encoder_weights="released")
    assert {name: config[name] for name in own} == own
    config = checked(["afire/inference", "afire/released"], bundle_root=str(BUNDLES / "afire"))
    assert {name: config[name] for name in own} == own
    assert "--num_layers: 5 contradicts" in refused(TRANSFER, encoder_weights="released", num_layers=5)


def test_options_that_travel_are_no_macros() -> None:
    """A macro is replaced by the default before the weights are read."""
    texts = [json.dumps(config) for config in config_files().values()]
    assert not [name for name in taken_names("result") for text in texts if f'"%{name}"' in text]


def test_it_is_for_configs_alone() -> None:
    with pytest.raises(RuntimeError, match="config"):
        travelling_options()
