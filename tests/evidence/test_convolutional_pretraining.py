# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The benchmark of objectives for the convolutional encoder, on made images."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.evidence import convolutional_pretraining as benchmark
from tests.evidence.convolutional_pretraining import (
    OBJECTIVES,
    Headers,
    MaskedAutoencoder,
    Pretraining,
    Restoration,
    Unlabeled,
    headers_loss,
    info_nce,
    score_held_out,
    view_of,
    without_test,
)
from tests.evidence.nih_findings import (
    FINDINGS,
    Arm,
    Classifier,
    Set,
    encoder_of,
    features_of,
    in_batches,
)


@pytest.fixture
def data() -> Unlabeled:
    """Twenty-four smooth images; the first sixteen have headers."""
    generator = torch.Generator().manual_seed(0)
    images = torch.nn.functional.interpolate(
        torch.rand(24, 1, 8, 8, generator=generator), size=64, mode="bilinear"
    )
    headers = torch.rand(24, 3, generator=generator).round()
    headers[16:] = torch.nan
    return Unlabeled(images, headers)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for objective in OBJECTIVES.values():
        network = "vit" if objective is MaskedAutoencoder else "residual"
        monkeypatch.setattr(type(objective(encoder_of(network, 64))), "batch_size", 4)


CASES = [(name, "vit" if name == "mae" else "residual") for name in OBJECTIVES]
CASES += [("contrast", "stem"), ("contrast", "swin"), ("contrast", "convnext")]


@pytest.mark.parametrize(("name", "network"), CASES)
def test_every_objective_trains_the_encoder_that_the_arm_then_loads(
    name: str, network: str, data: Unlabeled, tmp_path: Path
) -> None:
    if network == "convnext":
        pytest.importorskip("timm", reason="needs timm: pip install 'monai-afire[timm]'")
    training = Pretraining(name, data, None, 1, tmp_path / "run.pt", network)
    training.run(tmp_path / "weights.pt")
    loaded = features_of(Arm("probe", network, str(tmp_path / "weights.pt")), seed=1).encoder
    torch.manual_seed(0)
    untrained = encoder_of(network, 64).state_dict()
    for key, value in training.objective.encoder.state_dict().items():
        if not value.is_floating_point():  # how many batches were counted plays no part
            continue
        torch.testing.assert_close(loaded.state_dict()[key], value, msg=key)
        if key.endswith(("conv1.weight", "qkv.weight")):
            assert not torch.equal(value, untrained[key]), key


def test_a_resumed_pretraining_equals_an_undisturbed_one(data: Unlabeled, tmp_path: Path) -> None:
    whole = Pretraining("masked", data, 8, 2, tmp_path / "whole.pt")
    whole.run(tmp_path / "whole.weights.pt")
    Pretraining("masked", data, 8, 2, tmp_path / "cut.pt").epoch()
    resumed = Pretraining("masked", data, 8, 2, tmp_path / "cut.pt")
    assert len(resumed.history) == 1
    resumed.run(tmp_path / "cut.weights.pt")
    assert resumed.history == whole.history
    expected = torch.load(tmp_path / "whole.weights.pt", weights_only=True)
    for key, value in torch.load(tmp_path / "cut.weights.pt", weights_only=True).items():
        torch.testing.assert_close(value, expected[key])


def test_restoration_sees_no_hidden_pixel_and_counts_no_other(
    data: Unlabeled, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = Restoration(encoder_of("residual", 64)).eval()
    seen = []
    monkeypatch.setattr(
        objective.encoder, "forward", lambda images: seen.append(images) or torch.zeros(2, 64, 256)
    )
    counted = []
    monkeypatch.setattr(
        objective.loss, "forward", lambda _, __, hidden: counted.append(hidden) or hidden.sum()
    )
    images = data.images[:2]
    objective(images, data.headers[:2], torch.Generator().manual_seed(0))
    changed = (seen[0] != images).unflatten(2, (8, 8)).unflatten(4, (8, 8)).any(5).any(3).flatten(1)
    torch.testing.assert_close(changed, counted[0])
    assert counted[0].sum(1).tolist() == [38, 38]
    hidden = (
        seen[0][0, 0]
        .unflatten(0, (8, 8))
        .unflatten(2, (8, 8))
        .transpose(1, 2)
        .reshape(64, 64)[counted[0][0]]
    )
    torch.testing.assert_close(hidden, images[0].mean().expand_as(hidden))


def test_contrast_prefers_the_other_view_of_the_same_image() -> None:
    codes = torch.eye(6)
    assert info_nce(torch.cat([codes, codes])) < 0.1
    assert info_nce(torch.cat([codes, codes.roll(1, 0)])) > 1


def test_headers_count_where_they_are_known() -> None:
    outputs = torch.tensor([[2.0, 0.0, 30.0], [9.0, 9.0, 9.0]])
    headers = torch.tensor([[1.0, 1.0, 1.0], [1.0, torch.nan, 1.0]])
    torch.testing.assert_close(headers_loss(outputs, headers), torch.tensor(1 + math.log(2)))
    assert headers_loss(outputs[1:], headers[1:]) == 0


def test_views_differ_and_stay_in_range(data: Unlabeled) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = view_of(data.images, generator), view_of(data.images, generator)
    assert first.shape == (24, 1, 48, 48)
    assert first.min() >= 0
    assert first.max() <= 1
    assert (first - second).abs().mean() > 0.02


def test_only_images_with_headers_are_drawn_for_them(data: Unlabeled) -> None:
    assert sorted(data.rows(None, Headers.with_headers)) == list(range(16))
    assert len(data.rows(None, False)) == 24
    np.testing.assert_array_equal(data.rows(5, False), data.rows(None, False)[:5])


def test_test_images_are_dropped() -> None:
    table = pd.DataFrame(
        {"section": ["training", "test", "validation"], "patient_id": ["a", "b", "c"]}
    )
    images = torch.arange(3.0).view(3, 1, 1, 1)
    kept = without_test(Set(table, images, np.zeros((3, len(FINDINGS)), np.float32)))
    assert kept.images.flatten().tolist() == [0, 2]
    assert kept.table["patient_id"].tolist() == ["a", "c"]
    assert kept.rows("test").size == 0


def test_saved_networks_score_the_test_images(data: Unlabeled, tmp_path: Path) -> None:
    sections = ["training", "test", "validation", "test"]
    held_out = Set(
        pd.DataFrame({"section": sections}),
        data.images[:4],
        np.zeros((4, len(FINDINGS)), np.float32),
    )
    expected = []
    for seed in (0, 1):
        network = Classifier(features_of(Arm("tuned", "stem"), seed + 5), dropout=0.3)
        torch.nn.init.normal_(network.head.weight)
        torch.save(network.state_dict(), tmp_path / f"stem-scratch-careful_1_{seed}.weights.pt")
        expected.append(in_batches(network, data.images[1:4]))
    score_held_out("stem-scratch-careful_1", "stem", held_out, tmp_path)
    for seed, scores in enumerate(expected):
        with np.load(tmp_path / "test" / f"stem-scratch-careful_1_{seed}.npz") as written:
            np.testing.assert_allclose(written["scores"], scores, rtol=1e-5, atol=1e-5)
            assert written["rows"].tolist() == [1, 2, 3]
    with pytest.raises(FileNotFoundError, match="fine-tune them first"):
        score_held_out("stem-scratch-carefull_1", "stem", held_out, tmp_path)


def test_an_arm_that_is_no_objective_needs_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["", "--data", str(tmp_path), "--output", str(tmp_path), "--arm", "afire"]
    )
    with pytest.raises(SystemExit, match="2"):
        benchmark.main()


def test_weights_of_another_pretraining_are_not_trained_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmark, "read_set", lambda *_: "all")
    monkeypatch.setattr(benchmark, "without_test", lambda found: found)
    tuned = []
    monkeypatch.setattr(benchmark, "fine_tune", lambda *given: tuned.append(given[:3]))
    words = [
        "",
        "--data",
        str(tmp_path),
        "--output",
        str(tmp_path),
        "--arm",
        "afire",
        "--weights",
        "model.pt",
    ]
    monkeypatch.setattr("sys.argv", words)
    benchmark.main()
    assert tuned == [("afire", Path("model.pt"), "all")]
