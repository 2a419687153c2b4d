# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Command lines to type next."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from apps.runs.bundle_configs import call_of, paths_of
from fire.parser import DefaultParseValue
from monai_afire.apps.runs import check_call
from monai_afire.apps.runs.config_entries import text_of
from monai_afire.apps.runs.follow_up import follow_up_command, resume_command

from monai_afire_cli.options.words import option_words

FILES: dict[str, dict[str, Any]] = {
    "train": {
        "epochs": 9,
        "hidden_size": 192,
        "output_dir": "o",
        "resume": False,
        "learning_rate": 0.1,
        "encoder": {},
    },
    "adapt": {"epochs": 18, "pretrained": None, "train::run::network": "@detector"},
    "inference": {
        "hidden_size": 192,
        "output_dir": "i",
        "ckpt_path": "m",
        "dataset_dir": None,
        "encoder": {},
    },
    "paper": {"hidden_size": 768, "epochs": 800, "learning_rate": "$0.1 * 2"},
    "swin": {"encoder": {"_target_": "SwinEncoder"}},
}
RUN = "python -m monai.bundle run --config_file "


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configs, in which the test starts."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_the_same_training_goes_on_with_all_that_the_added_config_leaves(configs: Path) -> None:
    given = {
        "config_file": "train.json",
        "epochs": "5",
        "hidden_size": "384",
        "resume": "true",
        "output_dir": "/a b",
    }
    command = follow_up_command(["train.json", "adapt.json"], {"pretrained": "m.pt"}, given)
    assert command == RUN + "\"['train.json','adapt.json']\" --hidden_size 384 --pretrained m.pt"


def test_overlays_are_repeated(configs: Path) -> None:
    given = {"config_file": "['train.json','paper.json']"}
    assert follow_up_command(["train.json", "adapt.json"], {}, given) == (
        RUN + "\"['train.json','paper.json','adapt.json']\""
    )


def test_another_config_gets_neither_settings_nor_folders_nor_overlays(configs: Path) -> None:
    given = {
        "config_file": "['train.json','paper.json','swin.json']",
        "output_dir": "/x",
        "encoder": "timm:vit",
    }
    command = follow_up_command(["inference.json"], {"ckpt_path": "m.pt"}, given)
    assert command == RUN + "inference.json --ckpt_path m.pt"


def test_an_evaluation_is_on_the_images_of_the_run(configs: Path) -> None:
    images = {"dataset_dir": "/hospital a", "phantom::seed": "3", "items::phantom::folder": "f"}
    given = {"config_file": "train.json", **images, "ckpt_path": "old.pt"}
    start = RUN + "inference.json"
    assert follow_up_command(["inference.json"], {}, given) == start
    command = follow_up_command(["inference.json"], {}, given, same_images=True)
    words = "--dataset_dir '/hospital a' --phantom::seed 3 --items::phantom::folder f"
    assert command == f"{start} {words}"


def test_what_is_built_from_the_weights_is_not_repeated(configs: Path) -> None:
    (configs / "evaluate.json").write_text(
        json.dumps(
            {
                "network_def": {
                    "_target_": "monai_afire.networks.saved_network",
                    "file": "@model_file",
                }
            }
        )
    )
    given = {"config_file": "train.json", "network_def::channels": "8", "encoder::depth": "2"}
    command = follow_up_command(["train.json", "evaluate.json"], {}, given)
    assert command == RUN + "\"['train.json','evaluate.json']\" --encoder::depth 2"


def test_a_config_that_is_not_there(configs: Path) -> None:
    assert follow_up_command(["train.json", "none.json"], {}, {}) is None


def test_what_settles_two_overlays_is_added() -> None:
    """After the paper's pre-training comes the paper's anomaly detection, which is accepted."""
    run = ["afire/train", "afire/paper", "afire/finetune_anomaly", "afire/paper_anomaly"]
    train, paper, adapt, settling = paths_of(run)
    given = {"config_file": f"['{train}','{paper}']"}
    command = follow_up_command([train, adapt], {}, given)
    assert command == RUN + f"\"['{train}','{paper}','{adapt}','{settling}']\""
    check_call(call_of(run, pretrained=""))


def test_a_stopped_run_goes_on_by_its_command_and_its_name() -> None:
    given = {
        "config_file": "['train.json','paper.json']",
        "dataset_dir": "/hospital a",
        "epochs": "9",
        "resume": "False",
        "train::run::seed": "3",
    }
    words = shlex.split(resume_command(given, "2026-11-28_101420"))
    assert words[:4] == ["python", "-m", "monai.bundle", "run"]
    found = option_words(words[4:])
    assert found == {**given, "name": "2026-11-28_101420", "resume": "True"}


def test_a_run_in_a_folder_of_its_own_goes_on_there() -> None:
    given = {"config_file": "train.json", "output_dir": "/x", "ckpt_dir": "/y"}
    start = RUN + "train.json --output_dir /x --ckpt_dir /y --resume True"
    assert resume_command(given, None) == start


@pytest.mark.parametrize(
    "name",
    ["2026-11-28_101420", "2026-01-05_091420_2", "1-2", "2024", "ward #3", "1e3", "it's $5", "-x"],
)
def test_a_printed_name_is_read_as_the_name(name: str) -> None:
    """By a shell, Fire and MONAI; names of digits and dashes need no signs around them."""
    command = resume_command({"config_file": "train.json"}, name)
    read = ["sh", "-c", f"printf '%s\\n' {command}"]
    typed = subprocess.run(read, capture_output=True, text=True, check=True).stdout.splitlines()
    word = option_words(typed)["name"]
    assert text_of(DefaultParseValue(word)) == name
    if re.fullmatch(r"[\d_]+-[\d_-]+", name):
        assert f"--name {name} " in command


def test_weights_to_start_from_are_not_repeated_beside_the_whole_network(configs: Path) -> None:
    entries = {"encoder_weights": None, "encoder_branch": "teacher", "ckpt_path": "", "seed": 0}
    (configs / "train.json").write_text(json.dumps(entries))
    (configs / "evaluate.json").write_text("{}")
    given = {
        "config_file": "train.json",
        "encoder_weights": "released",
        "encoder_branch": "student",
    }
    start = RUN + "\"['train.json','evaluate.json']\""
    files = ["train.json", "evaluate.json"]
    assert follow_up_command(files, {"ckpt_path": "m.pt"}, given) == start + " --ckpt_path m.pt"
    assert "--encoder_weights released" in str(follow_up_command(files, {}, given))
