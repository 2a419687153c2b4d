# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A bundle as MONAI's Model Zoo takes it: files of a pull request, an entry of ``hf_models``, and the zoo's checks."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser, verify_net_in_out
from monai.bundle.properties import InferProperties, MetaProperties

from monai_afire.apps.zoo.packing import LARGE, copy_public_files, read_metadata, refuse_existing

# the zoo names a bundle by modality, organ and task
ZOO_NAMES = {
    "afire": "chest_xray_afire_pretraining",
    "peac": "chest_xray_peac_pretraining",
    "ace": "chest_xray_ace_pretraining",
    "mae": "chest_xray_mae_pretraining",
    "dino": "chest_xray_dino_pretraining",
    "radiograph_classification": "chest_xray_classification",
    "radiograph_segmentation": "chest_xray_segmentation",
    "radiograph_landmarks": "chest_xray_landmarks",
}
UNIT_TESTS = "ci/unit_tests"
METADATA = (
    *(
        "schema",
        "version",
        "changelog",
        "monai_version",
        "pytorch_version",
        "numpy_version",
        "task",
    ),
    *("required_packages_version", "description", "authors", "copyright", "network_data_format"),
)
README_HEADINGS = (
    "Authors",
    "Tags",
    "Model Description",
    "Data",
    "Performance",
    "References",
    "License",
)
PULL_REQUEST = """# Pull request of {name}

Copy `models/` and `ci/` over a clone of the Model Zoo, `hf_models/` for weights that stay on the Hugging Face Hub.

* Add "{name}" to `exclude_verify_torchscript_list` in `ci/bundle_custom_data.py`: the networks do not script.
  `python -m monai.bundle run export` writes ONNX, or a `.pt2` of `torch.export`, instead (docs/README.md).
* Large files to upload first: {large}.
* Checks that are not met: {problems}.
"""


def package_for_zoo(
    bundle: str | os.PathLike, output: str | os.PathLike, url: str = "", name: str | None = None
) -> list[str]:
    """
    Write what a pull request to the Model Zoo needs, at the same paths as in a clone of the zoo, and check it.

    * ``models/<name>``: the bundle without the files that ``large_files.yml`` lists
    * ``ci/unit_tests/test_<name>.py``: its test, where there is one beside the bundle, with the
      module that these tests share
    * ``hf_models/<name>``: the entry of a model that stays on the Hugging Face Hub
    * ``PULL_REQUEST.md``: what is left to do

    Args:
        bundle: the bundle's folder, with ``models/model.pt``.
        output: a new folder.
        url: the repository on the hub, "https://huggingface.co/USER/NAME". Empty: no entry, and addresses of large
            files are left to be filled in.
        name: of the bundle in the zoo; None for the bundle's own or, of those that come with this package, a name
            with modality and task, such as "chest_xray_classification".

    Returns:
        What the zoo's checks would find wrong, see :func:`zoo_problems`.

    Raises:
        FileNotFoundError: when the bundle has no weights, metadata, license or documentation.
        FileExistsError: when the output folder is there. Nothing is overwritten.
        shutil.Error: when the output would lie in the bundle itself.
    """
    source, folder = Path(bundle), Path(output)
    metadata = read_metadata(source)
    refuse_existing(folder)
    name = name or ZOO_NAMES.get(source.resolve().name, source.resolve().name)
    target = folder / "models" / name
    copy_public_files(source, target, f"{url.rstrip('/')}/resolve/main" if url else "")
    problems = zoo_problems(target)
    large = [
        path for path in sorted(target.rglob("*")) if path.is_file() and path.stat().st_size > LARGE
    ]
    for path in large:
        path.unlink()
    if url:
        _write_hub_entry(target, folder / "hf_models" / name, {**metadata, "huggingface_url": url})
    _copy_test(source.resolve().parent / UNIT_TESTS, folder / UNIT_TESTS, name)
    names = ", ".join(path.relative_to(target).as_posix() for path in large)
    text = PULL_REQUEST.format(
        name=name, large=names or "none", problems="; ".join(problems) or "none"
    )
    (folder / "PULL_REQUEST.md").write_text(text, encoding="utf-8")
    return problems


def _copy_test(source: Path, target: Path, name: str) -> None:
    """The bundle's test, where there is one, and what it shares with the other bundles'."""
    if (source / f"test_{name}.py").is_file():
        target.mkdir(parents=True)
        for file in (f"test_{name}.py", "radiograph_bundles.py"):
            shutil.copy2(source / file, target)


def _write_hub_entry(bundle: Path, folder: Path, metadata: dict[str, Any]) -> None:
    """README, license and metadata of a model that stays on the hub."""
    folder.mkdir(parents=True)
    for path in (bundle / "LICENSE", bundle / "NOTICE", bundle / "docs" / "README.md"):
        if path.is_file():
            shutil.copy2(path, folder)
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=4) + "\n", encoding="utf-8")


def zoo_problems(bundle: str | os.PathLike) -> list[str]:
    """
    Find what the Model Zoo's continuous integration, or its reviewers, would refuse.

    Files, sizes, metadata, the README's sections, the properties of ``inference.json``, and input and output of its
    network. Neither a download nor a GPU is needed, and nothing is written.

    Args:
        bundle: the bundle's folder.

    Returns:
        One line for each problem; none when the bundle is ready.

    Example:
        >>> zoo_problems("no/bundle")
        ['configs/metadata.json is missing', 'configs/inference.json is missing']
    """
    root = Path(bundle)
    files = ("configs/metadata.json", "configs/inference.json")
    if missing := [f"{name} is missing" for name in files if not (root / name).is_file()]:
        return missing
    metadata = read_metadata(root)
    return [*_file_problems(root), *_metadata_problems(metadata), *_config_problems(root)]


def _file_problems(root: Path) -> list[str]:
    listing = root / "large_files.yml"
    listed = ConfigParser.load_config_file(listing)["large_files"] if listing.is_file() else []
    problems = [
        f"{entry['path']} has no url in large_files.yml" for entry in listed if not entry.get("url")
    ]
    large = {entry["path"] for entry in listed}
    for name in ("LICENSE", "docs/README.md", "docs/data_license.txt", "models/model.pt"):
        if not (root / name).is_file() and name not in large:
            problems.append(f"{name} is missing")
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and path.stat().st_size > LARGE and name not in large:
            problems.append(f"{name} is larger than 25 MiB and not in large_files.yml")
    readme = root / "docs" / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    headings = {
        heading.strip(" *").lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    return problems + [
        f"docs/README.md has no section {name}"
        for name in README_HEADINGS
        if name.lower() not in headings
    ]


def _metadata_problems(metadata: dict[str, Any]) -> list[str]:
    problems = [f"metadata.json has no {key}" for key in METADATA if key not in metadata]
    if metadata.get("version") not in metadata.get("changelog", {}):
        problems.append(f"the changelog in metadata.json has no version {metadata.get('version')}")
    for name, version in metadata.get("required_packages_version", {}).items():
        if not re.fullmatch(r"\d+(\.\d+)+", str(version)):
            problems.append(f"pip cannot install {name}=={version}: pin one version")
    return problems


def _config_problems(root: Path) -> list[str]:
    """Required entries of the inference config, and the network's input and output as metadata.json says."""
    meta_file = str(root / "configs" / "metadata.json")
    config_file = str(root / "configs" / "inference.json")
    parser = ConfigParser()
    parser.read_meta(meta_file)
    parser.read_config(config_file)
    properties: dict[str, dict[Any, Any]] = {**InferProperties, **MetaProperties}
    required = [entry["id"] for entry in properties.values() if entry["required"]]
    if missing := [name for name in required if name not in parser]:
        return [f"inference.json has no {name}" for name in missing]
    try:
        verify_net_in_out("network_def", meta_file, config_file, bundle_root=str(root))
    except Exception as error:
        return [f"the network does not do what metadata.json says: {error}"]
    return []
