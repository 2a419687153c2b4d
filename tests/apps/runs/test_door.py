# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Printed commands are those of the door by which a run was started, and give MONAI the same words."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from monai_afire.apps.runs.door import files_text, option_text
from monai_afire.apps.runs.follow_up import resume_command

from monai_afire_cli import command, main
from monai_afire_cli.bundles.bundle import bundles_folder
from monai_afire_cli.options.words import option_words
from monai_afire_cli.process.starting import DOOR

ROOT = bundles_folder() / "afire"
GIVEN = [
    *("--dataset_dir", "ward #3", "--resume", "true", "--epochs", "3", "--name=-x"),
    *("--output_dir", "@home", "--encoder_weights", "null", "--train::seed", "1e3"),
    *("--ckpt_path", "it's $5", "--datalist", "2024", "--section", "None"),
]


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that ``monai-afire`` would start, in a process that it has started."""
    commands: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "hand_over", lambda words, **_: commands.append(list(words)) or 0)
    monkeypatch.setattr(command, "wrong_options", lambda *_: [])
    monkeypatch.setenv(DOOR, "1")
    return commands


def _by_shell(text: str) -> list[str]:
    read = ["sh", "-c", f"printf '%s\\n' {text}"]
    return subprocess.run(read, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_run_goes_on_by_the_same_door_with_the_same_words(handed: list[list[str]]) -> None:
    main(["run", "afire", "train", "paper", *GIVEN])
    words = option_words(handed[0][4:])
    given = {name: str(word) for name, word in words.items()}
    resumed = resume_command(given, "hospital a")
    typed = _by_shell(resumed)
    assert typed[:5] == ["monai-afire", "run", "afire", "train", "paper"]
    main(typed[1:])
    assert option_words(handed[1][4:]) == {**words, "name": "$'hospital a'", "resume": "True"} or (
        option_words(handed[1][4:]) == {**words, "name": "hospital a", "resume": "True"}
    )


def test_a_copy_and_a_config_elsewhere_are_found(handed: list[list[str]], tmp_path: Path) -> None:
    main(["copy", "afire", "my copy"])
    (tmp_path / "paper.json").write_text("{}")
    main(["run", "my copy", "train", "./paper.json"])
    given = {name: str(word) for name, word in option_words(handed[0][4:]).items()}
    main(_by_shell(resume_command(given, None))[1:])
    found = option_words(handed[1][4:])
    files = str(found["config_file"])
    assert Path("my copy/configs/train.json").as_posix() in files.replace(f"{tmp_path}/", "")
    assert "my copy/configs/paper.json" not in files
    assert "paper.json" in files
    assert found["bundle_root"] == given["bundle_root"]


def test_monai_s_own_command_is_answered_by_itself() -> None:
    files = [str(ROOT / "configs" / name) for name in ("train.json", "paper.json")]
    text = resume_command({"config_file": str(files), "bundle_root": str(ROOT)}, None)
    assert shlex.split(text)[:4] == ["python", "-m", "monai.bundle", "run"]
    assert shlex.split(f"x {option_text('name', '2024')}")[1:] == ["--name", "$'2024'"]


def test_a_set_of_configs_is_written_as_the_door_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [str(ROOT / "configs" / name) for name in ("train.json", "paper.json")]
    assert shlex.split(files_text(files)) == [f"['{files[0]}','{files[1]}']"]
    monkeypatch.setenv(DOOR, "1")
    assert files_text(files) == "train paper"


def test_torchrun_resumes_with_as_many_processes(tmp_path: Path) -> None:
    """The line that a process of torchrun prints is itself a command that starts as many."""
    script = tmp_path / "say.py"
    script.write_text(
        "import os\n"
        "from monai_afire.apps.runs.follow_up import resume_command\n"
        "if os.environ['RANK'] == '0':\n"
        "    print('SAID', resume_command({'config_file': 'train.json'}, 'a'))\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    result = subprocess.run(
        [*launcher, "--nproc-per-node", "2", "--max-restarts", "3", str(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    [said] = [line for line in result.stdout.splitlines() if line.startswith("SAID ")]
    words = shlex.split(said)[1:]
    assert words[0] == "torchrun"
    assert words[words.index("-m") :][:3] == ["-m", "monai.bundle", "run"]
    options = option_words(words[: words.index("-m")])
    assert options["nproc_per_node"] == "2"
    assert options["max_restarts"] == "3"
    assert "standalone" in options


def test_several_machines_meet_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        **{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "4"},
        **{"MASTER_ADDR": "node1", "MASTER_PORT": "41231", "TORCHELASTIC_RUN_ID": "job 7"},
        **{"TORCHELASTIC_MAX_RESTARTS": "0", DOOR: "1"},
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    words = shlex.split(resume_command({"config_file": "train.json"}, "a"))
    options = option_words(words[: words.index("-m")])
    assert (words[0], options["nnodes"], options["nproc_per_node"]) == ("torchrun", "4", "8")
    assert (options["rdzv_id"], options["rdzv_backend"]) == ("job 7", "c10d")
    assert str(options["rdzv_endpoint"]).partition(":")[0] == "node1"
    assert "standalone" not in options
