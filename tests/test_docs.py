# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The documentation names what there is. That its pages and links hold on the site is seen by the build (``-W``)."""

from __future__ import annotations

import json
import pkgutil
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import monai_afire
from monai_afire import apps
from monai_afire.apps.experiments import __main__ as experiments
from monai_afire.apps.phantom import export_phantom
from monai_afire.apps.runs.options.declarations import OPTIONS

ROOT = Path(__file__).resolve().parents[1]


def test_api_has_a_page_for_each_room() -> None:
    rooms = [(monai_afire.__path__, "monai_afire"), (apps.__path__, "monai_afire.apps")]
    packages = {
        f"{name}.{room.name}"
        for path, name in rooms
        for room in pkgutil.iter_modules(path)
        if room.ispkg
    }
    packages.remove("monai_afire.apps")
    listed = set(
        re.findall(r"^   (monai_afire\.\S+)$", (ROOT / "docs/api.rst").read_text(), re.MULTILINE)
    )
    assert packages <= listed


def test_pages_name_files_and_tests_that_exist() -> None:
    methods = sorted((ROOT / "docs/methods").glob("*.md"))
    pages = [
        page for page in (ROOT / "docs").glob("*.md") if not (ROOT / page.name).exists()
    ] + methods
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    files = set(re.findall(r"`((?:monai_afire|tests|bundles|tutorials)/[\w/.]+)`", text))
    written_by_runs = re.compile(r"bundles/\w+/(models|output)/")
    assert len(files) > 20
    assert [
        name for name in files if not (written_by_runs.match(name) or (ROOT / name).exists())
    ] == []
    for page in methods:
        rows = re.findall(
            r"((?:`test_\w+`(?:, )?)+) in `(tests/[\w/]+\.py)`", page.read_text(encoding="utf-8")
        )
        assert rows
        for names, file in rows:
            defined = set(
                re.findall(
                    r"^def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
                )
            )
            assert set(re.findall(r"`(test_\w+)`", names)) <= defined, (page.name, file)


def test_links_hold_in_the_repository() -> None:
    """Copies that the site is built of are not in the repository, and their links are others."""
    own = (
        "*.md",
        "docs/*.md",
        "docs/methods/*.md",
        "docs/reports/*.md",
        "bundles/*/docs/*.md",
        "bundles/*/released/*.md",
    )
    pages = [page for pattern in own for page in ROOT.glob(pattern)]
    originals = [
        page for page in pages if page.parent != ROOT / "docs" or not (ROOT / page.name).exists()
    ]
    copied, broken, count = (ROOT / "docs/bundles", ROOT / "docs/tutorials"), [], 0
    for page in originals:
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            target, count = (page.parent / link).resolve(), count + 1
            if not target.exists() or any(folder in target.parents for folder in copied):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert count > 100
    assert broken == []


def test_commands_name_bundles_and_configs_that_exist() -> None:
    pages = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("bundles/*/docs/*.md"),
        *ROOT.glob("bundles/*/released/*.md"),
    ]
    text = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *pages])
    text = text.replace("\\\n", " ")
    starts = re.findall(r"^monai-afire run (\w+)((?: [\w./]+)+)", text, re.MULTILINE)
    assert len(starts) > 20
    for bundle, configs in starts:
        # others are the reader's own
        names = [name for name in configs.split() if not name.endswith(".json")]
        assert names
        for name in names:
            assert (ROOT / "bundles" / bundle / "configs" / f"{name}.json").is_file(), (
                bundle,
                name,
            )


def test_commands_name_options_that_exist() -> None:
    """Those of the reports, too: a result is reproduced by its command as long as the command is printed."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bundles/*/docs/*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages).replace("\\\n", " ")
    start = r"^ *(?:python -m monai\.bundle run|monai-afire (?:run|experiments)) .*"
    commands = re.findall(start, text, re.MULTILINE)
    assert len(commands) > 50
    own = {
        "config_file",
        *re.findall(r'"--(\w+)"', Path(experiments.__file__).read_text(encoding="utf-8")),
    }
    unknown, of_monai = [], {"run_id", "tracking"}
    for command in commands:
        bundle = re.search(r"bundles/(\w+)/|monai-afire run (\w+)", command)
        # of all bundles where a copy is started
        folder = (bundle[1] or bundle[2]) if bundle else ""
        configs = (ROOT / "bundles" / folder).rglob("configs/**/*.json")
        ids = {id.split("::")[0] for path in configs for id in json.loads(path.read_text())}
        names = re.findall(r" --(?:pretraining::)?(\w+)", command)
        unknown += [
            (name, command) for name in names if name not in {*OPTIONS, *own, *ids, *of_monai}
        ]
    assert unknown == []


def test_the_plain_loops_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both loops run one after the other, as they are printed, and change every parameter that has a gradient."""
    monkeypatch.chdir(tmp_path)
    export_phantom(tmp_path, {"training": 4}, image_size=64)
    text = (ROOT / "docs/parts.md").read_text(encoding="utf-8")
    section = text[text.index("## A plain PyTorch loop") : text.index("## What there is")]
    loops = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(loops) == 2
    names: dict[str, Any] = {
        "items": [{"image": str(path)} for path in sorted((tmp_path / "images").iterdir())]
    }
    assert len(names["items"]) == 4
    for loop in loops:
        torch.manual_seed(0)
        exec(loop, names)
        assert torch.isfinite(names["loss"])
        moved = [
            p
            for p in names["network"].parameters()
            if p.grad is not None and p.grad.abs().max() > 0
        ]
        assert len(moved) > 20
    assert (tmp_path / "vit.pt").is_file()


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs a clone and git"
)
def test_git_ignores_the_lists_that_commands_of_the_pages_write_and_no_tracked_file() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    written = sorted(set(re.findall(r"--output (\w+\.json)", text)))
    assert "labels.json" in written

    def git(*words: str) -> list[str]:
        found = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        return found.stdout.splitlines()

    assert git("check-ignore", *written) == written
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard") == []
