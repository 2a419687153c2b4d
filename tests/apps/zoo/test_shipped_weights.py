# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weights that come with the bundles: small, and enough for inference right after the installation."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.bundle import ckpt_export, load, run

from monai_afire.apps.zoo import zoo_problems
from monai_afire.apps.zoo.model_zoo import ZOO_NAMES
from monai_afire.networks import ModelFile

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"
MEGABYTE = 10**6
CONFIGS = [*((name, ("inference",)) for name in ZOO_NAMES), ("afire", ("inference", "restore"))]
TWO_IMAGES = {"num_patients": {"training": 2, "validation": 2, "test": 2}, "seed": 0}


@pytest.fixture
def bundle_copy(tmp_path: Path) -> Any:
    """Copies a bundle with its weights, of which nothing but the copy is written to."""

    def copy(bundle: str) -> Path:
        ignore = shutil.ignore_patterns("checkpoint*.pt", "output", "data")
        return Path(shutil.copytree(BUNDLES / bundle, tmp_path / "bundles" / bundle, ignore=ignore))

    return copy


def test_weights_are_small() -> None:
    sizes = {name: (BUNDLES / name / "models/model.pt").stat().st_size for name in ZOO_NAMES}
    assert max(sizes.values()) <= 6 * MEGABYTE, sizes
    released = [path.stat().st_size for path in BUNDLES.glob("*/released/*")]
    assert sum([*sizes.values(), *released]) <= 72 * MEGABYTE


@pytest.mark.parametrize("task", ["classification", "landmarks", "segmentation"])
def test_a_task_shows_the_kind_of_network_that_it_trains(task: str) -> None:
    network = ModelFile(BUNDLES / f"radiograph_{task}/models/model.pt").description.network
    assert network["arguments"]["encoder"]["class"] == "ResidualEncoder"


@pytest.mark.parametrize(("bundle", "configs"), CONFIGS)
def test_inference_right_away(
    bundle: str, configs: tuple[str, ...], bundle_copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bundle_copy(bundle)
    monkeypatch.chdir(folder)
    before = ModelFile("models/model.pt").description.digest
    overrides = {f"phantom::{name}": value for name, value in TWO_IMAGES.items()}
    run(config_file=[f"configs/{name}.json" for name in configs], output_dir="out", **overrides)
    assert any(path.stat().st_size for path in Path("out").rglob("*") if path.is_file())
    assert ModelFile("models/model.pt").description.digest == before


def test_findings_of_nih_right_away(bundle_copy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle_copy("radiograph_classification"))
    images = {f"phantom::{name}": value for name, value in TWO_IMAGES.items()}
    file = "released/nih_findings.pt"
    run(config_file="configs/inference.json", ckpt_path=file, output_dir="out", **images)
    [table] = Path("out").rglob("predictions.csv")
    header = table.read_text().splitlines()[0]
    assert all(name in header for name in ModelFile(file).class_names)
    assert len(ModelFile(file).class_names) == 12


@pytest.mark.parametrize("bundle", ZOO_NAMES)
def test_zoo_takes_the_bundle(bundle: str) -> None:
    assert zoo_problems(BUNDLES / bundle) == []


def test_monai_loads_and_exports_the_network(
    bundle_copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bundle_copy("radiograph_classification")
    monkeypatch.chdir(folder.parents[1])
    network = load(folder.name, bundle_dir="bundles", source="github", workflow_type="inference")
    file = ModelFile(folder / "models/model.pt")
    size = [2, 1, file.image_size, file.image_size]
    image = torch.rand(*size, generator=torch.Generator().manual_seed(0))
    expected = file.build()(image)
    assert expected.shape == (2, len(file.class_names))
    torch.testing.assert_close(network.eval()(image), expected)
    ckpt_export(
        config_file=f"{folder}/configs/inference.json",
        bundle_root=str(folder),
        ckpt_file=f"{folder}/models/model.pt",
        filepath="model.ts",
        use_trace=True,
        input_shape=size,
    )
    torch.testing.assert_close(torch.jit.load("model.ts")(image), expected, atol=1e-4, rtol=1e-4)
