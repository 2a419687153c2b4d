# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles on pictures in colour: crops of a fundus photograph, pre-trained on, graded and judged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bundles.bundle_runs import copy_bundles, saved_weights, train_in_process
from PIL import Image
from skimage.data import retina

SHAPE = {"image_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
AFIRE = {"head_dim": 16, "num_clusters": 8, "decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2}
RUN = {"epochs": 1, "batch_size": 4, "val_interval": 1, "device": "cpu", "cache": "none", "num_workers": 0}
SECTIONS = {"training": 12, "validation": 6, "test": 6}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error:.*colour picture:UserWarning")]


@pytest.fixture
def fundus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A clone's bundles, and crops of a photograph of the retina, graded 0 to 2 by their brightness."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    photograph, rng = retina(), np.random.default_rng(0)
    content: dict = {"labels": ["dark", "medium", "bright"]}
    for section, number in SECTIONS.items():
        content[section] = []
        for index in range(number):
            row, column = rng.integers(300, 900, 2)
            name = f"{section}_{index}.png"
            Image.fromarray(photograph[row : row + 96, column : column + 96]).save(name)
            item = {
                "image": name,
                "label": index % 3,
                "patient_id": name,
                "abnormal": int(section == "test" and index % 2),
            }
            content[section].append(item)
    Path("list.json").write_text(json.dumps(content))
    return {"dataset_dir": ".", "datalist": "list.json"}


def configs(bundle: str, *names: str) -> list[str]:
    return [f"bundles/{bundle}/configs/{name}.json" for name in (*names, "colour")]


def test_afire_learns_adapts_and_judges(fundus: dict[str, str]) -> None:
    train_in_process(configs("afire", "train"), {**SHAPE, **AFIRE, **RUN, **fundus})
    assert saved_weights("afire")["encoder.patch_embedding.patch_embeddings.weight"].shape == (24, 3, 8, 8)
    adapting = {**RUN, **fundus, "warmup_epochs": 0}
    train_in_process(["bundles/afire/configs/train.json", "bundles/afire/configs/finetune_anomaly.json"], adapting)
    inference = {**fundus, "device": "cpu", "num_workers": 0, "saved": ["overlays"], "picture_size": 96}
    train_in_process("bundles/afire/configs/inference.json", inference)
    assert len(list(Path("bundles/afire/output/inference/overlays").rglob("*.jpg"))) == SECTIONS["test"]


@pytest.mark.parametrize("bundle", ["ace", "peac", "mae", "dino"])
def test_the_other_methods_learn(bundle: str, fundus: dict[str, str]) -> None:
    sizes = {
        "ace": {"grid": 8, "cell": 4},
        "peac": {"grid": 5, "expander_dim": 16, "expander_hidden_dim": 16},
        "mae": {"decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2},
        "dino": {"local_size": 16, "num_local_crops": 1, "num_prototypes": 8, "head_dim": 16, "bottleneck_dim": 8},
    }
    train_in_process(configs(bundle, "train"), {**SHAPE, **sizes[bundle], **RUN, **fundus})
    weights = saved_weights(bundle)
    [name] = [name for name in weights if name.endswith("encoder.patch_embedding.patch_embeddings.weight")][-1:]
    assert weights[name].shape == (24, 3, 8, 8)


def test_grading_starts_from_colour_weights(fundus: dict[str, str]) -> None:
    steps = {"warmup_epochs": 0, "min_steps_per_epoch": 1, "label_kind": "multiclass"}
    train_in_process(configs("radiograph_classification", "train"), {**SHAPE, **RUN, **fundus, **steps})
    used = {**fundus, "device": "cpu", "num_workers": 0, "output_dir": "graded"}
    train_in_process("bundles/radiograph_classification/configs/inference.json", used)
    assert "dark" in Path("graded/predictions.csv").read_text().splitlines()[0]
