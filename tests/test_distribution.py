# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What ``pip install`` brings: sdist and wheel have what belongs in them, and run outside of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from integration.bundle_runs import TINY

SOURCES = (
    "monai_afire_cli.py",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "MANIFEST.in",
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
)
FOLDERS = ("monai_afire", "bundles", "tests")
PUBLIC = (
    "LICENSE",
    "NOTICE",
    "configs/*",
    "configs/*/*",
    "docs/*",
    "models/model.pt",
    "released/*",
    "unit_tests/*.py",
)
WRITTEN_BY_RUNS = (
    "models/checkpoint.pt",
    "output/scores.csv",
    "data/phantom/patient.png",
    "configs/.train.json.swp",
)


@pytest.fixture(scope="module")
def distributions(repository_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel made from it; the build leaves traces in a copy of the sources only."""
    sources, dist = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    ignore = shutil.ignore_patterns("__pycache__", "checkpoint.pt", "output")
    for name in FOLDERS:
        shutil.copytree(repository_root / name, sources / name, ignore=ignore)
    for name in (*SOURCES, "CONTRIBUTING.md"):
        shutil.copy(repository_root / name, sources)
    for name in WRITTEN_BY_RUNS:
        path = sources / "bundles/afire" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    build(sources, "sdist", dist)
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        archive.extractall(dist / "unpacked", filter="data")
    (unpacked,) = (dist / "unpacked").iterdir()
    build(unpacked, "wheel", dist)
    return dist


def build(sources: Path, kind: str, dist: Path) -> None:
    """What pip and build call, without their environment of its own, for which a network would be needed."""
    script = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    command = [sys.executable, "-c", script, str(dist)]
    result = subprocess.run(
        command, cwd=sources, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]


def wheel(distributions: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(distributions.glob("*.whl")))


@pytest.mark.slow
def test_wheel_has_what_the_repository_has(distributions: Path, repository_root: Path) -> None:
    with wheel(distributions) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    kinds = ("*.py", "*.html")
    code = [path for kind in kinds for path in (repository_root / "monai_afire").rglob(kind)]
    bundles = repository_root / "bundles"
    public = [path for pattern in PUBLIC for path in bundles.glob(f"*/{pattern}") if path.is_file()]
    expected = {path.relative_to(repository_root).as_posix() for path in code}
    expected |= {f"monai_afire/bundles/{path.relative_to(bundles).as_posix()}" for path in public}
    assert len(public) > 60
    assert names == expected | {"monai_afire/py.typed", "monai_afire_cli.py"}


@pytest.mark.slow
def test_sdist_and_metadata(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*SOURCES, "bundles/afire/configs/train.json", "bundles/afire/LICENSE"} <= names
    assert not any(name.startswith("tests/") for name in names)
    assert names.isdisjoint(f"bundles/afire/{name}" for name in WRITTEN_BY_RUNS)
    with wheel(distributions) as archive:
        (info,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert "monai-afire = monai_afire_cli:main" in entry_points


@pytest.mark.slow
def test_wheel_trains_in_an_empty_folder(distributions: Path, tmp_path: Path) -> None:
    site, folder = tmp_path / "site-packages", tmp_path / "empty"
    folder.mkdir()
    with wheel(distributions) as archive:
        archive.extractall(site)
    installed = sorted(site.rglob("*"))
    overrides = [f"--{name}={value}" for name, value in (TINY | {"epochs": 1}).items()]
    result = run_installed(site, folder, ["run", "afire", "train", *overrides])
    assert result.returncode == 0, result.stderr[-3000:]
    (run,) = (folder / "runs/afire").glob("20*")
    assert (run / "models/model.pt").is_file()
    assert (run / "restoration.png").is_file()
    assert [path.name for path in folder.iterdir()] == ["runs"]
    assert sorted(site.rglob("*")) == installed, "nothing is written into the installation"


def run_installed(site: Path, folder: Path, words: list[str]) -> subprocess.CompletedProcess:
    """The command as its script calls it, with the unpacked wheel before everything else that may be installed."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    script = "import sys, monai_afire_cli; sys.exit(monai_afire_cli.main())"
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
