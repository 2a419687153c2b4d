# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Random weights have the shape of those that they are compared with, which bring theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from monai_afire.experiments.plan import Experiment, ExperimentError, Pretraining, Run
from monai_afire.experiments.shapes import shape_of_random_weights
from monai_afire.networks import MAE, ViTEncoder, save_network

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"
TRAIN = str(BUNDLES / "radiograph_classification/configs/train.json")


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return Experiment((TRAIN,), tmp_path, {"patch_size": "8"})


def save(path: Path, image_size: int = 32, standardize: bool = False) -> str:
    encoder = ViTEncoder(img_size=image_size, patch_size=4, hidden_size=192, num_layers=5, num_heads=6)
    preprocessing = {"image_size": image_size, "standardize": standardize}
    return str(save_network(MAE(encoder, 16, 1, 2), path, {"preprocessing": preprocessing}))


def test_it_is_that_of_the_weights_where_the_bundle_has_another(tmp_path: Path, experiment: Experiment) -> None:
    path = save(tmp_path / "a.pt", image_size=64, standardize=True)
    shape = shape_of_random_weights([("scratch", None), ("a", path)], experiment)
    assert shape == {"image_size": 64, "standardize": True}
    told = Experiment((TRAIN,), tmp_path, {"image_size": "96"}, {"image_size": 64, "standardize": True})
    training = told.steps(Run("scratch", None, 0))["training"]
    assert training[training.index("--standardize") + 1] == "True"
    assert training[training.index("--image_size") + 1] == "96"
    assert "--standardize" not in told.steps(Run("a", path, 0))["training"]


def test_weights_that_carry_nothing_or_are_alone_say_nothing(tmp_path: Path, experiment: Experiment) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "timm.pth")
    assert shape_of_random_weights([("scratch", None), ("timm", str(tmp_path / "timm.pth"))], experiment) == {}
    assert shape_of_random_weights([("a", save(tmp_path / "a.pt", image_size=64))], experiment) == {}
    assert shape_of_random_weights([("scratch", None)], experiment) == {}


def test_arms_say_it_before_they_are_trained(tmp_path: Path, experiment: Experiment) -> None:
    train = str(BUNDLES / "afire/configs/train.json")
    settings = (("num_layers", "6"), ("standardize", "true"), ("epochs", "3"), ("head_dim", "4"))
    arms = [("full", Pretraining("full", tmp_path, (train,), settings)), ("untrained", None)]
    assert shape_of_random_weights(arms, experiment) == {"num_layers": 6, "standardize": True}
    arms += [("other", Pretraining("other", tmp_path, (train,), (("num_layers", "7"),)))]
    with pytest.raises(ExperimentError, match=r"differ in num_layers: 6 and 7 \(of 'other'\); give --num_layers"):
        shape_of_random_weights(arms, experiment)
    bad = Pretraining("bad", tmp_path, (train,), (("num_layers", "x"),))
    with pytest.raises(ExperimentError, match="arm 'bad': --num_layers: found 'x', needs a whole number"):
        shape_of_random_weights([("untrained", None), ("bad", bad)], experiment)
