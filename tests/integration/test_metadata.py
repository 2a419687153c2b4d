# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles' metadata.json: by the Model Zoo's schema, with pins that its CPU job (Python 3.10) can install."""

from __future__ import annotations

import json
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = sorted(path.parents[1].name for path in ROOT.glob("bundles/*/configs/metadata.json"))
# newest versions with wheels for Python 3.10 and for 3.13; a later version may be added once it has both


def metadata(bundle: str) -> dict[str, Any]:
    return json.loads(
        (ROOT / "bundles" / bundle / "configs/metadata.json").read_text(encoding="utf-8")
    )


def pins(bundle: str) -> dict[str, str]:
    """Name and version of all that the zoo's job installs, without this package."""
    content = metadata(bundle)
    own = {
        name: content[f"{key}_version"] for key, name in (("monai", "monai"), ("pytorch", "torch"))
    }
    packages = {**own, "numpy": content["numpy_version"], **content["required_packages_version"]}
    return {name: version for name, version in packages.items() if name != "monai-afire"}


@pytest.mark.parametrize("bundle", BUNDLES)
def test_metadata_follows_the_schema(bundle: str) -> None:
    schema = json.loads(
        Path(__file__).with_name("metadata_schema.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft201909Validator.check_schema(schema)
    content = metadata(bundle)
    jsonschema.validate(content, schema)
    assert content["version"] in content["changelog"]
    del content["task"]
    with pytest.raises(jsonschema.ValidationError, match="'task' is a required property"):
        jsonschema.validate(content, schema)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_pins_satisfy_what_the_package_requires(bundle: str) -> None:
    pinned = pins(bundle)
    needed = [Requirement(text) for text in requires("monai-afire") or [] if "extra ==" not in text]
    wrong = [
        str(need)
        for need in needed
        if need.name in pinned and not need.specifier.contains(Version(pinned[need.name]))
    ]
    assert not wrong
