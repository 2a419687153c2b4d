# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles that fine-tune a pre-trained encoder, end to end on the phantom."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    ON_IMAGES,
    REPOSITORY_ROOT,
    all_messages,
    at,
    check_bundle,
    copy_bundles,
    has,
    last_run,
    run_bundle,
    saved_weights,
    train_in_process,
    write_images,
)
from monai.bundle import ConfigParser, run
from PIL import Image

from monai_afire.apps.exchange import export_encoder
from monai_afire.networks import SwinEncoder, ViTEncoder

TASKS = ("classification", "landmarks", "segmentation")
IMAGES = {"image_size": 32, "patch_size": 8}
ENCODER = {**IMAGES, **at("encoder_def", hidden_size=24, num_layers=2, num_heads=2)}
VIT = {**ENCODER, "encoder": "vit"}
DECODER = {
    "classification": {},
    "landmarks": {"network_def::channels": 8},
    "segmentation": {"network_def::channels": 8},
}
PHANTOM = {
    "num_patients": {"training": 20, "validation": 8, "test": 8},
    "image_size": 48,
    "abnormal_fraction": 0.75,
    "seed": 0,
}
RUN = {"epochs": 2, "batch_size": 4, "train::dataloader::min_batches": 2, "phantom": PHANTOM}
FIGURES = {
    "classification": "mean_auc",
    "landmarks": "mean_radial_error",
    "segmentation": "mean_dice",
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def configs(task: str, *names: str) -> list[str]:
    return [f"bundles/radiograph_{task}/configs/{name}.json" for name in names]


def fine_tune(
    task: str, network: dict[str, Any] = VIT, **overrides: object
) -> dict[str, torch.Tensor]:
    train_in_process(configs(task, "train"), {**network, **DECODER[task], **RUN, **overrides})
    return saved_weights(f"radiograph_{task}")


def evaluate(task: str, **overrides: object) -> dict[str, Any]:
    settings = {**IMAGES, **RUN, **LATEST, **overrides}
    if task == "classification":
        settings["report::num_bootstraps"] = 10
    train_in_process(configs(task, "train", "evaluate"), settings)
    return json.loads((last_run(f"radiograph_{task}") / "metrics.json").read_text())


def write_list(folder: Path, name: str, key: str, values: list[Any]) -> str:
    """A datalist of noise with two thirds of the images in training."""
    names = write_images(folder / "images", len(values), size=40)
    items = [{"image": file, key: value} for file, value in zip(names, values, strict=True)]
    third = len(items) // 6
    sections = {
        "training": items[2 * third :],
        "validation": items[:third],
        "test": items[third : 2 * third],
    }
    (folder / name).write_text(json.dumps(sections))
    return str(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_fine_tune_evaluate_and_use(workspace: Path, task: str) -> None:
    weights = fine_tune(task, network=IMAGES)
    assert weights["encoder.model.layer4.0.conv2.weight"].shape == (256, 256, 3, 3)
    assert all(
        bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point()
    )
    metrics = evaluate(task)
    assert 0 <= metrics[FIGURES[task]] <= 1
    settings = {"phantom": PHANTOM, **LATEST}
    run(config_file=configs(task, "inference"), **settings)
    output = last_run(f"radiograph_{task}")
    names = {
        "classification": "predictions",
        "landmarks": "landmarks",
        "segmentation": "segmentation",
    }
    with (output / f"{names[task]}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len({row["image"] for row in rows}) == 8
    if task == "segmentation":
        mask = next((output / "masks" / "heart").rglob("*.png"))
        assert Image.open(mask).size == (48, 48), "masks have the size of the file"
    table = output / f"{names[task]}.csv"
    lines = table.read_text().splitlines()
    per_image = (len(lines) - 1) // 8
    table.write_text("\n".join([*lines[: 1 + 4 * per_image], ""]))  # of a list that has grown since
    run(config_file=configs(task, "inference"), **settings, name=output.name, resume=True)
    again = table.read_text().splitlines()
    assert [line.split(",")[0] for line in again] == [line.split(",")[0] for line in lines]
    assert again[:3] == lines[:3]
    assert last_run(f"radiograph_{task}") == output


@pytest.mark.parametrize("task", TASKS)
def test_inference_names_what_it_cannot_read(workspace: Path, task: str) -> None:
    fine_tune(task, epochs=1)
    names = write_images(workspace / "images", 3)
    (workspace / "images" / names[1]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    settings = {"dataset_dir": str(workspace / "images"), **ON_IMAGES}
    with pytest.raises(SystemExit) as end:
        run(config_file=configs(task, "inference"), **settings)
    assert end.value.code == 2
    rejected = (last_run(f"radiograph_{task}") / "rejected.csv").read_text()
    assert names[1] in rejected
    assert names[0] not in rejected


METHODS: dict[str, dict[str, Any]] = {
    "afire": at(
        "network_def", head_dim=8, num_clusters=4, decoder_dim=8, decoder_layers=1, decoder_heads=2
    ),
    "peac": {"grid": 6, **at("network_def", expander_dim=8, expander_hidden_dim=16)},
    "ace": {"grid": 10, "cell": 4},
    "mae": at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2),
    "dino": {
        "make_crops::local_size": 16,
        **at("network_def", head_dim=8, bottleneck_dim=4, num_prototypes=8),
    },
}


def pretrain(method: str, network: dict[str, Any] = ENCODER, **overrides: object) -> str:
    """One epoch; the path of the weights."""
    pretraining = {
        "epochs": 1,
        "batch_size": 4,
        "train::run::val_interval": 1,
        "phantom": {**PHANTOM, "image_size": 64},
    }
    if method == "afire":
        pretraining["phantom"]["abnormal_fraction"] = 0.0
    settings = {**network, **METHODS[method], **pretraining, **overrides}
    train_in_process(f"bundles/{method}/configs/train.json", settings)
    return str(last_run(method) / "models/model.pt")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_encoders_of_every_method_feed_every_task(workspace: Path, method: str) -> None:
    source = pretrain(method)
    branch = "encoder" if method == "mae" else "teacher_encoder"  # MAE has no teacher
    expected = torch.load(source, weights_only=True)[f"{branch}.blocks.0.mlp.linear1.weight"]
    for task in TASKS:
        weights = fine_tune(
            task, encoder_weights=source, **{"network_def::freeze_encoder": True, "epochs": 1}
        )
        torch.testing.assert_close(
            weights["encoder.blocks.0.mlp.linear1.weight"], expected, rtol=0, atol=0
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "mae"])
def test_a_convolutional_encoder_is_pre_trained_and_fine_tuned_without_a_word(
    workspace: Path, method: str
) -> None:
    source = pretrain(method, {**IMAGES, "encoder": "residual"})
    expected = torch.load(source, weights_only=True)["teacher_encoder.model.layer4.0.conv2.weight"]
    assert expected.shape == (256, 256, 3, 3)
    weights = fine_tune(
        "classification",
        network=IMAGES,
        encoder_weights=source,
        **{"network_def::freeze_encoder": True, "epochs": 1},
    )
    torch.testing.assert_close(
        weights["encoder.model.layer4.0.conv2.weight"], expected, rtol=0, atol=0
    )


def test_weights_of_timm_start_a_classifier(workspace: Path) -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=64, patch_size=16, hidden_size=24, num_layers=2, num_heads=2)
    export_encoder(encoder, workspace / "timm.safetensors")
    weights = fine_tune(
        "classification",
        encoder_weights="timm.safetensors",
        **{"network_def::freeze_encoder": True, "epochs": 1},
    )
    expected = encoder.state_dict()["blocks.1.attn.out_proj.weight"]
    torch.testing.assert_close(weights["encoder.blocks.1.attn.out_proj.weight"], expected)


@pytest.mark.slow
def test_few_labels_folds_and_early_stopping(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tune("classification", **{"items::label_fraction": 0.1, "epochs": 1})
    fine_tune("segmentation", **{"items::num_shots": 2, "epochs": 1})
    for fold in (0, 1):
        folds = at("items", num_folds=3, fold=fold)
        fine_tune("classification", epochs=1, **folds)
        metrics = evaluate("classification", **folds)
        assert metrics["num_images"] == 12  # of 36 patients in all
    settings = {
        "train::run::patience": 1,
        "learning_rate": 0.0,
        "train::lr_schedule::end": 0.0,
    }
    fine_tune("landmarks", epochs=30, **settings)
    progress = saved_weights("radiograph_landmarks", "models/checkpoint.pt")["training"]
    assert progress["epoch"] < 30


@pytest.mark.parametrize("task", TASKS)
def test_early_stopping_goes_on_counting_after_an_interruption(workspace: Path, task: str) -> None:
    # no step changes anything: the first validation is the best, the third one stops
    settings = {
        "train::run::patience": 2,
        "learning_rate": 0.0,
        "train::lr_schedule::end": 0.0,
    }
    if task == "classification":
        # a warm start is validated before, and the statistics of its features go on changing
        settings["train::warm_start::_disabled_"] = True
    fine_tune(task, **settings, epochs=2)
    fine_tune(task, **settings, epochs=9, resume=True)
    progress = saved_weights(f"radiograph_{task}", "models/checkpoint.pt")["training"]
    assert progress["epoch"] == 3


def test_runs_repeat_and_resume(workspace: Path) -> None:
    settings = {"epochs": 2, "train::run::val_interval": 3}
    whole = fine_tune("classification", **settings)
    again = fine_tune("classification", **settings)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    resumed = fine_tune("classification", epochs=3, resume=True)
    assert resumed.keys() == whole.keys()


@pytest.mark.parametrize("uncertain", ["ignore", "ones", "zeros"])
def test_missing_and_uncertain_labels(workspace: Path, uncertain: str) -> None:
    rows = [[1, 0], [0, 1], [-1, None], [None, 0], [1, 1], [0, -1]]
    path = write_list(workspace, "list.json", "label", rows * 3)
    settings = {
        "dataset_dir": str(workspace / "images"),
        "datalist": path,
        "num_classes": 2,
        "uncertain": uncertain,
    }
    fine_tune("classification", epochs=1, **settings)
    metrics = evaluate("classification", **settings)
    assert set(metrics["per_class"]) == {"class 0", "class 1"}


def test_binary_labels_of_the_phantom(workspace: Path) -> None:
    settings = {"label_key": "abnormal", "num_classes": 1}
    fine_tune("classification", epochs=1, **settings)
    assert 0 <= evaluate("classification", **settings)["mean_auc"] <= 1


@pytest.mark.slow
def test_a_list_in_another_order_has_the_same_result(workspace: Path) -> None:
    labels = [[number % 2, int(number % 5 == 0)] for number in range(24)]
    path = Path(write_list(workspace, "list.json", "label", labels))
    content = {**json.loads(path.read_text()), "finding_names": ["edema", "nodule"]}
    path.write_text(json.dumps(content))
    data = {"datalist": str(path), "dataset_dir": str(workspace / "images")}
    fine_tune("classification", **data)
    one = evaluate("classification", **data)
    for item in content["test"]:
        item["label"].reverse()
    path.write_text(json.dumps({**content, "finding_names": ["nodule", "edema"]}))
    other = evaluate("classification", **data)
    assert one == other


@pytest.mark.filterwarnings("ignore:.*so its mean AUC is nan")
def test_one_class_in_the_test_set_is_not_a_crash(workspace: Path) -> None:
    path = write_list(workspace, "list.json", "label", [[0, 0]] * 6 + [[1, 0], [0, 1], [1, 1]] * 4)
    settings = {"dataset_dir": str(workspace / "images"), "datalist": path, "num_classes": 2}
    fine_tune("classification", epochs=1, **settings)
    metrics = evaluate("classification", **settings)
    assert metrics["per_class"]["class 0"]["auc"] is None
    assert metrics["mean_auc"] is None


@pytest.mark.parametrize(
    ("task", "key", "values", "words"),
    [
        ("classification", "finding", [[0, 1]] * 12, "have no 'label'"),
        ("classification", "label", [[0, 2]] * 12, "2 for"),
        ("classification", "label", [[0, 1, 1]] * 12, "3 values"),
        ("landmarks", "landmarks", [[1, 2, 3]] * 12, "landmarks"),
    ],
)
def test_bad_labels_are_named(
    workspace: Path, task: str, key: str, values: list[Any], words: str
) -> None:
    path = write_list(workspace, "list.json", key, values)
    count = {"classification": 2, "segmentation": 1, "landmarks": 3}[task]
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        fine_tune(task, dataset_dir=str(workspace / "images"), datalist=path, num_classes=count)
    assert words in all_messages(error.value)


def test_wrong_masks_and_shared_patients_are_named(workspace: Path) -> None:
    path = write_list(workspace, "list.json", "organs", ["mask.png"] * 12)
    settings = {"dataset_dir": str(workspace / "images"), "datalist": path, "num_classes": 1}
    another_size = np.eye(30, dtype=np.uint8) * 255
    a_picture = np.tile(np.linspace(0, 255, 40).astype(np.uint8), (40, 1))
    for mask in (another_size, a_picture):
        Image.fromarray(mask).save(workspace / "images/mask.png")
        with pytest.raises(Exception) as error:  # noqa: PT011
            fine_tune("segmentation", **settings)
        assert "mask.png" in all_messages(error.value)

    sections = json.loads(Path(path).read_text())
    for section in ("training", "test"):
        sections[section][0]["patient_id"] = "Mrs Smith"
    Path(path).write_text(json.dumps(sections))
    with pytest.raises(Exception) as error:  # noqa: PT011
        fine_tune("segmentation", **settings)
    assert "Mrs Smith" in all_messages(error.value)


def test_classes_of_a_segmentation_overlap_and_all_learn_the_background() -> None:
    """Dice and binary cross-entropy of each class; of a softmax over the classes the background would learn nothing."""
    config = ConfigParser.load_config_file(
        str(REPOSITORY_ROOT / configs("segmentation", "train")[0])
    )
    loss = ConfigParser({"loss": config["loss"]}).get_parsed_content("loss")
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 4, 5, requires_grad=True), torch.zeros(2, 3, 4, 5)
    labels[:, 0, :3], labels[:, 1, 2:] = 1, 1  # the third class is absent
    expected = torch.zeros(())
    for name in range(3):
        p, y = logits[:, name].sigmoid(), labels[:, name]
        dice = (2 * (p * y).sum() + 1e-5) / (p.sum() + y.sum() + 1e-5)
        expected = expected + (1 - dice - (y * p.log() + (1 - y) * (1 - p).log()).mean()) / 3
    torch.testing.assert_close(loss(logits, labels), expected)
    cross_entropy = loss(logits, labels) - loss.dice(logits, labels)
    [gradient] = torch.autograd.grad(cross_entropy, logits)
    assert ((gradient > 0) == (labels == 0)).all()


@pytest.mark.slow
def test_segmentation_learns_the_lungs(workspace: Path) -> None:
    # as many tokens as by default, of a quarter of the pixels
    overrides: dict[str, Any] = {"image_size": 64, "patch_size": 8, "epochs": 24}
    overrides["phantom::num_patients"] = {"training": 64, "validation": 16, "test": 16}
    result = run_bundle(workspace, configs("segmentation", "train")[0], overrides)
    assert result.returncode == 0, result.stderr[-3000:]
    for words in ("models/model.pt", "evaluate.json", "inference.json"):
        assert words in result.stdout
    both = str(configs("segmentation", "train", "evaluate"))
    result = run_bundle(workspace, both, {**overrides, **LATEST})
    assert result.returncode == 0, result.stderr[-3000:]
    metrics = json.loads((last_run("radiograph_segmentation") / "metrics.json").read_text())
    assert min(metrics["per_class"][name]["dice"] for name in ("lung_left", "lung_right")) > 0.85


@pytest.mark.parametrize("task", TASKS)
def test_other_encoders_are_one_overlay(workspace: Path, task: str) -> None:
    overlays = (
        ("vit_b", ViTEncoder, (14, 14)),
        ("swin_b", SwinEncoder, (14, 14)),
    )
    for overlay, kind, grid in overlays:
        known = ConfigParser.load_config_file(configs(task, "train")[0])
        assert all(
            has(known, name) for name in ConfigParser.load_config_file(configs(task, overlay)[0])
        )
        parser = ConfigParser()
        parser.read_config(configs(task, "train", overlay))
        encoder = parser.get_parsed_content("encoder_def")
        assert isinstance(encoder, kind)
        assert encoder.grid_size == grid


@pytest.mark.parametrize("task", TASKS)
def test_the_network_of_the_default_trains_and_is_used(workspace: Path, task: str) -> None:
    weights = fine_tune(task, network=IMAGES, epochs=1)
    assert any("layer4" in name for name in weights)
    write_images(workspace / "images", 3, size=48)
    images = {"dataset_dir": str(workspace / "images"), "batch_size": 2}
    run(config_file=configs(task, "inference"), **images, **ON_IMAGES)
    assert any(last_run(f"radiograph_{task}").rglob("*.csv"))


def test_a_unet_of_monai_is_pre_trained_and_segments(workspace: Path) -> None:
    unet = {
        "_target_": "monai.networks.nets.BasicUNet",
        "spatial_dims": 2,
        "features": [8, 8, 16, 16, 32, 8],
    }
    small = {"encoder": unet, "image_size": 64, "patch_size": 16}
    source = pretrain("ace", small)
    settings = {**DECODER["segmentation"], **RUN, **small, "epochs": 1, "encoder_weights": source}
    train_in_process(configs("segmentation", "train"), settings)
    assert any("down_4" in name for name in saved_weights("radiograph_segmentation"))
    write_images(workspace / "images", 3, size=48)
    run(
        config_file=configs("segmentation", "inference"),
        dataset_dir=str(workspace / "images"),
        batch_size=2,
        **ON_IMAGES,
    )
    assert any(last_run("radiograph_segmentation").rglob("*.csv"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("architecture", ["vit_b", "swin_b"])
def test_recipes_of_the_papers_are_overlays(task: str, architecture: str) -> None:
    folder = REPOSITORY_ROOT / f"bundles/radiograph_{task}/configs"
    known = ConfigParser.load_config_file(str(folder / "train.json"))
    found = {path.stem for path in folder.glob("paper_*.json")}
    assert found >= {"paper_ace"} | (
        {"paper_afire", "paper_peac"} if task == "classification" else set()
    )
    for overlay in sorted(found):
        values = ConfigParser.load_config_file(str(folder / f"{overlay}.json"))
        settings = [name for name in values if not name.startswith("_")]
        assert [name for name in settings if not has(known, name)] == [], (
            "an overlay may only set what train.json has"
        )
        parser = ConfigParser()
        parser.read_config(
            [str(folder / f"{name}.json") for name in ("train", architecture, overlay)]
        )
        parser["imports"] = None
        assert parser.get_parsed_content("learning_rate") in (1e-4, 2e-4)
        assert parser["train"]["lr_schedule"]["warmup_epochs"] * 2 <= parser.get_parsed_content(
            "epochs"
        )
        # a warm start needs the standardized features that the recipes do without
        if task == "classification":
            assert parser["train"]["warm_start"]["_disabled_"]
        # mirrored images only where no side is to be told
        assert parser.config.get("flip_prob", 0.0) == (0.5 if overlay == "paper_afire" else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_bundle_keeps_the_rules_of_the_model_zoo(workspace: Path, task: str) -> None:
    phantom = {
        **PHANTOM,
        "num_patients": {"training": 4, "validation": 2, "test": 2},
        "image_size": 128,
    }
    settings = {
        "epochs": 1,
        "batch_size": 2,
        "train::dataloader::min_batches": 1,
        "phantom": phantom,
    }
    train_in_process(configs(task, "train"), settings)
    check_bundle(workspace, f"radiograph_{task}")
