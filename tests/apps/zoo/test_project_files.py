# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a stranger looks for first: citation, licenses, notices, forms and hooks, in step with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import monai_afire

ROOT = Path(__file__).resolve().parents[3]
BUNDLES = sorted(path.parents[1] for path in ROOT.glob("bundles/*/configs/metadata.json"))


def test_citation_names_this_version_and_all_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", monai_afire.__version__)
    titles = " ".join(reference["title"] for reference in citation["references"])
    for words in (
        "AFiRe",
        "Learning Anatomically",
        "ACE",
        "Masked Autoencoders",
        "Emerging Properties",
    ):
        assert words in titles
    assert all(reference["authors"] and reference["year"] for reference in citation["references"])


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/**/*.yml")), ids=lambda path: path.name)
def test_github_files_are_read(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name == "workflows":
        steps = content["jobs"]["whole"]["steps"]
        assert ".ci/run" in [step.get("run") for step in steps]
        assert (ROOT / ".ci/run").stat().st_mode & 0o100, "not executable"
    elif path.name != "config.yml":
        assert {"name", "description", "body"} <= set(content)


def test_hooks_are_local() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    assert {"ruff-check", "ruff-format", "mypy"} <= {
        hook["id"] for hook in hooks["repos"][0]["hooks"]
    }


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_licenses_of_a_bundle(bundle: Path) -> None:
    """The text of the Apache license as it is; what else holds is beside it."""
    assert (bundle / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    terms = (bundle / "docs/data_license.txt").read_text(encoding="utf-8")
    assert f"bundle {bundle.name}\n" in terms
    assert "Not for clinical use" in terms
    if (bundle / "released").is_dir():
        for word in ("Owner", "Link: https://", "Terms", "Citation", "NIH Clinical Center"):
            assert word in terms


@pytest.mark.parametrize("bundle", ["peac", "ace"])
def test_notice_of_patents(bundle: str) -> None:
    notice = (ROOT / "bundles" / bundle / "NOTICE").read_text(encoding="utf-8")
    assert "US 2025/0272962" in notice
    assert "US 2026/0187795" in notice
    assert re.search(r"grants no\s+rights of others", notice)


def test_security_page_says_what_is_trusted_and_whom_to_tell() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for heading in ("What is trusted", "Report a problem", "Versions with fixes"):
        assert f"\n## {heading}\n" in text
