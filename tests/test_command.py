# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The command ``monai-afire``: what it reads, refuses, prints, copies and runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration.bundle_runs import TINY, write_images
from monai.bundle import ConfigParser

import monai_afire_cli
from monai_afire.utils.text import literal
from monai_afire_cli import check, check_call, config_files, main, merged_config, overrides

BUNDLES = Path(__file__).resolve().parents[1] / "bundles"
CONFIGS = sorted(
    path for path in BUNDLES.glob("*/configs/**/*.json") if path.stem not in ("metadata", "train")
)
CONFIG = {
    "imports": ["$import monai_afire"],
    "epochs": 9,
    "learning_rate": 0.001,
    "image_size": "$64",
    "cache": "memory",
    "name": None,
    "specificity": None,
    "dataset_dir": None,
    "datalist": None,
    "resume": False,
    "saved": ["overlays"],
    "add_lesions": {"_target_": "Lesions", "amplitude": "@learning_rate"},
    "train": {"lr_schedule": {"end": 0.0}, "handlers": [{"start": 1}]},
}
TINY_WORDS = [
    f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"
    for name, value in TINY.items()
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*words: str) -> dict[str, Any]:
    return check(CONFIG, overrides(words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--epochs 3", {"epochs": 3}),
        ("--name 1e5", {"name": "1e5"}),
        ("--name null", {"name": None}),
        ("--name=-x", {"name": "-x"}),
        ("--cache None", {"cache": None}),
        ("--cache 7", {"cache": "7"}),
        ("--resume", {"resume": True}),
        ("--resume=false", {"resume": False}),
        ("--saved \"['maps','sr']\"", {"saved": ["maps", "sr"]}),
        ("--epochs '$1 + 2'", {"epochs": "$1 + 2"}),
        ("--train#lr-schedule#end 1", {"train::lr_schedule::end": 1}),
        ("--train::handlers::0::start 2", {"train::handlers::0::start": 2}),
        ("--add_lesions::copies 2", {"add_lesions::copies": 2}),
        ("--mine 3 --epochs @mine", {"mine": 3, "epochs": "@mine"}),
        ("--run_id export --tracking mlflow", {"run_id": "export", "tracking": "mlflow"}),
    ],
)
def test_values_are_read_once(words: str, expected: dict[str, Any]) -> None:
    assert read(*shlex.split(words)) == expected


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--epoch 3", "'epochs'"),
        ("--end 3", "--train::lr_schedule::end"),
        ("--amplitude 3", "--learning_rate"),
        ("--epochs::x 3", "--epochs::x"),
        ("--epochs three", "three"),
        ("--epochs 0", "--epochs"),
        ("--epochs", "--epochs"),
        ("--learning_rate fast", "fast"),
        ("--resume maybe", "maybe"),
        ("--dataset_dir nowhere", "nowhere"),
        ("--dataset_dir labels.json", "--datalist"),
        ("--datalist labels.csv", "monai-afire data table"),
        ("--dataset_dir --epochs 3", "--dataset_dir"),
        ("stray", "stray"),
    ],
)
def test_refusals_name_the_option_or_what_was_meant(words: str, named: str) -> None:
    for name in ("labels.csv", "labels.json"):
        Path(name).touch()
    with pytest.raises(ValueError, match=named):
        read(*words.split())


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_path_arrives_at_the_component_as_it_is_written(text: str) -> None:
    parser = ConfigParser({"x": {"_target_": "builtins.str", "_mode_": "callable"}})
    parser["path"] = literal(text)
    assert parser.get_parsed_content("path") == text


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.relative_to(BUNDLES).as_posix())
def test_configs_are_merged_as_monai_does(path: Path) -> None:
    folder = BUNDLES / path.relative_to(BUNDLES).parts[0] / "configs"
    for first in ("train", "inference", "train finetune_anomaly"):
        files = [*(folder / f"{name}.json" for name in first.split()), path]
        parser = ConfigParser()
        try:
            parser.read_config([str(file) for file in files])
        except KeyError:  # it changes another one
            continue
        expected = {name: value for name, value in parser.get().items() if name != "_meta_"}
        assert merged_config(files) == expected
        return
    pytest.fail(f"{path} changes none of these")


def test_overlays_of_the_users_own(tmp_path: Path) -> None:
    Path("a.json").write_text('{"a": {"b": [1]}, "c": {"d": 1}}')
    Path("b.yaml").write_text('"+a::b": [2]\n"+c": {e: 2}\n"a::f": 3\n')
    assert merged_config([Path("a.json"), Path("b.yaml")]) == {
        "a": {"b": [1, 2], "f": 3},
        "c": {"d": 1, "e": 2},
    }


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("run afier train", "'afire'"),
        ("run afire trian", "'train'"),
        ("run afire paper", "paper.json"),
        ("run afire train --hidden_size 3", "--encoder_def::hidden_size"),
        ("score nowhere", "nowhere"),
    ],
)
def test_mistakes_leave_nothing_behind(
    words: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 1
    assert named in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_a_refusal_imports_nothing_slow() -> None:
    script = (
        "import sys, monai_afire_cli as cli; cli.main(['run', 'afire', 'train', '--epoch', '3']);"
        "cli.main(['list']); cli.main(['options', 'afire', 'train']);"
        "print({'torch', 'monai', 'monai_afire', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_list_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == sorted(path.parents[1].name for path in BUNDLES.glob("*/configs/train.json"))
    for words in (["options", "afire", "train"], ["run", "afire", "train", "--help"]):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.split()[:2] == ["--epochs", "9"] for line in lines)


def test_meanings_are_those_of_options_that_there_are() -> None:
    files = BUNDLES.glob("*/configs/**/*.json")
    ids = {id for path in files for id, _ in monai_afire_cli.entries(json.loads(path.read_text()))}
    assert set(monai_afire_cli.MEANINGS) <= ids


@pytest.mark.parametrize(
    ("words", "run"),
    [
        ("score ward", "afire inference --dataset_dir=ward"),
        (
            "fit ward",
            "afire train finetune_anomaly fit_encoder --dataset_dir=ward --weights=released_96 "
            "--field_of_view=lungs",
        ),
        ("evaluate afire", "afire inference evaluate --weights=latest"),
        (
            "evaluate radiograph_segmentation",
            "radiograph_segmentation train evaluate --weights=latest",
        ),
    ],
)
def test_verbs_are_names_of_runs(
    words: str, run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[list[Path], dict[str, Any]]] = []
    monkeypatch.setattr(monai_afire_cli, "run_workflow", lambda *given: runs.append(given))
    Path("ward").mkdir()
    assert main([*words.split(), "--batch_size", "3"]) == 0
    assert capsys.readouterr().out == f"$ monai-afire run {run} --batch_size 3\n"
    ((files, values),) = runs
    bundle, *others = run.split()
    assert [file.stem for file in files] == [word for word in others if word[0] != "-"]
    options = dict(word[2:].split("=") for word in others if word[0] == "-")
    assert values == {**options, "batch_size": 3, "bundle_root": str(BUNDLES / bundle)}


def test_a_copy_is_complete_and_is_the_one_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "peac", "my_peac"]) == 0
    files = [path for path in Path("my_peac").rglob("*") if path.is_file()]
    assert {path.parts[1] for path in files} == {"LICENSE", "NOTICE", "configs", "docs", "models"}
    assert [path.name for path in Path("my_peac/models").iterdir()] == ["model.pt"]
    assert all(os.access(path, os.W_OK) for path in files)
    assert main(["copy", "mae", "my_peac"]) == 1
    assert "my_peac" in capsys.readouterr().err
    assert main(["copy", "afire"]) == 0
    assert monai_afire_cli.find_bundle("afire") == Path("bundles/afire")
    names = ["train", "ablations/without_local"]
    expected = [Path(f"my_peac/configs/{name}.json") for name in names]
    assert config_files(Path("my_peac"), ["train", "ablations/without_local.json"]) == expected


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--epoch 3", "'epochs'"),
        ("--num-clusters 3", "--network_def::num_clusters"),
        ("--train#lr_schedul#end 0", "'train::lr_schedule::end'"),
        ("--epochs 3 --add_lesions::copies 2 --tracking mlflow --run_id run", ""),
        ("--mine '[1]' --epochs '$@mine[0]' --seed=3 --bundle_root here", ""),
    ],
)
def test_monais_own_command_refuses_an_override_that_nothing_has(
    words: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = (
        f"somewhere/monai/bundle/__main__.py run --config_file {BUNDLES}/afire/configs/train.json"
    )
    monkeypatch.setattr(sys, "argv", [*call.split(), *shlex.split(words)])
    with pytest.raises(SystemExit, match=named) if named else nullcontext():
        check_call()


def test_every_bundle_checks_its_call_and_knows_its_folder() -> None:
    for config in BUNDLES.glob("*/configs/*.json"):
        content = json.loads(config.read_text())
        if "initialize" in content:
            assert content["initialize"][0] == "$monai_afire_cli.check_call()", config
        if "imports" in content:
            assert "$import monai_afire_cli" in content["imports"], config
            assert content["bundle_root"] == f"bundles/{config.parents[1].name}", config


@pytest.mark.slow
def test_a_run_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    write_images(Path("ward #3"), 8)
    Path("mine.py").write_text(
        "from monai_afire.losses import AFiReLoss\nclass Mine(AFiReLoss): ...\n"
    )
    words = ["run", "afire", "train", *TINY_WORDS, "--dataset_dir", "ward #3", "--cache", "none"]
    words += ["--output_dir", "out #3", "--loss", '{"_target_": "mine.Mine"}', "--epochs=1"]
    assert main(words) == 0
    assert Path("out #3/models/model.pt").is_file()
    assert main([*words, "--network_def::heads=3"]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ")
    assert "'heads'" in last
    folders = {path.name for path in Path().iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {"out #3", "ward #3"}


def test_ctrl_c_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(monai_afire_cli, "run_workflow", interrupted)
    assert main(["run", "afire", "train"]) == 130
    assert capsys.readouterr().err.strip() == "stopped by Ctrl-C"
