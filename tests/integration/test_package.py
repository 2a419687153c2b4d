# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bundles packed for MONAI's Model Zoo: nothing is overwritten, its checks pass, its tests run."""

from __future__ import annotations

import json
import shutil
import unittest
from pathlib import Path

import pytest
import torch
from monai.bundle import ckpt_export, load

from integration.bundle_runs import REPOSITORY_ROOT, copy_bundles, packaging
from integration.tiny_runs import in_fast_suite
from monai_afire.networks import ModelFile

BUNDLES = REPOSITORY_ROOT / "bundles"
SCHEMA = Path(__file__).with_name("metadata_schema.json")
ZOO_NAMES = packaging().ZOO_NAMES


@pytest.fixture
def workspace(folder: Path) -> Path:
    """A clone's bundles in the folder in which the test starts."""
    return copy_bundles(folder)


def with_weights(bundle: str) -> Path:
    """A copy of the bundle with the weights that come with it."""
    target = Path("bundles", bundle, "models/model.pt")
    target.parent.mkdir()
    return Path(shutil.copy(REPOSITORY_ROOT / target, target)).parents[1]


def test_the_copy_has_the_paths_of_the_zoo(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, name = with_weights("mae"), "chest_xray_mae_pretraining"
    (bundle / "output").mkdir()
    (bundle / "output/patient.png").touch()
    Path("zoo").mkdir()
    shutil.copy(SCHEMA, "zoo")  # which verify_metadata would download
    assert packaging().main([str(bundle), "zoo"]) == 0
    assert f'add "{name}" to exclude_verify_torchscript_list' in capsys.readouterr().out
    written = {path.relative_to("zoo").as_posix() for path in Path("zoo").rglob("*.*")}
    needed = {"docs/data_license.txt", "configs/metadata.json", "models/model.pt"}
    assert {f"models/{name}/{file}" for file in needed} <= written
    assert {
        f"ci/unit_tests/{file}.py" for file in (f"test_{name}", "radiograph_bundles")
    } <= written
    assert not [path for path in written if "patient" in path]
    with pytest.raises(FileExistsError):
        packaging().main([str(bundle), "zoo"])


@pytest.mark.parametrize("bundle", in_fast_suite("mae"))
def test_the_zoo_takes_the_bundle(bundle: str) -> None:
    packaging().check_bundle(BUNDLES / bundle, SCHEMA)


def test_a_network_unlike_its_metadata_is_refused(workspace: Path) -> None:
    bundle = with_weights("ace")
    path = bundle / "configs/metadata.json"
    metadata = json.loads(path.read_text())
    metadata["network_data_format"]["inputs"]["image"]["num_channels"] = 3
    path.write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=r"\(1, 3, 128, 128\)"):
        packaging().check_bundle(bundle, SCHEMA)


def test_monai_loads_and_exports_the_network() -> None:
    name, folder = "radiograph_classification", Path("bundles/radiograph_classification")
    packaging().copy_bundle(BUNDLES / name, folder)
    network = load(name, bundle_dir="bundles", source="github", workflow_type="inference")
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


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ZOO_NAMES)
def test_unit_test_of_a_bundle(bundle: str, folder: Path) -> None:
    """In a folder that is laid out like a clone of the zoo."""
    ignore = shutil.ignore_patterns("checkpoint*.pt", "output", "data", "__pycache__")
    copy = folder / "models" / ZOO_NAMES[bundle]
    shutil.copytree(BUNDLES / bundle, copy, ignore=ignore)
    before = sorted(copy.rglob("*"))
    precision = torch.get_float32_matmul_precision()
    pattern = f"test_{ZOO_NAMES[bundle]}.py"
    found = unittest.TestLoader().discover(str(BUNDLES / "ci/unit_tests"), pattern)
    assert found.countTestCases()
    result = unittest.TestResult()
    found.run(result)
    torch.set_float32_matmul_precision(precision)
    assert result.wasSuccessful(), "\n".join(text for _, text in (*result.errors, *result.failures))
    assert sorted(copy.rglob("*")) == before, "nothing is written into the bundle"
