# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The Model Zoo takes every bundle with the weights that come with it, and MONAI loads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.bundle import ckpt_export, load

from monai_afire.apps.zoo import zoo_problems
from monai_afire.apps.zoo.model_zoo import ZOO_NAMES
from monai_afire.networks import ModelFile

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"


@pytest.fixture
def bundle_copy(tmp_path: Path) -> Any:
    """Copies a bundle with its weights, of which nothing but the copy is written to."""

    def copy(bundle: str) -> Path:
        ignore = shutil.ignore_patterns("checkpoint*.pt", "output", "data")
        return Path(shutil.copytree(BUNDLES / bundle, tmp_path / "bundles" / bundle, ignore=ignore))

    return copy


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
