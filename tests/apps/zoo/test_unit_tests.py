# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles' tests for the Model Zoo, run in a folder that is laid out like a clone of the zoo."""

from __future__ import annotations

import shutil
import unittest
from pathlib import Path

import pytest
import torch

from monai_afire.apps.zoo.model_zoo import ZOO_NAMES

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"


def test_every_bundle_has_one() -> None:
    tests = {path.name for path in (BUNDLES / "ci/unit_tests").glob("test_*.py")}
    assert tests == {f"test_{name}.py" for name in ZOO_NAMES.values()}
    assert set(ZOO_NAMES) == {
        path.parents[1].name for path in BUNDLES.glob("*/configs/metadata.json")
    }


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ZOO_NAMES)
def test_unit_test_of_a_bundle(
    bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignore = shutil.ignore_patterns("checkpoint*.pt", "output", "data", "__pycache__")
    copy = tmp_path / "models" / ZOO_NAMES[bundle]
    shutil.copytree(BUNDLES / bundle, copy, ignore=ignore)
    before = sorted(copy.rglob("*"))
    monkeypatch.chdir(tmp_path)
    precision = torch.get_float32_matmul_precision()
    pattern = f"test_{ZOO_NAMES[bundle]}.py"
    found = unittest.TestLoader().discover(str(BUNDLES / "ci/unit_tests"), pattern)
    assert found.countTestCases()
    result = unittest.TestResult()
    found.run(result)
    torch.set_float32_matmul_precision(precision)
    assert result.wasSuccessful(), "\n".join(text for _, text in (*result.errors, *result.failures))
    assert sorted(copy.rglob("*")) == before, "nothing is written into the bundle"
