# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The AFiRe bundle as an anomaly detector: adapt, evaluate, use, end to end on the phantom."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    ON_IMAGES,
    TINY,
    all_messages,
    copy_bundles,
    last_run,
    run_bundle,
    saved_weights,
)
from monai.bundle import run
from PIL import Image

CONFIGS = "bundles/afire/configs/"
TRAIN = CONFIGS + "train.json"
ADAPT = [TRAIN, CONFIGS + "finetune_anomaly.json"]
INFER = CONFIGS + "inference.json"
EVALUATE = [INFER, CONFIGS + "evaluate.json"]
PHANTOM = {
    "num_patients": {"training": 12, "validation": 8, "test": 8},
    "image_size": 32,
    "abnormal_fraction": {"training": 0.0, "validation": 0.5, "test": 0.5},
    "seed": 0,
}


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with a network that was pre-trained and adapted."""
    folder = tmp_path_factory.mktemp("clone")
    copy_bundles(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(config_file=TRAIN, **TINY, name="pretrained")
        settings = {**TINY, "phantom": PHANTOM, "epochs": 4, "specificity": 0.75, "name": "adapted"}
        run(config_file=ADAPT, **settings, weights_of="pretrained")
    return folder


@pytest.fixture
def workspace(adapted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that clone for one test."""
    shutil.copytree(adapted, tmp_path / "clone", symlinks=True)
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "clone"


def write_images(folder: Path, names: list[str], size: tuple[int, int] = (48, 40)) -> None:
    rng = np.random.default_rng(0)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, size, dtype=np.uint8)).save(folder / name)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_adapting_stores_statistics_and_thresholds(adapted: Path) -> None:
    state = torch.load(adapted / "runs/afire/adapted/models/model.pt", weights_only=True)
    assert state["thresholds"].isfinite().all()
    assert state["density.num_images"] == 12
    assert not torch.equal(state["map_mean"], torch.zeros_like(state["map_mean"]))
    pretrained = torch.load(adapted / "runs/afire/pretrained/models/model.pt", weights_only=True)
    assert {f"network.{name}" for name in pretrained} < set(state)
    assert not torch.equal(pretrained["encoder.norm.weight"], state["network.encoder.norm.weight"])


@pytest.mark.slow
def test_adapting_without_labels_validates_on_painted_lesions(workspace: Path) -> None:
    write_images(workspace / "images", [f"{index:02d}.png" for index in range(20)])
    result = run_bundle(
        workspace,
        str(ADAPT),
        {
            **TINY,
            **LATEST,
            "dataset_dir": workspace / "images",
            "epochs": 2,
            "train::run::val_interval": 1,
        },
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "auc_of_fused_score" in result.stdout + result.stderr
    assert f"{last_run('afire').as_posix()}/models/model.pt" in result.stdout


def test_adapting_stops_early(workspace: Path) -> None:
    settings = {
        **TINY,
        **LATEST,
        "phantom": PHANTOM,
        "epochs": 30,
        "train::run::patience": 1,
        "learning_rate": 0.0,
    }
    run(config_file=ADAPT, **settings)
    state = saved_weights("afire", "models/checkpoint.pt")
    # nothing can improve at learning rate 0: stopped after the second
    assert state["training"]["epoch"] == 2


def test_adapting_leaves_abnormal_images_out(workspace: Path) -> None:
    write_images(workspace / "images", [f"{index:02d}.png" for index in range(16)])
    items = [{"image": f"{index:02d}.png", "label": int(index < 4)} for index in range(16)]
    listed = {"training": items[:12], "validation": items[12:]}
    (workspace / "list.json").write_text(json.dumps(listed))
    with pytest.warns(UserWarning, match="left 4 abnormal of 12 training items out"):
        run(
            config_file=ADAPT,
            **{
                **TINY,
                **LATEST,
                "epochs": 1,
                "dataset_dir": str(workspace / "images"),
                "datalist": str(workspace / "list.json"),
            },
        )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"pretrained": "models/none.pt"}, "pre-train with train.json first"),
        (
            {"encoder_def::hidden_size": 36},
            "36 contradicts runs/afire/pretrained/models/model.pt, which was trained with 24: leave it out",
        ),
        ({"score_fusion": ["magic"]}, "magic"),
    ],
)
def test_wrong_settings_are_named(workspace: Path, override: dict[str, object], words: str) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        run(config_file=ADAPT, **{**TINY, **LATEST, "phantom": PHANTOM, **override})
    assert words in all_messages(error.value)


def test_weights_that_carry_code_are_refused(workspace: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple:
            return Path.touch, (workspace / "owned",)

    torch.save({"weight": Code()}, workspace / "evil.pt")
    for config, key in ((ADAPT, "pretrained"), (INFER, "ckpt_path")):
        with pytest.raises(Exception) as error:  # noqa: PT011
            run(config_file=config, **{"phantom": PHANTOM, key: str(workspace / "evil.pt")})
        assert "could run code" in all_messages(error.value)
    assert not (workspace / "owned").exists()


def test_evaluation_reports_every_figure(workspace: Path) -> None:
    run(config_file=EVALUATE, **LATEST, **{"phantom": PHANTOM, "report::num_bootstraps": 20})
    folder = last_run("afire", "metrics.json")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["images"] == {"normal": 4, "abnormal": 4}
    for name in (
        "restoration",
        "masked_restoration",
        "prototype_distance",
        "token_density",
        "fused",
    ):
        row = metrics["detection"][name]
        assert {
            "auc",
            "auc_interval",
            "average_precision",
            "accuracy",
            "f1",
            "sensitivity",
            "specificity",
        } <= set(row)
        assert {"pixel_auroc", "pointing", "aupro"} <= set(metrics["localization"][name])
    assert len(metrics["controlled"]) == 18
    assert len(read_csv(folder / "evaluation.csv")) == 8 + 18 * 4
    assert (folder / "roc_pr.png").is_file()
    assert (folder / "heat_maps.png").is_file()


def test_evaluation_of_unlabeled_images_is_refused(workspace: Path) -> None:
    write_images(workspace / "images", ["a.png", "b.png"])
    with pytest.raises(Exception) as error:  # noqa: PT011
        run(config_file=EVALUATE, **ON_IMAGES, dataset_dir=str(workspace / "images"))
    assert "have no label" in all_messages(error.value)


@pytest.mark.slow
def test_inference_of_a_folder_with_bad_files(workspace: Path) -> None:
    images = workspace / "images"
    write_images(images, ["a.png", "day 1/a.png", "ünïcode.png"])
    (images / "truncated.png").write_bytes((images / "a.png").read_bytes()[:200])
    result = run_bundle(workspace, INFER, {**ON_IMAGES, "dataset_dir": images, "batch_size": 3})
    assert result.returncode == 2, result.stderr[-3000:]
    assert "1 of 4 files were rejected" in result.stderr
    folder = last_run("afire")
    assert len(read_csv(folder / "scores.csv")) == 3
    [rejected] = read_csv(folder / "rejected.csv")
    assert rejected["image"].endswith("truncated.png")
    assert "cut or damaged" in rejected["reason"]
    with Image.open(folder / "overlays/day 1/a.png.jpg") as overlay:
        assert overlay.size[0] > 2 * 427  # 48 x 40 pixels beside themselves, 512 high


@pytest.mark.slow
def test_inference_of_one_file_and_of_a_list(workspace: Path) -> None:
    write_images(workspace / "images", ["a.png", "b.png"])
    result = run_bundle(workspace, INFER, {**ON_IMAGES, "dataset_dir": workspace / "images/a.png"})
    assert result.returncode == 0, result.stderr[-3000:]
    folder = last_run("afire")
    [row] = read_csv(folder / "scores.csv")
    assert row["abnormal"] == ""  # the detector has fewer normal images than a threshold needs

    (workspace / "list.json").write_text(
        json.dumps({"test": [{"image": "a.png"}, {"image": "missing.png"}]})
    )
    options = {
        "dataset_dir": workspace / "images",
        "datalist": workspace / "list.json",
        "saved": "[]",
    }
    result = run_bundle(workspace, INFER, {**ON_IMAGES, **options})
    assert result.returncode == 2
    folder = last_run("afire")
    assert "does not exist" in read_csv(folder / "rejected.csv")[0]["reason"]
    assert len(read_csv(folder / "scores.csv")) == 1


def test_inference_goes_on_where_it_was_stopped(workspace: Path) -> None:
    write_images(workspace / "images", [f"{number}.png" for number in range(6)])
    options = {"dataset_dir": str(workspace / "images"), "saved": ["overlays"], "batch_size": 2}
    run(config_file=INFER, **ON_IMAGES, **options)
    folder = last_run("afire")
    table = folder / "scores.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:4], ""]))  # of a list that has grown since
    kept = folder / "overlays/0.png.jpg"
    kept.unlink()  # would be drawn again, were the image judged again
    run(config_file=INFER, **ON_IMAGES, **options, name=folder.name, resume=True)
    again = table.read_text().splitlines()
    assert [line.split(",")[0] for line in again] == [line.split(",")[0] for line in lines]
    assert again[:3] == lines[:3]
    assert sorted(path.name for path in (folder / "overlays").iterdir()) == [
        f"{n}.png.jpg" for n in range(1, 6)
    ]
    assert len(read_csv(folder / "worklist.csv")) == 6
    assert last_run("afire") == folder


def test_same_picture_same_score_whatever_the_format(workspace: Path, shared_data: Path) -> None:
    samples = shared_data / "samples"
    names = ["gray8.png", "gray16.png", "rgb8.png", "rgba8.png", "palette8.png", "float32.tif"]
    names += ["mono1_12bit_window.dcm", "mono2_12bit_window.dcm"]
    listed = {"test": [{"image": name} for name in names]}
    (workspace / "list.json").write_text(json.dumps(listed))
    options = {"dataset_dir": str(samples), "datalist": str(workspace / "list.json"), "saved": []}
    run(config_file=INFER, **ON_IMAGES, **options)
    rows = read_csv(last_run("afire") / "scores.csv")
    scores = {Path(row["image"]).name: float(row["fused"]) for row in rows}
    for name in names[1:6]:
        assert scores[name] == pytest.approx(scores["gray8.png"], abs=0.02), name
    assert scores["mono1_12bit_window.dcm"] == pytest.approx(
        scores["mono2_12bit_window.dcm"], abs=0.02
    )
