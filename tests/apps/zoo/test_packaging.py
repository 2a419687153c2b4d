# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bundles packed and packaged: nothing is overwritten, nothing that a config reads is missing, checks find faults."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundles.bundle_runs import REPOSITORY_ROOT, copy_bundles
from monai.bundle import ConfigParser

from monai_afire.apps.zoo import pack_bundle, package_for_zoo, zoo_problems
from monai_afire.apps.zoo.__main__ import main

NAMES = (
    "LICENSE",
    "docs/data_license.txt",
    "docs/README.md",
    "configs/metadata.json",
    "models/model.pt",
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def with_weights(bundle: str) -> Path:
    """A copy of the bundle with the weights that come with it."""
    target = Path("bundles", bundle, "models/model.pt")
    target.parent.mkdir()
    return Path(shutil.copy(REPOSITORY_ROOT / target, target)).parents[1]


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_packing_a_bundle_into_its_own_parent_leaves_it(workspace: Path) -> None:
    Path("bundles/ace/models").mkdir()
    for name in ("models/model.pt", "output/scores.csv"):
        Path("bundles/ace", name).parent.mkdir(exist_ok=True)
        Path("bundles/ace", name).write_text(name)
    before = content(workspace)
    for folder in ("bundles", "bundles/../bundles"):
        with pytest.raises(FileExistsError, match="nothing is overwritten: name another folder"):
            pack_bundle("bundles/ace", folder)
    with pytest.raises(shutil.Error, match="lies in the bundle that is copied"):
        pack_bundle("bundles/ace", "bundles/ace/dist")
    Path("link").symlink_to("bundles/ace")
    with pytest.raises(shutil.Error, match="lies in the bundle that is copied"):
        pack_bundle("bundles/ace", "link/dist")
    assert content(workspace) == before


@pytest.mark.parametrize("theirs", ["ace/photo.jpg", "ace", "ace_v1.0.0.zip"])
def test_what_lies_at_the_target_stays(workspace: Path, theirs: str) -> None:
    Path("bundles/ace/models").mkdir()
    Path("bundles/ace/models/model.pt").touch()
    version = json.loads(Path("bundles/ace/configs/metadata.json").read_text())["version"]
    path = Path("dist", theirs.replace("1.0.0", version))
    path.parent.mkdir(parents=True)
    path.write_text("theirs")
    with pytest.raises(FileExistsError, match="is there already"):
        pack_bundle("bundles/ace", "dist")
    assert content(Path("dist")) == {path.relative_to("dist").as_posix(): b"theirs"}


def test_released_files_are_packed_where_a_config_reads_them(workspace: Path) -> None:
    for bundle in ("afire", "ace"):
        Path(f"bundles/{bundle}/models").mkdir()
        Path(f"bundles/{bundle}/models/model.pt").touch()
    Path("bundles/ace/released").mkdir()
    Path("bundles/ace/released/private.safetensors").touch()
    packed = pack_bundle("bundles/afire", "dist")
    assert content(packed / "released") == content(Path("bundles/afire/released"))
    (archive,) = Path("dist").glob("afire_v*.zip")
    assert "afire/released/detector.safetensors" in zipfile.ZipFile(archive).namelist()
    packed = pack_bundle("bundles/ace", "dist")
    assert not (packed / "released").exists()
    assert "2025/0272962" in (packed / "NOTICE").read_text(), (
        "the notice of patents goes with the bundle"
    )


def test_released_files_are_packed_where_the_card_names_them(workspace: Path) -> None:
    packed = pack_bundle(with_weights("radiograph_classification"), "dist")
    assert (packed / "released/nih_findings.pt").is_file()


def test_package_has_the_paths_of_the_zoo(workspace: Path) -> None:
    bundle = with_weights("mae")
    before = content(bundle)
    url = "https://huggingface.co/user/chest"
    assert package_for_zoo(bundle, "zoo", url) == []
    assert content(bundle) == before
    written = content(Path("zoo"))
    name = "chest_xray_mae_pretraining"
    assert {f"models/{name}/{file}" for file in NAMES} <= set(written)
    assert {f"ci/unit_tests/{file}.py" for file in (f"test_{name}", "radiograph_bundles")} <= set(
        written
    )
    assert {
        f"hf_models/{name}/{file}" for file in ("README.md", "LICENSE", "metadata.json")
    } <= set(written)
    assert json.loads(written[f"hf_models/{name}/metadata.json"])["huggingface_url"] == url
    note = written["PULL_REQUEST.md"].decode()
    assert f'Add "{name}" to `exclude_verify_torchscript_list`' in note
    assert "Checks that are not met: none." in note
    with pytest.raises(FileExistsError, match="zoo is there already"):
        package_for_zoo(bundle, "zoo", url)
    with pytest.raises(shutil.Error, match="lies in the bundle"):
        package_for_zoo(bundle, bundle / "zoo")
    assert content(Path("zoo")) == written


def test_large_files_are_listed_not_packaged(workspace: Path) -> None:
    bundle = with_weights("mae")
    with open(bundle / "models/huge.pt", "wb") as file:
        file.truncate(25 * 2**20 + 1)
    assert package_for_zoo(bundle, "a", "https://huggingface.co/user/chest/", name="mine") == []
    assert package_for_zoo(bundle, "b", name="mine") == [
        "models/huge.pt has no url in large_files.yml"
    ]
    (listed,) = ConfigParser.load_config_file("a/models/mine/large_files.yml")["large_files"]
    assert listed["url"] == "https://huggingface.co/user/chest/resolve/main/models/huge.pt"
    assert not Path("a/models/mine/models/huge.pt").exists()
    assert "Large files to upload first: models/huge.pt." in Path("a/PULL_REQUEST.md").read_text()
    assert not Path("b/hf_models").exists()


def change_metadata(bundle: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = bundle / "configs/metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def test_problems_are_found(workspace: Path) -> None:
    bundle = with_weights("ace")
    assert zoo_problems(bundle) == []
    (bundle / "models/model.pt").unlink()
    (bundle / "docs/data_license.txt").unlink()
    (bundle / "docs/README.md").write_text("# Title\n\n### **Authors**\n")
    change_metadata(
        bundle, lambda m: m.update(version="9.9.9", required_packages_version={"einops": ">=0.7"})
    )
    found = zoo_problems(bundle)
    for text in (
        "models/model.pt is missing",
        "docs/data_license.txt is missing",
        "docs/README.md has no section Tags",
        "the changelog in metadata.json has no version 9.9.9",
        "pip cannot install einops==>=0.7: pin one version",
    ):
        assert text in found
    assert "docs/README.md has no section Authors" not in found


def test_problems_of_the_network_are_found(workspace: Path) -> None:
    bundle = with_weights("ace")
    image = {"num_channels": 3}
    change_metadata(bundle, lambda m: m["network_data_format"]["inputs"]["image"].update(image))
    (problem,) = zoo_problems(bundle)
    assert problem.startswith("the network does not do what metadata.json says: ")
    config = json.loads((bundle / "configs/inference.json").read_text())
    del config["inferer"]
    (bundle / "configs/inference.json").write_text(json.dumps(config))
    assert zoo_problems(bundle) == ["inference.json has no inferer"]


def test_command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_weights("mae")
    assert main(["mae", "zoo", "--zoo_name", "my_mae"]) == 0
    assert "zoo: read PULL_REQUEST.md" in capsys.readouterr().out
    assert Path("zoo/models/my_mae/models/model.pt").is_file()
    assert main(["mae", "zoo"]) == 1
    assert "error: zoo is there already" in capsys.readouterr().err
    assert main(["dino", "other"]) == 1
    assert "has no models/model.pt" in capsys.readouterr().err
    Path("bundles/mae/docs/data_license.txt").unlink()
    assert main(["mae", "third"]) == 1
    assert "not met: docs/data_license.txt is missing" in capsys.readouterr().out
