# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The command ``monai-afire``: what it prints, copies and starts, and that it never writes where it should not."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fire.parser import DefaultParseValue
from monai.bundle import ConfigParser

from monai_afire.apps.runs.__main__ import main as show_options
from monai_afire_cli import command, main
from monai_afire_cli.bundles.bundle import bundles_folder, packaged_bundles
from monai_afire_cli.bundles.configs import all_entries
from monai_afire_cli.options.overrides import wrong_options
from monai_afire_cli.options.words import COUNTS, DICTIONARIES, NAMES, PATHS, SAVED_KINDS
from monai_afire_cli.options.wrong_values import at_least
from monai_afire_cli.process import starting

BUNDLES = (
    *("ace", "afire", "dino", "mae", "peac"),
    *("radiograph_classification", "radiograph_landmarks", "radiograph_segmentation"),
)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that were handed over in an empty folder, none of which runs."""
    commands: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "hand_over", lambda words, **_: commands.append(list(words)) or 7)
    return commands


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def public_files(bundle: str) -> dict[str, bytes]:
    """What a copy has: nothing of what runs have written."""
    found = files_below(bundles_folder() / bundle)
    return {
        name: content
        for name, content in found.items()
        if name == "models/model.pt"
        or name.split("/")[0] in ("LICENSE", "NOTICE", "configs", "docs", "released")
    }


def test_nothing_heavy_is_imported(repository_root: Path) -> None:
    script = """
import sys
from monai_afire_cli import main
main(["list"])
try:
    main([])
except SystemExit as end:
    assert end.code == 0
print({"torch", "monai", "numpy", "monai_afire"} & set(sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=repository_root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.splitlines()[-1] == "set()"
    for name in (
        "list",
        "copy",
        "options",
        "run",
        "demo",
        "audit",
        "compare",
        "data",
        "experiments",
        "watch",
    ):
        assert f"\n    {name} " in result.stdout or f"\n    {name}\n" in result.stdout, name


def test_list_has_a_line_for_each_bundle(
    capsys: pytest.CaptureFixture[str], repository_root: Path
) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(BUNDLES)
    assert set(BUNDLES) == {
        path.parents[1].name for path in repository_root.glob("bundles/*/configs/metadata.json")
    }
    for bundle, line in zip(BUNDLES, lines, strict=True):
        metadata = json.loads(
            (repository_root / "bundles" / bundle / "configs/metadata.json").read_text()
        )
        assert line.endswith(metadata["name"])


def test_copies_are_complete_and_can_be_edited(tmp_path: Path, started: list[list[str]]) -> None:
    for bundle in BUNDLES:
        assert main(["copy", bundle]) == 0
        assert files_below(tmp_path / "bundles" / bundle) == public_files(bundle)
    source = tmp_path / "bundles/peac"
    (source / "configs/train.json").chmod(0o444)
    (source / "models/checkpoint.pt").touch()
    assert main(["copy", "bundles/peac", "mine"]) == 0
    assert files_below(tmp_path / "mine") == public_files("peac")
    assert (tmp_path / "mine/configs/train.json").stat().st_mode & 0o200


def test_nothing_is_overwritten(
    tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["copy", "ace", "mine"]) == 0, "an empty folder takes a copy"
    (tmp_path / "mine/configs/train.json").write_text("mine")
    assert main(["copy", "ace", "mine"]) == 1
    assert "nothing is overwritten" in capsys.readouterr().err
    assert (tmp_path / "mine/configs/train.json").read_text() == "mine"


def test_run_starts_the_bundle_of_the_package_and_copies_nothing(
    tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bundles_folder() / "afire"
    options = ["--epochs", "3", "--add_lesions::lesion_size", "[1, 2]", "--phantom::seed=4"]
    assert main(["run", "afire", "train", *options]) == 7, "the status is that of the run"
    assert started == [
        [
            "python",
            "-m",
            "monai.bundle",
            "run",
            "--config_file",
            f"{folder}/configs/train.json",
            "--bundle_root",
            str(folder),
            *options,
        ]
    ]
    assert list(tmp_path.iterdir()) == []
    (shown,) = capsys.readouterr().out.splitlines()
    assert shown == "$ " + " ".join(started[0]).replace("[1, 2]", "'[1, 2]'")


def test_run_takes_the_bundle_that_is_there(tmp_path: Path, started: list[list[str]]) -> None:
    main(["copy", "afire"])
    config = tmp_path / "bundles/afire/configs/train.json"
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 5'))
    (tmp_path / "mine.json").write_text("{}")
    assert main(["run", "afire", "train.json", "paper", "mine.json"]) == 7
    assert (
        started[0][5]
        == "['bundles/afire/configs/train.json','bundles/afire/configs/paper.json','mine.json']"
    )
    assert '"seed": 5' in config.read_text()


@pytest.mark.parametrize("given", [[], ["--bundle_root", "elsewhere"], ["--bundle_root=elsewhere"]])
def test_a_bundle_elsewhere_is_told_where_it_is(started: list[list[str]], given: list[str]) -> None:
    main(["copy", "afire", "studies/mine"])
    assert main(["run", "studies/mine", "inference", *given]) == 7
    root = given or ["--bundle_root", "studies/mine"]
    assert started[0][4:] == ["--config_file", "studies/mine/configs/inference.json", *root]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "nothing", "train"],
            "'nothing' is neither a bundle's folder nor one of ace, afire",
        ),
        (
            ["run", "afire"],
            "say which config is to run: afire has inference and train to start with",
        ),
        (
            ["run", "afire", "tran"],
            "'tran' is neither a config of afire nor a file; did you mean 'train'? afire has inference and train",
        ),
        (["run", "afire", "paper"], "'paper' changes another config, which must come before it"),
        (["run", "afire", "inference", "train"], "'inference' and 'train' are two runs"),
        (
            ["run", "afire", "../../../etc/passwd"],
            "'../../../etc/passwd' is neither a config of afire nor a file",
        ),
        (
            ["run", "afire", "train", "--train::lr_schedul::end", "0"],
            "train has no 'lr_schedul'; did you mean",
        ),
        (
            ["run", "afire", "ablations/without_prototypes"],
            "changes another config, which must come before it",
        ),
        (["options", "afire", "metadata"], "'metadata' is neither a config"),
        (["copy", "nothing"], "'nothing' is neither"),
    ],
)
def test_mistakes_leave_nothing_behind(
    tmp_path: Path,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert main(words) == 1
    assert message in capsys.readouterr().err
    assert started == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["afir", "train"], "did you mean 'afire'?"),
        (["afire", "inference", "restor"], "did you mean 'restore'?"),
        (["inference", "afire"], "the bundle comes first: run afire inference"),
        (["afire", "train", "--dataset_dri", "a"], "did you mean 'dataset_dir'?"),
        (["mae", "train", "--encoder_weights", "latest"], "runs/BUNDLE/latest"),
        (["afire", "train", "--run_id", "hospital_a"], "--run_id: there is no step 'hospital_a'"),
        (["afire", "train", "--run_id", "hospital_a"], "by --name hospital_a"),
        (["afire", "inference", "--run_id", "exprt"], "did you mean 'export'?"),
        (
            ["radiograph_classification", "train", "--encoder_weights", "releasd"],
            "did you mean 'released'?",
        ),
        (["radiograph_classification", "train", "--encoder_weights", "./releasd"], "no such file"),
        (
            ["radiograph_classification", "inference", "--ckpt_path", "releasd"],
            "leave --ckpt_path out",
        ),
        (["afire", "inference", "--weights_of", "released"], "leave --weights_of out"),
        (["afire", "train", "--dataset_dir", "nowhere"], "nowhere: there is no such file"),
        (["afire", "train", "--dataset_dir=nowhere"], "nowhere: there is no such file"),
        (["afire", "inference", "--ckpt_path", "no.pt"], "no.pt: there is no such file"),
        (["afire", "train", "--dataset_dir", "%done"], "%done: there is no such file"),
        (["afire", "train", "--output_dir", "-new"], "./-name"),
        (["afire", "train", "--output_dir", "-"], "./-name"),
        (["afire", "train", "--train#lr_schedul#end", "0"], "did you mean 'lr_schedule'?"),
        (["afire", "train", "--hidden_size", "192"], "did you mean --encoder_def::hidden_size?"),
        (["afire", "train", "--phantom_dir", "x"], "did you mean --items::phantom::folder?"),
        (["afire", "inference", "--phantom_dir=x"], "did you mean --items::phantom::folder?"),
        (["afire", "train", "--lr_schedule_end", "0"], "did you mean --train::lr_schedule::end?"),
        (["mae", "train", "--num_layers=2"], "did you mean --encoder_def::num_layers?"),
        (
            ["radiograph_classification", "train", "evaluate", "--num_folds", "5"],
            "did you mean --items::num_folds?",
        ),
        (["ace", "train", "--lr", "0.1"], "did you mean --learning_rate?"),
        (
            ["radiograph_landmarks", "train", "--weight_decay", "0"],
            "did you mean --optimizer::params::weight_decay?",
        ),
        (
            ["afire", "train", "--epochs", "2", "--end", "0"],
            "--train::lr_schedule::end or --train::weight_decay_schedule::end or --train::",
        ),
        (["afire", "train", "--name", ""], "--name: '': the name of a run is that of one folder"),
        (["afire", "train", "--name="], "--name: '': the name of a run is that of one folder"),
        (["afire", "train", "--name", "-x"], "--name: a name is missing"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_loaded(
    started: list[list[str]], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["run", *words]) == 1
    assert message in capsys.readouterr().err
    assert started == []
    assert list(Path.cwd().iterdir()) == []


def test_images_in_the_place_of_a_config_are_named_as_an_option(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my images").mkdir()
    for name in ("a.dcm", "weights.pt", "labels.csv"):
        Path(name).touch()
    for word, option in {
        "my images": "--dataset_dir 'my images'",
        "a.dcm": "--dataset_dir a.dcm",
        "weights.pt": "--ckpt_path weights.pt",
        "labels.csv": "--datalist labels.csv",
    }.items():
        assert main(["run", "afire", "inference", word]) == 1
        said = capsys.readouterr().err
        assert f"did you mean {option}?" in said
        assert "paper" not in said  # what there is of overlays does not help here
    assert started == []


def test_a_new_entry_that_another_refers_to_is_no_slip() -> None:
    train = [bundles_folder() / "afire/configs/train.json"]
    words = ["--learning_rat", "0.1", "--optimizer::lr", "@learning_rat"]
    assert wrong_options(train, words[:2]) != []
    assert wrong_options(train, words) == []
    assert wrong_options(train, ["--tracking", "mlflow", "--run_id", "run", "--help"]) == []


@pytest.mark.parametrize("word", ["null", "released", "released_224", "released_cnn", "~"])
def test_inputs_that_are_no_files_here_are_left_to_the_run(word: str) -> None:
    assert wrong_options([], ["--encoder_weights", word]) == []


def test_a_word_in_the_place_of_a_number_is_refused_at_once() -> None:
    """Of each number of each bundle, as the run itself does some seconds later."""
    from monai_afire.apps.runs import OPTIONS

    for path in sorted(bundles_folder().glob("*/configs/train.json")):
        config = json.loads(path.read_text())
        entries = [
            (id, value) for id, value in all_entries(config) if "::" not in id or id in OPTIONS
        ]
        numbers = [id for id, value in entries if type(value) in (int, float)]
        assert {"epochs", "batch_size", "train::run::val_interval"} <= set(numbers)
        for name in numbers:
            assert len(wrong_options([path], [f"--{name}", "two"])) == 1
            with pytest.raises(ValueError, match="two"):
                OPTIONS[name].read("two")
        for word in ("2", "1e-3", "$1 + 1", "@seed", "null"):
            assert wrong_options([path], ["--epochs", word]) == []


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("word", ["0", "-1", "-12"])
def test_a_count_below_one_is_refused_at_once_as_the_run_would(name: str, word: str) -> None:
    from monai_afire.apps.runs import OPTIONS

    found = 0
    for path in sorted(bundles_folder().glob("*/configs/*.json")):
        config = json.loads(path.read_text())
        default = dict(all_entries(config)).get(name)
        if type(default) is not int:
            continue
        found += 1
        [said] = wrong_options([path], [f"--{name}", word])
        with pytest.raises(ValueError, match="needs") as late:
            OPTIONS[name].read(int(word))
        assert said == f"--{name}: {late.value}, such as --{name} {default}"
        assert wrong_options([path], [f"--{name}", "1"]) == []
    assert found


def test_a_word_in_the_place_of_a_list_is_refused_at_once() -> None:
    from monai_afire.apps.runs import OPTIONS

    path = bundles_folder() / "afire" / "configs" / "inference.json"
    with pytest.raises(ValueError, match="a list of values"):
        OPTIONS["saved"].read("overlay")
    [said] = wrong_options([path], ["--saved", "overlay"])
    assert "found 'overlay', needs a list of values" in said
    assert all(kind in said for kind in SAVED_KINDS)
    [misspelt] = wrong_options([path], ["--saved", '["maps", "overlay"]'])
    assert said.partition("needs")[2] == misspelt.partition("needs")[2]
    [example] = shlex.split(said.split("such as --saved ")[1])
    assert json.loads(example) == json.loads(path.read_text())["saved"]
    for word in (example, "[maps]", "maps,sr", "[]", "null", "@other", "$[]"):
        assert wrong_options([path], ["--saved", word]) == []


def test_a_word_in_the_place_of_a_switch_is_refused_at_once_as_the_run_would() -> None:
    from monai_afire.apps.runs import OPTIONS

    for path in sorted(bundles_folder().glob("*/configs/train.json")):
        config = json.loads(path.read_text())
        entries = {id: value for id, value in all_entries(config) if id in OPTIONS}
        switches = [id for id, value in entries.items() if isinstance(value, bool)]
        assert {"resume", "train::inferer::enabled"} <= set(switches)
        for name in switches:
            [said] = wrong_options([path], [f"--{name}", "maybe"])
            with pytest.raises(ValueError, match="maybe") as late:
                OPTIONS[name].read("maybe")
            assert said == f"--{name}: {late.value}, such as --{name} {entries[name]}"
        for word in ("True", "true", "FALSE", "null", "$not False", "@standardize"):
            assert wrong_options([path], ["--resume", word]) == []
        assert wrong_options([path], ["--resume"]) == []


def test_counts_are_those_of_the_declarations() -> None:
    from monai_afire.apps.runs import OPTIONS

    assert {name for name, each in OPTIONS.items() if each.values == at_least(1)} == set(COUNTS)


def test_the_name_of_a_run_that_is_there_is_refused_at_once_as_the_run_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from monai_afire.apps.runs import run_folder

    monkeypatch.chdir(tmp_path)
    train = [bundles_folder() / "afire/configs/train.json"]
    assert wrong_options(train, ["--name", "mine"]) == []
    (tmp_path / "runs/afire/mine").mkdir(parents=True)
    [said] = wrong_options(train, ["--name", "mine"])
    with pytest.raises(FileExistsError) as late:
        run_folder("afire", "train", "mine")
    assert said == f"--name: {late.value}"
    assert wrong_options(train, ["--name", "mine", "--resume=false"]) == [said]
    for words in (
        ["--resume", "True"],
        ["--resume", "true"],
        ["--resume"],
        ["--resume", "$True"],
        ["--output_dir", "elsewhere"],
        ["--run_id", "export"],
        ["--bundle_root", "my_afire"],
    ):
        problems = wrong_options(train, ["--name", "mine", *words])
        assert not any("already" in problem for problem in problems), words


@pytest.mark.parametrize("words", [["--resume"], ["--resume", "true"], ["--resume=True"]])
def test_a_run_of_another_step_is_refused_at_once_as_the_run_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    from monai_afire.apps.runs import run_folder

    monkeypatch.chdir(tmp_path)
    configs = bundles_folder() / "afire/configs"
    run_folder("afire", "evaluation", "mine")
    [said] = wrong_options([configs / "train.json"], ["--name", "mine", *words])
    with pytest.raises(ValueError, match="evaluation") as late:
        run_folder("afire", "train", "mine", resume=True)
    assert said == f"--name: {late.value}"
    evaluation = [configs / "inference.json", configs / "evaluate.json"]
    assert wrong_options(evaluation, ["--name", "mine", *words]) == []


def test_runs_are_those_of_the_bundle_wherever_the_config_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = bundles_folder() / "afire"
    own = tmp_path / "settings/today/own.json"
    own.parent.mkdir(parents=True)
    shutil.copy(bundle / "configs/inference.json", own)
    (tmp_path / "runs/afire/mine/models").mkdir(parents=True)
    (tmp_path / "runs/afire/mine/models/model.pt").touch()
    assert wrong_options([own], ["--weights_of", "mine"], bundle) == []
    [said] = wrong_options([own], ["--weights_of", "mime"], bundle)
    assert f"{tmp_path / 'runs/afire'} " in said
    [said] = wrong_options([own], ["--name", "mine"], bundle)
    assert "already" in said
    other = ["--name", "mine", "--bundle_root", str(tmp_path / "my_afire")]
    assert not any("already" in problem for problem in wrong_options([own], other, bundle))


def test_an_empty_folder_of_images_is_refused_at_once(tmp_path: Path) -> None:
    from monai_afire.data import DatalistError, load_radiograph_datalist

    train = [bundles_folder() / "afire/configs/train.json"]
    (tmp_path / ".hidden").touch()
    [said] = wrong_options(train, ["--dataset_dir", str(tmp_path)])
    with pytest.raises(DatalistError, match="no radiographs") as late:
        load_radiograph_datalist(tmp_path)
    assert said.removesuffix(": it is empty") == f"--dataset_dir: {str(late.value).split(';')[0]}"
    listed = tmp_path.parent / "labels.json"
    listed.write_text("{}")
    words = ["--dataset_dir", str(tmp_path), "--datalist", str(listed)]
    assert wrong_options(train, words) == []
    (tmp_path / "a.png").touch()
    assert wrong_options(train, ["--dataset_dir", str(tmp_path)]) == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("inferense", "run BUNDLE inference"),
        ("train", "run BUNDLE train"),
        ("afire", "run afire train"),
        ("lst", "list"),
        ("auditt", "audit"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_was_meant(
    word: str, meant: str, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 1
    assert f"did you mean {meant!r}?" in capsys.readouterr().err
    assert started == []


def test_a_word_like_no_command_is_answered_with_all_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    said = capsys.readouterr().err
    assert all(f"'{name}'" in said for name in command._COMMANDS)


def test_a_table_in_the_place_of_a_datalist_is_refused_with_the_command(tmp_path: Path) -> None:
    train = [bundles_folder() / "radiograph_classification/configs/train.json"]
    table = tmp_path / "table.csv"
    table.write_text("file,edema\na.png,1\n")
    [said] = wrong_options(train, ["--datalist", str(table), "--dataset_dir", str(tmp_path)])
    assert f"monai-afire data table --root {tmp_path}" in said
    listed = tmp_path / "labels.json"
    listed.write_text("{}")
    assert wrong_options(train, ["--datalist", str(listed)]) == []
    for file, remedy in (
        (table, "monai-afire data table --root IMAGES"),
        (listed, "give it by --datalist"),
    ):
        [said] = wrong_options(train, ["--dataset_dir", str(file)])
        assert remedy in said


@pytest.mark.parametrize("task", ["classification", "segmentation", "landmarks"])
def test_a_folder_of_images_without_a_list_of_labels_is_refused_where_they_are_needed(
    tmp_path: Path, task: str
) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "labels.json").write_text("{}")
    configs = bundles_folder() / f"radiograph_{task}/configs"
    train, inference = configs / "train.json", configs / "inference.json"
    images = ["--dataset_dir", str(tmp_path)]
    [said] = wrong_options([train], images)
    assert "no labels" in said
    assert wrong_options([train], [*images, "--datalist", str(tmp_path / "labels.json")]) == []
    assert wrong_options([inference], images) == []
    assert wrong_options([inference], ["--dataset_dir", str(tmp_path / "a.png")]) == []


@pytest.mark.parametrize("name", ["a/b", "latest", "data", "..", "/a"])
def test_a_name_that_is_no_folder_s_is_refused_at_once(name: str) -> None:
    train = [bundles_folder() / "afire/configs/train.json"]
    assert len(wrong_options(train, ["--name", name])) == 1
    assert wrong_options(train, ["--name", "ward #3, two words"]) == []


def test_paths_are_those_of_the_declarations() -> None:
    from monai_afire.apps.runs import OPTIONS

    paths = {name for name, option in OPTIONS.items() if option.is_path}
    assert paths == {*PATHS, *DICTIONARIES}
    texts = {name for name, option in OPTIONS.items() if option.is_text}
    assert texts - paths == set(NAMES)


def test_paths_and_constants_are_handed_on_as_they_are_meant(started: list[list[str]]) -> None:
    words = ["--output_dir", "@home", "--ckpt_dir=ward #3", "--resume", "true", "--epochs", "3"]
    assert main(["run", "afire", "train", *words]) == 7
    assert started[0][-7:] == [
        *("--output_dir", "$'\\x40home'", "--ckpt_dir=$'ward \\x233'"),
        *("--resume", "True", "--epochs", "3"),
    ]


@pytest.mark.parametrize("name", ["study #2", "@mine", "-mine", "two words", "a,b", "it's"])
def test_a_bundle_is_started_whatever_its_folder_is_called(
    started: list[list[str]], name: str
) -> None:
    """Fire is asked what MONAI gets."""
    main(["copy", "mae", f"./{name}"])
    assert main(["run", f"./{name}", "train"]) == 7
    words = started[0]
    assert DefaultParseValue(words[5]) in (
        f"{name}/configs/train.json",
        [f"{name}/configs/train.json"],
    )
    assert words[6] == "--bundle_root"
    parser = ConfigParser({"bundle_root": DefaultParseValue(words[7])})
    assert parser.get_parsed_content("bundle_root") == name


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_a_run_waits_without_using_a_core_unless_told_how_to_wait(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execve", lambda file, words, environment: given.append(environment))
    for each in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(each, raising=False)
    starting.hand_over(["python", "-c", ""])
    assert given[0]["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv(name, "own")
    starting.hand_over(["python", "-c", ""])
    assert given[1][name] == "own"
    assert given[1].get("OMP_WAIT_POLICY", "own") == "own"


@pytest.mark.parametrize("bundle", sorted(packaged_bundles()))
@pytest.mark.parametrize("step", ["train", "inference"])
def test_the_end_of_each_path_in_one_word_is_answered_by_the_path(bundle: str, step: str) -> None:
    file = bundles_folder() / bundle / "configs" / f"{step}.json"
    config = json.loads(file.read_text())
    for holder in ("items", "encoder_def", "train"):
        entries = config.get(holder)
        for name, value in entries.items() if isinstance(entries, dict) else ():
            word = f"{holder}_{name}"
            if word not in config and not str(value).startswith("@"):
                assert f"--{holder}::{name}" in "".join(wrong_options([file], [f"--{word}=1"]))


@pytest.mark.parametrize(
    "words", [["options", "afire"], ["run", "afire"], ["run", "afire", "inference"]]
)
@pytest.mark.parametrize("content", [b"[1]", b'{"a":', b"\xff"])
def test_a_file_that_is_no_config_is_named(
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    content: bytes,
) -> None:
    Path("own.json").write_bytes(content)
    assert main([*words, "own.json"]) == 1
    assert "own.json: no " in capsys.readouterr().err
    assert started == []


def test_a_copy_to_an_empty_name_is_that_of_the_bundle(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["copy", "mae", ""]) == 0
    assert "monai-afire run mae train" in capsys.readouterr().out


def test_overrides_of_merged_and_of_yaml_configs(tmp_path: Path) -> None:
    train = bundles_folder() / "afire/configs/train.json"
    merged = tmp_path / "merged.json"
    merged.write_text('{"+network_def": {"mine": {"width": 3}}}')
    assert (
        wrong_options(
            [train, merged],
            ["--network_def::encoder::hidden_size=3", "--network_def::mine::width", "4"],
        )
        == []
    )
    assert len(wrong_options([train, merged], ["--network_def::encoders::hidden_size=3"])) == 1
    merged.write_text('{"network_def": {"mine": 2}}')
    assert len(wrong_options([train, merged], ["--network_def::encoder::hidden_size=3"])) == 1
    own = tmp_path / "own.yaml"
    own.write_text("my_part:\n  a: 1\n")
    assert wrong_options([train, own], ["--my_part::a", "3"]) == []


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("audit", "audit"),
        ("compare", "compare"),
        ("data", "readers"),
        ("experiments", "experiments"),
        ("package", "zoo"),
        ("watch", "worklist.watch"),
    ],
)
def test_other_commands_are_handed_over(started: list[list[str]], name: str, module: str) -> None:
    right = {"audit": ["."], "compare": [".", "released"], "watch": [".", "out"]}
    words = right.get(name, ["--help"])
    assert main([name, *words]) == 7
    assert started == [["python", "-m", f"monai_afire.apps.{module}", *words]]


def test_help_of_run(started: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "--help"])
    assert end.value.code == 0
    assert "Each run\nhas a folder of its own" in capsys.readouterr().out
    assert main(["run", "afire", "train", "--help"]) == 7, "of the options of a run, the run itself"
    assert started[0][-1] == "--help"
    capsys.readouterr()
    assert main(["run", "afire", "--help"]) == 7, "of a bundle, its training"
    assert started[1][2] == "monai_afire.apps.runs"
    assert started[1][-1].endswith("afire/configs/train.json")


def test_overlays_in_folders_are_configs(started: list[list[str]]) -> None:
    assert main(["run", "afire", "train", "ablations/without_prototypes"]) == 7
    folder = (bundles_folder() / "afire/configs").as_posix()
    assert started[0][5] == f"['{folder}/train.json','{folder}/ablations/without_prototypes.json']"


def test_options_are_those_of_the_config(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["afire"], ["afire", "train", "paper"], ["afire", "inference"]):
        assert main(["options", *words]) == 7
    shown = []
    for _, _, module, *files in started:
        assert module == "monai_afire.apps.runs"
        assert show_options(files) == 0
        shown.append(capsys.readouterr().out)
    assert "--epochs 9 " in shown[0]
    assert "--epochs 800 " in shown[1]
    assert "--epochs" not in shown[2]


@pytest.mark.parametrize("status", [0, 3])
def test_demo_trains_in_miniature_and_names_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    runs: list[tuple[Path, list[str]]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        command, "run_in", lambda folder, words: runs.append((folder, words)) or status
    )
    assert main(["demo", "new folder"]) == status
    assert main(["demo", "new folder"]) == status, "again in the same folder"
    ((folder, words), again) = runs
    assert again == (folder, words)
    assert (folder / words[5]).is_file()
    assert list((tmp_path / folder).iterdir()) == []
    config = json.loads((folder / words[5]).read_text())
    assert {word[2:].split("::")[0] for word in words[6::2]} <= set(config), (
        "options that the config has"
    )
    picture = "Open new folder/runs/afire/latest/restoration.png"
    assert (picture in capsys.readouterr().out) == (status == 0)


def test_the_process_becomes_the_command() -> None:
    """So a signal reaches the run, which saves and ends with a status of its own."""
    script = "from monai_afire_cli.process.starting import hand_over; print(hand_over(['python', '-c', %r]))"
    inner = "import os, sys; print(os.getpid()); sys.exit(143)"
    process = subprocess.Popen(
        [sys.executable, "-c", script % inner], stdout=subprocess.PIPE, text=True
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert os.name != "posix" or int(output) == process.pid


def test_a_folder_that_hides_an_editable_installation_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the folder that a clone lies in: Python finds the clone, which is no package, ahead of the installation."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "monai_afire").mkdir()
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(sys, "path", [])
    calls: list[object] = []
    monkeypatch.setattr(os, "execve", lambda *words: calls.append(words))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    assert main(["audit", "images"]) == 1
    assert not calls
    assert "hides the package: start in another folder" in capsys.readouterr().err
    (tmp_path / "monai_afire" / "__init__.py").touch()
    assert main(["audit", "images"]) == 0
    assert calls


def test_run_in_a_folder_returns_the_status(tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path('here').touch(); sys.exit(5)"
    assert starting.run_in(tmp_path, ["python", "-c", script]) == 5
    assert (tmp_path / "here").is_file()


def test_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["monai_afire", "list"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("monai_afire", run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("ace ")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from monai_afire import __version__

    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.split()[-1] in (__version__, "installed")
