# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A fine-tuning starts from any weights, and what it learned to tell apart goes with its model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.bundle import ConfigParser

from integration.bundle_runs import all_messages, at, config, new_network, write_images
from integration.tiny_runs import (
    FINE_TUNING,
    PHANTOM,
    PRE_TRAINING,
    run_workflow,
    tiny,
    train,
    written,
)
from monai_afire.apps.exchange import export_encoder
from monai_afire.handlers import HeadWarmStart
from monai_afire.networks import (
    AFiRe,
    ModelFile,
    ResidualEncoder,
    SwinEncoder,
    ViTEncoder,
    save_network,
    starting_encoder,
)

CLASSIFICATION = "radiograph_classification"
SIZES = {"hidden_size": 24, "num_layers": 3, "num_heads": 4}
BATCH = {"image": torch.rand(4, 1, 128, 128), "label": torch.tensor([[0.0], [0.0], [0.0], [1.0]])}


def start(bundle: str, *overlays: str, **settings: Any) -> ConfigParser:
    """A fine-tuning whose network can be built without data."""
    parser = config(bundle, "train", *overlays, class_names=["one"])
    if "warm_start" in parser["train"]:
        batches = {"train_batches": [BATCH], "val_batches": [BATCH], "validator": None}
        parser.update(at("train::warm_start", **batches))
    parser.update(settings)
    return parser


def encoder_of(bundle: str, **settings: Any) -> Any:
    return start(bundle, **settings).get_parsed_content("encoder_def")


def pretrained(path: str = "pretrained.pt", **changed: Any) -> str:
    """A network with a description."""
    encoder = ViTEncoder(1, 64, 8, **{**SIZES, **changed})
    network = AFiRe(encoder, num_clusters=4, head_dim=8, decoder_dim=8, decoder_heads=2)
    save_network(network, path, {"preprocessing": {"standardize": True}})
    return path


# --- where it starts


@pytest.mark.parametrize("method", PRE_TRAINING)
def test_the_encoder_of_every_method_is_taken(method: str) -> None:
    network, description = new_network(method)
    source = save_network(network, "source.pt", description)
    branch = "encoder" if method == "mae" else "teacher_encoder"  # MAE has no teacher
    expected = torch.load(source, weights_only=True)[f"{branch}.blocks.0.mlp.linear1.weight"]
    for bundle in FINE_TUNING:
        found = encoder_of(bundle, weights="source.pt").state_dict()
        assert torch.equal(found["blocks.0.mlp.linear1.weight"], expected)


@pytest.mark.parametrize("bundle", FINE_TUNING)
def test_sizes_and_images_come_from_the_file(bundle: str) -> None:
    parser = start(bundle, weights=pretrained())
    encoder = parser.get_parsed_content("encoder_def")
    assert (encoder.img_size, encoder.patch_size) == ((64, 64), (8, 8))
    assert (encoder.hidden_size, len(encoder.blocks)) == (24, 3)
    images = [parser.get_parsed_content(name) for name in ("image_size", "channels", "standardize")]
    assert images == [64, 1, True]


def test_a_detector_has_the_encoder_and_the_images_of_its_file() -> None:
    parser = config("afire", "train", "finetune_anomaly", weights=pretrained())
    assert parser.get_parsed_content("network_def").encoder.hidden_size == 24
    images = [parser.get_parsed_content(name) for name in ("image_size", "channels", "standardize")]
    assert images == [64, 1, True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_def::num_layers", 5),
        ("encoder_def::patch", 8),
        ("encoder", "residual"),
    ],
)
def test_what_contradicts_the_file_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RuntimeError) as refusal:
        encoder_of(CLASSIFICATION, weights=pretrained(), **{name: value})
    message = all_messages(refusal.value)
    assert "pretrained.pt" in message or name in message


def test_images_and_patches_may_be_larger() -> None:
    encoder = encoder_of(CLASSIFICATION, weights=pretrained(), image_size=96, patch_size=16)
    assert (encoder.img_size, encoder.patch_size) == ((96, 96), (16, 16))
    detector = config("afire", "train", "finetune_anomaly", weights=pretrained(), image_size=128)
    with pytest.raises(RuntimeError) as refusal:
        detector.get_parsed_content("network_def")  # a decoder has one size
    assert "image_size 128" in all_messages(refusal.value)


def test_an_encoder_that_no_option_describes_is_built_too() -> None:
    swin = SwinEncoder(img_size=64, embed_dim=6, depths=(1, 1, 1, 1), num_heads=(1, 1, 1, 1))
    save_network(swin, "swin.pt", {"preprocessing": {}})
    built = encoder_of("radiograph_segmentation", weights="swin.pt")
    assert isinstance(built, SwinEncoder)
    assert built.img_size == (64, 64)


def test_the_encoder_of_another_library_has_its_weights() -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=64, patch_size=16, hidden_size=24, num_layers=2, num_heads=2)
    export_encoder(encoder, "timm.safetensors")
    sizes = at("encoder_def", hidden_size=24, num_layers=2, num_heads=2)
    settings = {"image_size": 32, "patch_size": 8, **sizes}
    found = encoder_of(CLASSIFICATION, weights="timm.safetensors", **settings)
    expected = encoder.state_dict()["blocks.1.attn.out_proj.weight"]
    torch.testing.assert_close(found.state_dict()["blocks.1.attn.out_proj.weight"], expected)


def test_a_frozen_encoder_stays_as_it_was() -> None:
    source = pretrained(hidden_size=24, num_layers=1)
    expected = torch.load(source, weights_only=True)
    settings = {**ONLY_IMAGES, "weights": source, "network_def::freeze_encoder": True}
    run_workflow(CLASSIFICATION, "train", **settings, epochs=1, name="frozen")
    found = torch.load(written(CLASSIFICATION, "frozen", "model.pt"), weights_only=True)
    names = [name for name in found if name.startswith("encoder.blocks")]
    assert names
    assert all(torch.equal(found[name], expected[f"teacher_{name}"]) for name in names)
    about = ModelFile(written(CLASSIFICATION, "frozen", "model.pt"))
    assert (about.image_size, about.standardize) == (64, True)


# --- the recipe follows the encoder


def recipe(parser: ConfigParser) -> tuple[float, float, int, bool]:
    """Learning rate of the head, smallest share of it, number of shares, and whether the head starts warm."""
    groups = parser.get_parsed_content("optimizer").param_groups
    shares = {group["lr_scale"] for group in groups}
    is_warm = "warm_start" in parser["train"] and isinstance(
        parser.get_parsed_content("train::warm_start"), HeadWarmStart
    )
    return max(group["lr"] for group in groups), min(shares), len(shares), is_warm


@pytest.mark.parametrize("bundle", FINE_TUNING)
def test_without_weights_a_residual_network_learns_everywhere_alike(bundle: str) -> None:
    parser = start(bundle)
    assert isinstance(parser.get_parsed_content("encoder_def"), ResidualEncoder)
    assert recipe(parser) == (0.002, 1.0, 1, False)


@pytest.mark.parametrize("bundle", FINE_TUNING)
@pytest.mark.parametrize(
    ("given", "num_blocks"), [({"weights": "released"}, 6), ({"encoder": "vit"}, 5)]
)
def test_a_vit_learns_slower_below(bundle: str, given: dict[str, str], num_blocks: int) -> None:
    parser = start(bundle, **given)
    encoder = parser.get_parsed_content("encoder_def")
    assert isinstance(encoder, ViTEncoder)
    assert (encoder.hidden_size, len(encoder.blocks)) == (192, num_blocks)
    is_classification = bundle == CLASSIFICATION
    rate = 0.001 if is_classification else 0.002
    smallest = pytest.approx(0.6 ** (num_blocks + 1))
    assert recipe(parser) == (rate, smallest, num_blocks + 2, is_classification)


def test_a_residual_network_with_weights_has_the_recipe_of_weights() -> None:
    save_network(starting_encoder(image_size=32), "model.pt", {"preprocessing": {}})
    parser = start(CLASSIFICATION, weights="model.pt")
    assert isinstance(parser.get_parsed_content("encoder_def"), ResidualEncoder)
    rate, smallest, _, is_warm = recipe(parser)
    assert (rate, smallest, is_warm) == (0.001, pytest.approx(0.6**5), True)


# --- what it learned to tell apart

ONLY_IMAGES = {
    name: value
    for name, value in tiny(CLASSIFICATION).items()
    if name not in ("image_size", "patch_size", "encoder") and not name.startswith("encoder_def")
}
GRADES = ["none", "one", "several"]


def labeled(labels: list[Any], header: dict[str, Any] | None = None) -> dict[str, Any]:
    """A datalist of noise with two thirds of the images in training, and the options to use it."""
    names = write_images(Path("images"), len(labels), size=40)
    items = [{"image": file, "label": label} for file, label in zip(names, labels, strict=True)]
    part = len(items) // 6
    sections = {
        "training": items[2 * part :],
        "validation": items[:part],
        "test": items[part : 2 * part],
    }
    Path("list.json").write_text(json.dumps({**(header or {}), **sections}))
    return {"dataset_dir": "images", "datalist": "list.json"}


def evaluate(name: str, **options: Any) -> dict[str, Any]:
    settings = {"device": "cpu", "num_workers": 0, "report::num_bootstraps": 10, **options}
    run_workflow(CLASSIFICATION, "train", "evaluate", **settings, weights=name, name=f"of_{name}")
    return json.loads(Path(f"runs/{CLASSIFICATION}/of_{name}/metrics.json").read_text())


def decisions(folder: str) -> list[dict[str, str]]:
    with Path(folder, "predictions.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_exclusive_classes_are_known_by_every_later_step() -> None:
    data = labeled([number % 3 for number in range(23)] + [-1], {"labels": GRADES})
    train(CLASSIFICATION, **data, label_kind="multiclass", epochs=1, name="graded")
    model = ModelFile(written(CLASSIFICATION, "graded", "model.pt"))
    assert (model.class_names, model.label_kind) == (GRADES, "multiclass")
    metrics = evaluate("graded", **data)
    assert list(metrics["per_class"]) == GRADES
    assert metrics["num_images"] == 4
    used = {**data, "weights": "graded", "device": "cpu", "name": "used"}
    run_workflow(CLASSIFICATION, "inference", **used)
    rows = decisions(f"runs/{CLASSIFICATION}/used")
    assert list(rows[0]) == ["image", *(f"probability_{name}" for name in GRADES), "decision"]
    for row in rows:
        values = [float(row[f"probability_{name}"]) for name in GRADES]
        assert sum(values) == pytest.approx(1, abs=1e-3)
        assert row["decision"] == GRADES[values.index(max(values))]
    with pytest.raises(RuntimeError) as refusal:
        evaluate("graded", **data, label_kind="multilabel")
    assert "label_kind multilabel" in all_messages(refusal.value)


@pytest.mark.slow
def test_a_list_in_another_order_has_the_same_result() -> None:
    labels = [[number % 2, int(number % 5 == 0)] for number in range(24)]
    data = labeled(labels, {"finding_names": ["edema", "nodule"]})
    train(CLASSIFICATION, **data, epochs=1, name="first")
    one = evaluate("first", **data)
    labeled([label[::-1] for label in labels], {"finding_names": ["nodule", "edema"]})
    run_workflow(
        *(CLASSIFICATION, "train", "evaluate"),
        **{**data, "device": "cpu", "weights": "first", "name": "other", "num_workers": 0},
        **{"report::num_bootstraps": 10},
    )
    other = json.loads(Path(f"runs/{CLASSIFICATION}/other/metrics.json").read_text())
    assert one == other


@pytest.mark.parametrize(
    ("labels", "settings", "words"),
    [
        ([[0, 1, 1]] * 12, {"num_classes": 2}, "image_"),
        ([3] * 12, {"label_kind": "multiclass", "num_classes": 3}, "image_"),
        ([1] * 12, {"label_key": "finding"}, "finding"),
    ],
)
def test_wrong_labels_are_named(labels: list[Any], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeError) as refusal:
        train(CLASSIFICATION, **labeled(labels), **settings)
    assert words in all_messages(refusal.value)
    assert not list(Path("runs").rglob("model.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("bundle", FINE_TUNING)
def test_a_model_is_evaluated_and_used(bundle: str) -> None:
    train(bundle, epochs=1, name="tuned")
    weights = {**PHANTOM, "weights": "tuned", "device": "cpu", "num_workers": 0}
    run_workflow(bundle, "train", "evaluate", **weights, name="judged")
    metrics = json.loads(Path("runs", bundle, "judged", "metrics.json").read_text())
    names = ModelFile(written(bundle, "tuned", "model.pt")).class_names
    assert (
        list(metrics["per_class"] if "per_class" in metrics else metrics["per_landmark"]) == names
    )
    run_workflow(bundle, "inference", **weights, name="used")
    assert any(Path("runs", bundle, "used").rglob("*.csv"))


def test_classes_of_a_segmentation_overlap_and_all_learn_the_background() -> None:
    """Dice and binary cross-entropy of each class; of a softmax over the classes the background would learn nothing."""
    loss = config("radiograph_segmentation", "train").get_parsed_content("loss")
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
