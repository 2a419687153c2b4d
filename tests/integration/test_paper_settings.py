# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The overlays named after papers set the numbers that the papers print."""

from __future__ import annotations

import math
from typing import Any

import pytest

from integration.bundle_runs import config
from integration.tiny_runs import BUNDLES, CONFIGS

VIT_B = {
    "patch_size": 16,
    "encoder_def::hidden_size": 768,
    "encoder_def::num_layers": 12,
    "encoder_def::num_heads": 12,
}
# AdamW with weight decay 0.04 to 0.4, learning rate 5e-4 for 256 images
DINO_LIKE = {"optimizer::weight_decay": 0.04, "train::weight_decay_schedule::end": 0.4}
FINE_TUNED = {
    "learning_rate": 1e-4,
    "batch_size": 32,
    "train::lr_schedule::warmup_epochs": 20,
    "train::lr_schedule::end": 0.0,
    "optimizer::params::layer_decay": 1.0,
}
LESIONS = {
    "add_lesions::num_masks": 9,
    "add_lesions::num_lesions": [1, 4],
    "add_lesions::lesion_size": [16, 64],
}
PAPERS: dict[tuple[str, str], dict[str, Any]] = {
    ("afire", "paper"): {
        **VIT_B,
        **DINO_LIKE,
        **LESIONS,
        "image_size": 224,
        "epochs": 800,
        "batch_size": 64,
        "learning_rate": 5e-4 * 64 / 256,
        "train::lr_schedule::warmup_epochs": 20,
        "train::lr_schedule::end": 1e-6,
        "train::gradient_clipping::max_norm": 3.0,
        "network_def::num_clusters": 256,
        "network_def::decoder_dim": 512,
        "network_def::decoder_layers": 8,
        "network_def::teacher_temperature": 0.04,
        "train::teacher_temperature_schedule::epochs": 30,
    },
    ("afire", "paper_anomaly"): {
        **LESIONS,
        "optimizer::_target_": "torch.optim.Adam",
        "learning_rate": 1e-4,
        "batch_size": 64,
        "train::lr_schedule::warmup_epochs": 20,
        "train::gradient_clipping::max_norm": 3.0,
    },
    ("ace", "paper"): {
        **DINO_LIKE,
        "image_size": 448,
        "patch_size": 32,
        "epochs": 100,
        "batch_size": 32,
        "learning_rate": 5e-4 * 32 / 256,
        "train::lr_schedule::warmup_epochs": 10,
        "train::gradient_clipping::max_norm": 0.8,
        "network_def::teacher_decay": 0.996,
        "encoder::drop_path_rate": 0.1,
        "augment_crops::prob": 1.0,
    },
    ("ace", "paper_vit"): {**DINO_LIKE, **VIT_B, "image_size": 448, "epochs": 100},
    ("peac", "paper"): {
        **DINO_LIKE,
        "image_size": 448,
        "patch_size": 32,
        "epochs": 100,
        "learning_rate": 5e-4 * 16 / 256,
        "train::lr_schedule::warmup_epochs": 10,
        "network_def::teacher_decay": 0.996,
        "encoder::drop_path_rate": 0.1,
    },
    ("peac", "paper_vit"): {**DINO_LIKE, **VIT_B, "image_size": 224, "epochs": 100},
    ("mae", "paper"): {
        **VIT_B,
        "image_size": 224,
        "epochs": 800,
        "learning_rate": 1.5e-4 * 64 * 8 / 256,  # of each of 8 processes
        "train::lr_schedule::warmup_epochs": 40,
        "optimizer::weight_decay": 0.05,
        "optimizer::betas": [0.9, 0.95],
        "train::gradient_clipping::max_norm": math.inf,
        "crop_scale": [0.2, 1.0],
        "hide_patches::mask_ratio": 0.75,
        "network_def::decoder_dim": 512,
        "network_def::decoder_layers": 8,
        "network_def::normalize_target": True,
    },
    ("dino", "paper"): {
        **DINO_LIKE,
        "image_size": 224,
        "encoder_def::hidden_size": 384,
        "epochs": 300,
        "learning_rate": 5e-4 * 64 / 256,
        "train::lr_schedule::warmup_epochs": 10,
        "network_def::num_prototypes": 65536,
        "network_def::bottleneck_dim": 256,
        "network_def::teacher_balance": "center",
        "network_def::teacher_decay": 0.996,
        "make_crops::num_local": 8,
        "make_crops::local_size": 96,
        "make_crops::global_scale": [0.4, 1.0],
        "make_crops::local_scale": [0.05, 0.4],
        "train::last_layer_freeze::epochs": 1,
    },
    ("radiograph_classification", "paper_ace"): {**FINE_TUNED, "epochs": 150, "flip_prob": 0.0},
    ("radiograph_classification", "paper_peac"): {**FINE_TUNED, "epochs": 150, "flip_prob": 0.0},
    ("radiograph_classification", "paper_afire"): {
        "epochs": 100,
        "batch_size": 128,
        "learning_rate": 2e-4,
        "train::lr_schedule::warmup_epochs": 0,
        "optimizer::params::weight_decay": 0.05,
        "train::run::patience": 10,
        "flip_prob": 0.5,
    },
    ("radiograph_landmarks", "paper_ace"): {**FINE_TUNED, "epochs": 500},
    ("radiograph_segmentation", "paper_ace"): {**FINE_TUNED, "epochs": 500},
    ("radiograph_segmentation", "paper_peac"): {**FINE_TUNED, "epochs": 500},
}
STANDS_ON = {"paper_anomaly": ["paper", "finetune_anomaly"]}


def test_every_overlay_of_a_paper_is_here() -> None:
    found = {(name, path.stem) for name in BUNDLES for path in CONFIGS[name].glob("paper*.json")}
    assert found == set(PAPERS)


@pytest.mark.parametrize(("bundle", "overlay"), PAPERS)
def test_an_overlay_has_the_numbers_of_its_paper(bundle: str, overlay: str) -> None:
    parser = config(bundle, "train", *STANDS_ON.get(overlay, []), overlay)
    parser["weights"] = None
    found = {
        name: parser.get_parsed_content(name, instantiate=False) for name in PAPERS[bundle, overlay]
    }
    for name, value in PAPERS[bundle, overlay].items():
        assert found[name] == (pytest.approx(value) if isinstance(value, float) else value), name
