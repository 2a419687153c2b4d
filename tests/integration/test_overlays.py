# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Every overlay of every bundle: it sets what there is, its parts are built, and an ablation is what it says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.bundle import ConfigParser
from monai.utils import set_determinism

from integration.bundle_runs import config
from integration.tiny_runs import (
    BUNDLES,
    CONFIGS,
    ENCODER,
    PHANTOM,
    PRE_TRAINING,
    tiny,
    written,
)
from monai_afire.engines import PrepareBatchAugmented, PrepareBatchLesions
from monai_afire.networks.definition import definition_of

ROOTS = ("train", "inference", "metadata")
OVERLAYS = [
    (bundle, path.relative_to(CONFIGS[bundle]).with_suffix("").as_posix())
    for bundle in BUNDLES
    for path in sorted(CONFIGS[bundle].rglob("*.json"))
    if path.stem not in ROOTS
]
ABLATIONS = [case for case in OVERLAYS if case[1].startswith("ablations/")]
# those that stand on another overlay
STANDS_ON = {"fit_encoder": ["finetune_anomaly"], "paper_anomaly": ["paper", "finetune_anomaly"]}
SWIN = {
    "image_size": 64,
    "patch_size": 32,
    "encoder::embed_dim": 12,
    "encoder::depths": [1, 1, 1, 1],
    "encoder::num_heads": [1, 1, 1, 1],
}
SIZES: dict[tuple[str, str], dict[str, Any]] = {
    ("ace", "paper"): {**SWIN, "grid": 5, "cell": 32},
    ("peac", "paper"): {**SWIN, "grid": 3},
    ("ace", "paper_vit"): {"patch_size": 2, "grid": 36, "cell": 2},
}
# the only one that is of another overlay than the defaults
ABLATES = {"ace": {"without_augmentation": ["paper_vit"]}}


def raw(bundle: str, name: str) -> dict[str, Any]:
    return ConfigParser.load_config_file(str(CONFIGS[bundle] / f"{name}.json"))


@cache
def base(bundle: str, overlay: str) -> str:
    """The config that an overlay changes: training, unless it changes parts that inference alone has."""
    changed = {key.rsplit("::", 1)[0] for key in raw(bundle, overlay) if "::" in key}
    parents = [config(bundle, "train", *STANDS_ON.get(overlay, ())), config(bundle, "inference")]
    names = ["train", "inference"]
    fitting = [
        name
        for name, parent in zip(names, parents, strict=True)
        if all(key in parent for key in changed - set(raw(bundle, overlay)))
    ]
    assert fitting, f"{overlay} changes what neither config of {bundle} has: {sorted(changed)}"
    return fitting[0]


def built(bundle: str, *overlays: str, **settings: Any) -> ConfigParser:
    """Configs of a tiny training, on images that nothing has read yet."""
    values = {**tiny(bundle), "cache": "none", **settings}
    merged = config(bundle, "train", *overlays)
    if isinstance(merged.config.get("encoder"), dict):
        taken = {name: value for name, value in values.items() if not name.startswith("encoder")}
        values = {**taken, **SWIN}
    for overlay in overlays:
        values |= SIZES.get((bundle, overlay), {})
    merged.update(values)
    return merged


def strings(value: Any) -> Iterator[str]:
    """All texts in a config, keys apart."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, str):
        yield value
    for part in parts:
        yield from strings(part)


@pytest.mark.parametrize(("bundle", "overlay"), OVERLAYS)
def test_an_overlay_sets_what_something_reads(bundle: str, overlay: str) -> None:
    """A misspelt key at the top of a config would be a new entry that nobody asks for."""
    start = base(bundle, overlay)
    known = raw(bundle, start)
    for below in STANDS_ON.get(overlay, ()):
        known |= raw(bundle, below)
    own = raw(bundle, overlay)
    texts = " ".join([*strings(known), *strings(own)])
    unread = [
        key
        for key in own
        if "::" not in key
        and key not in known
        and f"@{key}" not in texts
        and f"%{key}" not in texts
    ]
    assert unread == []


@pytest.mark.parametrize(
    ("bundle", "overlay"), [case for case in OVERLAYS if case not in ABLATIONS]
)
def test_the_parts_of_an_overlay_are_built(bundle: str, overlay: str) -> None:
    below = STANDS_ON.get(overlay, [])
    if base(bundle, overlay) == "inference":
        parser = config(bundle, "inference", overlay, **PHANTOM)
        parser.get_parsed_content("study_encoders" if overlay == "analysis" else "evaluator")
    elif overlay == "evaluate":
        config(bundle, "train", overlay, **PHANTOM).get_parsed_content("validate::evaluator")
    elif "finetune_anomaly" in (overlay, *below):
        parser = config(bundle, "train", *below, overlay, **ENCODER, **PHANTOM, weights=None)
        parser.get_parsed_content("validate::evaluator")
    else:
        built(bundle, overlay).get_parsed_content("train::trainer")


@pytest.mark.parametrize(("bundle", "overlay"), ABLATIONS)
def test_an_ablation_changes_what_it_says(bundle: str, overlay: str) -> None:
    below = ABLATES.get(bundle, {}).get(Path(overlay).name, [])
    whole, ablated = built(bundle, *below), built(bundle, *below, overlay)
    whole_loss, loss = (each.get_parsed_content("loss") for each in (whole, ablated))
    arguments = definition_of(ablated.get_parsed_content("network_def"))["arguments"]
    for key, value in raw(bundle, overlay).items():
        holder, _, name = key.partition("::")
        if holder == "network_def":
            assert arguments[name] == value
        elif value == 0.0 and holder == "loss":
            term = name.removesuffix("_weight")
            assert whole_loss.weights[term] > loss.weights[term] == 0
        elif key == "paste":
            names = [
                type(step).__name__
                for step in ablated.get_parsed_content("train::preprocessing").transforms
            ]
            assert value["_target_"].rsplit(".", 1)[1] in names
            assert "SynthLesionMaskd" not in names
        elif key not in whole or not isinstance(value, list):
            assert ablated.get_parsed_content(key) == value
            assert key not in whole or whole.get_parsed_content(key) != value


@pytest.mark.parametrize(("bundle", "overlay"), [*((b, "") for b in BUNDLES), *ABLATIONS])
def test_every_parameter_has_a_gradient(bundle: str, overlay: str) -> None:
    """Several processes would wait for it forever; without a term of weight 0 they do not look for one."""
    parser = built(bundle, *filter(None, [overlay]))
    trainer = parser.get_parsed_content("train::trainer")
    batch = next(iter(parser.get_parsed_content("train::dataloader")))
    image, label, *rest = trainer.prepare_batch(batch, torch.device("cpu"), False)
    args, kwargs = rest or ((), {})
    loss = trainer.loss_function(trainer.network(image, *args, **kwargs), label)
    loss.mean().backward()
    assert bool(loss.isfinite().all())
    if min(getattr(trainer.loss_function, "weights", {"": 1}).values()) > 0:
        parameters = trainer.network.named_parameters()
        idle = [name for name, p in parameters if p.requires_grad and p.grad is None]
        assert idle == []


def test_an_ablation_is_trained() -> None:
    parser = built("afire", "ablations/restoration_only", epochs=1, name="ablated")
    parser.get_parsed_content("train::trainer").run()
    state = torch.load(written("afire", "ablated", "model.pt"), weights_only=True)
    assert all(bool(value.isfinite().all()) for value in state.values())


@pytest.mark.parametrize("bundle", BUNDLES)
def test_overlays_for_a_gpu_move_what_is_random_out_of_the_loader(bundle: str) -> None:
    names = [name for _, name in OVERLAYS if name.endswith("_on_device")]
    for name in {name for name in names if (bundle, name) in OVERLAYS}:
        trainer = built(bundle, name).get_parsed_content("train::trainer")
        assert isinstance(trainer.prepare_batch, (PrepareBatchAugmented, PrepareBatchLesions))
        first, again = (trainer.data_loader.dataset[0]["image"] for _ in range(2))
        assert torch.equal(first, again)
        assert "lesion_image" not in trainer.data_loader.dataset[0]


SMALL = {
    **ENCODER,
    "image_size": 64,
    "encoder_def::hidden_size": 48,
    "encoder_def::num_layers": 2,
}
# images, and settings in place of the defaults
LEARNING: dict[str, tuple[int, dict[str, Any]]] = {
    "afire": (384, {"epochs": 10}),
    "ace": (192, {**SMALL, "cell": 4, "epochs": 6}),
    "peac": (384, {"epochs": 6}),
    "mae": (
        192,
        {
            **SMALL,
            "network_def::decoder_dim": 48,
            "network_def::decoder_layers": 1,
            "network_def::decoder_heads": 2,
            "epochs": 6,
        },
    ),
    # of the size of a core of CI; crops of 32 pixels tell too little of an image, and some seeds collapse
    "dino": (
        384,
        {
            **SMALL,
            "epochs": 10,
            "make_crops::local_size": 32,
            "network_def::head_dim": 64,
            "network_def::bottleneck_dim": 16,
            "network_def::num_prototypes": 256,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", PRE_TRAINING)
def test_a_method_learns(bundle: str) -> None:
    """Better than chance, and than at the beginning."""
    set_determinism(0)
    number, settings = LEARNING[bundle]
    counts = {"training": number, "validation": 32}
    images = {**PHANTOM, "phantom": {**PHANTOM["phantom"], "num_patients": counts}}
    images["items::phantom::folder"] = "phantom"
    parser = config(bundle, "train", **images, **settings, cache="memory", num_workers=0)
    parser["train::run::val_interval"] = 2
    parser.get_parsed_content("train::trainer").run()
    training = parser.get_parsed_content("train::run")
    assert training.what_was_not_learned() == ""
    assert training.scores[-1] > training.scores[0]
