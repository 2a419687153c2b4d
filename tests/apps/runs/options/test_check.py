# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options that are wrong are refused with the remedy, texts become what they stand for."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

import pytest
from apps.runs.bundle_configs import call_of, config_files, paths_of, runs
from monai_afire.apps.runs import OPTIONS, OptionError, check_call

from monai_afire.utils.device import device_count

TRAIN = ["afire/train"]
TRAINING_RUNS = [[key] for key in config_files() if key.endswith("/train")]
BAD = {
    "epochs": ["abc", 1.5, 0, True, "nan"],
    "batch_size": ["big", 0],
    "learning_rate": [-1, "inf", float("inf"), float("nan")],
    "encoder_def::num_layers": [0, 0.5],
    "encoder_def::num_heads": [0],
    "patch_size": [0],
    "seed": ["abc", -1],
    "train::run::val_interval": [0, "two"],
    "cache": ["ram"],
    "num_workers": [-1],
    "device": ["gpu", "cuda:99", 3.5],
    "train::inferer::enabled": ["maybe", 2],
    "resume": ["flase"],
    "output_dir": [True, 1.5],
    "phantom": ["small"],
}
BAD_OF_ONE = [
    ("mae/train", "crop_scale", [0.5, 2]),
    ("afire/train", "accumulation_steps", 0),
    ("radiograph_classification/train", "flip_prob", 2),
    ("radiograph_classification/train", "uncertain", "maybe"),
    ("radiograph_classification/train", "items::num_folds", 1),
    ("radiograph_classification/train", "train::dataloader::min_batches", 0),
    ("radiograph_classification/inference", "picture_size", 0),
    ("afire/inference", "saved", ["overlays", "rumours"]),
]


def problems(run: list[str], **overrides: Any) -> str:
    """What the check says; fails where it says nothing."""
    with pytest.raises(OptionError) as caught:
        check_call(call_of(run, **overrides))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
@pytest.mark.parametrize("run", TRAINING_RUNS, ids=" ".join)
def test_a_bad_value_is_refused_with_what_is_needed(run: list[str], name: str, value: Any) -> None:
    message = problems(run, **{name: value})
    assert f"--{name}: found {value!r}, needs {OPTIONS[name].values}" in message
    assert message.startswith("1 option cannot be used, and nothing was started")


@pytest.mark.parametrize(("key", "name", "value"), BAD_OF_ONE)
def test_a_bad_value_of_one_bundle_is_refused(key: str, name: str, value: Any) -> None:
    assert f"--{name}: found {value!r}, needs {OPTIONS[name].values}" in problems(
        [key], **{name: value}
    )


@pytest.mark.parametrize("run", runs(), ids=" ".join)
def test_every_run_refuses_what_it_does_not_know(run: list[str]) -> None:
    assert "--batch_sze: there is no such option; did you mean --batch_size?" in problems(
        run, batch_sze=4
    )


@pytest.mark.parametrize("name", ["crop_scale", "saved", "epochs"])
def test_the_example_can_be_pasted_into_a_shell(name: str) -> None:
    """Each word that a shell makes of it is one value, which the option takes."""
    key = {"crop_scale": "mae/train", "epochs": "afire/train"}.get(name, "afire/inference")
    call = call_of([key], **{name: "no"})
    with pytest.raises(OptionError) as refused:
        check_call(call)
    [option, value] = shlex.split(str(refused.value).split(", such as ")[1])
    assert option == f"--{name}"
    assert OPTIONS[name].read(json.loads(value)) == call.files.get(name)


def test_the_message_gives_the_default_as_example() -> None:
    assert problems(TRAIN, epochs="abc").endswith(
        "--epochs: found 'abc', needs a whole number >= 1, such as --epochs 9"
    )


def test_all_problems_are_in_one_message() -> None:
    message = problems(TRAIN, epoch=1, batch_size="big", image_size=0)
    assert message.startswith("3 options cannot be used")
    assert all(f"\n  --{name}: " in message for name in ("epoch", "batch_size", "image_size"))


def test_an_entry_of_what_is_built_from_the_file_is_refused() -> None:
    message = problems(
        ["radiograph_classification/train", "radiograph_classification/evaluate"],
        **{"network_def::freeze_encoder": True},
    )
    assert (
        "--network_def::freeze_encoder: leave it out: the network is built from the file" in message
    )


@pytest.mark.parametrize("late", ["lesions_on_device"])
def test_an_overlay_after_one_that_follows_it_is_refused_with_the_right_order(late: str) -> None:
    wrong = ["afire/train", "afire/finetune_anomaly", f"afire/{late}"]
    [order] = re.findall(r"give \"(.+)\"", problems(wrong))
    assert f"--config_file: {late}.json must come before finetune_anomaly.json" in problems(wrong)
    train, adapt, other = paths_of(wrong)
    assert ast.literal_eval(order) == [train, other, adapt]


@pytest.mark.parametrize(
    "run",
    [
        ["afire/color", "afire/inference"],
        ["peac/color", "peac/train"],
        ["radiograph_classification/color", "radiograph_classification/train"],
    ],
    ids=" ".join,
)
def test_an_overlay_before_its_config_is_refused_with_the_right_order(run: list[str]) -> None:
    [order] = re.findall(r"give \"(.+)\"", problems(run))
    assert ast.literal_eval(order) == paths_of(run[::-1])


def test_the_right_order_of_overlays_is_accepted_and_the_last_one_counts() -> None:
    adapting = call_of(["afire/train", "afire/finetune_anomaly"]).config
    call = call_of(
        ["afire/train", "afire/lesions_on_device", "afire/finetune_anomaly"], pretrained=""
    )
    check_call(call)
    assert [call.parser[name] for name in ("epochs", "train::run::val_interval")] == [18, 6]
    assert call.config["add_lesions"] == adapting["add_lesions"]
    assert call.config["train"]["lr_schedule"] == adapting["train"]["lr_schedule"]


def test_files_that_no_overlay_has_to_follow_come_in_any_order() -> None:
    bundle = "radiograph_classification"
    for order in (["color", "swin_b"], ["swin_b", "color"]):
        check_call(call_of([f"{bundle}/train", *(f"{bundle}/{name}" for name in order)]))


@pytest.mark.parametrize(
    ("run", "id", "message"),
    [
        (TRAIN, "ckptdir", "--ckptdir: there is no such option; did you mean --ckpt_dir?"),
        (
            TRAIN,
            "ckptpath",
            "--ckptpath: there is no such option; ckpt_path is one of other runs: leave it out",
        ),
        (TRAIN, "num_classes", "--num_classes: nothing reads it in this run; leave it out"),
        (
            ["dino/inference"],
            "image_size",
            "--image_size: leave it out: the network is built from the file",
        ),
        (
            ["dino/inference"],
            "network_def::head_dim",
            "--network_def::head_dim: leave it out: the network is built",
        ),
        (
            ["radiograph_classification/inference"],
            "num_classes",
            "--num_classes: nothing reads it in this run",
        ),
        (TRAIN, "train.trainer.max_epochs", "did you mean --train::trainer::max_epochs?"),
        (
            TRAIN,
            "train::trainer::max_epocs",
            "train::trainer has no 'max_epocs'; did you mean 'max_epochs'?",
        ),
        (
            TRAIN,
            "encoder_def::num_layer",
            "encoder_def has no 'num_layer'; did you mean 'num_layers'?",
        ),
        (TRAIN, "train::dataset_", "train has no 'dataset_'; did you mean 'dataset'?"),
        (TRAIN, "phantom::sead", "--phantom: it has no entry 'sead'; did you mean 'seed'?"),
        (TRAIN, "phantom::num_patients::trainig", "no entry 'num_patients::trainig'; did you mean"),
    ],
)
def test_an_entry_that_is_not_there_is_refused(run: list[str], id: str, message: str) -> None:
    assert message in problems(run, **{id: 32})


@pytest.mark.parametrize(
    ("bundle", "name", "suggested"),
    [
        ("afire", "lr", "did you mean --learning_rate?"),
        ("afire", "phantom_dir", "did you mean --items::phantom::folder?"),
        ("afire", "phantom_seed", "did you mean --phantom::seed?"),
        ("afire", "bs", "did you mean --batch_size?"),
        ("afire", "num_masks", "did you mean --add_lesions::num_masks?"),
        ("afire", "lesion_amplitude", "did you mean --add_lesions::amplitude?"),
        ("afire", "use_prototypes", "did you mean --network_def::use_prototypes?"),
        ("afire", "include_abnormal_pairs", "did you mean --loss::include_abnormal_pairs?"),
        ("afire", "warmup_epochs", "did you mean --train::lr_schedule::warmup_epochs?"),
        ("afire", "weight_decay", "did you mean --optimizer::weight_decay?"),
        ("afire", "lesions_on_device", "add the config lesions_on_device.json"),
        ("peac", "paint_prob", "did you mean --distort_appearance::paint_prob?"),
        ("dino", "local_size", "did you mean --make_crops::local_size?"),
        ("mae", "mask_ratio", "did you mean --hide_patches::mask_ratio?"),
        (
            "radiograph_classification",
            "layer_decay",
            "did you mean --optimizer::params::layer_decay?",
        ),
        (
            "radiograph_classification",
            "patience",
            "did you mean --train::run::early_stopping::patience?",
        ),
        ("radiograph_segmentation", "num_shots", "did you mean --items::num_shots?"),
        ("mae", "hidden_size", "did you mean --encoder_def::hidden_size?"),
        ("radiograph_landmarks", "num_folds", "did you mean --items::num_folds?"),
    ],
)
def test_a_setting_is_suggested_by_its_path(bundle: str, name: str, suggested: str) -> None:
    assert f"--{name}: " in problems([f"{bundle}/train"], **{name: 3})
    assert suggested in problems([f"{bundle}/train"], **{name: 3})


@pytest.mark.parametrize(
    ("run", "option"),
    [
        (["afire/inference", "afire/evaluate"], "picture_size"),
    ],
)
def test_an_option_that_an_overlay_has_made_idle_is_told(run: list[str], option: str) -> None:
    with pytest.warns(UserWarning, match=f"--{option} has no effect"):
        check_call(call_of(run, **{option: 96}))


@pytest.mark.parametrize(
    ("run", "overrides"),
    [
        (
            TRAIN,
            {
                "train::trainer::max_epochs": 3,
                "encoder_def::stem": "convolution",
                "phantom::num_patients::test": 3,
            },
        ),
        (TRAIN, {"train::run::save_interval": 2, "optimizer::betas": [0.9, 0.95]}),
        (TRAIN, {"width": 24, "encoder_def::hidden_size": "$2 * @width"}),
        (
            TRAIN,
            {
                "learning_rate": "$0.1 ** 3",
                "output_dir": "2024",
                "epochs": 10,
                "pin": "%width",
                "width": 3,
            },
        ),
        (["afire/train", "afire/finetune_anomaly"], {"pretrained": "", "specificity": "$None"}),
        (
            ["afire/inference", "afire/analysis"],
            {"studies::3::reference": 10, "weights": {"other": None}},
        ),
    ],
)
def test_what_is_there_is_accepted(run: list[str], overrides: dict[str, Any]) -> None:
    if "pin" in overrides:
        overrides = {**overrides, "batch_size": "@pin"}
    check_call(call_of(run, **overrides))


def test_an_overlay_may_hold_options_of_other_runs_but_no_unknown_ones() -> None:
    """The file with the network's shape goes with training and inference, of which each reads a part."""
    call = call_of(["afire/inference"])
    call.config.update(
        epochs=3, _remark="ours", my_run=["$@evaluator.run()"], my_part={"_target_": "Compose"}
    )
    check_call(call)
    call.config["epoch"] = 3
    with pytest.raises(OptionError, match="--epoch: there is no such option"):
        check_call(call)


@pytest.mark.parametrize(
    ("name", "given", "needed"),
    [
        *(("resume", given, "needs True or False") for given in ("true", "false", "no", 0, 1)),
        *(("epochs", given, "needs a whole number >= 1") for given in (10.0, "3")),
        ("output_dir", 2024, "needs a path"),
        ("num_classes", "null", "write '$None'"),
        ("num_classes", None, "write '$None'"),
        ("network_def::freeze_encoder", "true", "needs True or False"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, given: Any, needed: str) -> None:
    """Nothing in the running config is changed, so the text "false" would count as true."""
    message = problems(["radiograph_classification/train"], **{name: given})
    assert f"--{name}: " in message
    assert needed in message


def test_the_config_is_left_as_it_is() -> None:
    call = call_of(TRAIN, device="cpu", resume=True)
    before = json.dumps(call.config)
    check_call(call)
    assert json.dumps(call.config) == before


def test_a_device_that_the_machine_lacks_is_refused() -> None:
    number = device_count("cuda")
    has = f"{number} CUDA devices)" if number else "no CUDA device: leave it out, or give cpu)"
    assert f"(this machine has {has}" in problems(TRAIN, device=f"cuda:{number}")
    assert "found 'meta', needs a device of this machine: cpu, cuda, xpu or mps" in problems(
        TRAIN, device="meta"
    )
