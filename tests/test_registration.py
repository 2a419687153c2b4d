# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Components resolve in MONAI's configs by short and by full name, and shadow none of MONAI's."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from monai.bundle.config_item import ComponentLocator

import monai_afire
from monai_afire import apps

APPLICATIONS = (
    "evaluation",
    "exchange",
    "results",
    "studies",
    "worklist",
)
PACKAGES = [
    *(f"monai_afire.{name}" for name in monai_afire.__all__ if name != "utils"),
    "monai_afire.data.phantom",
    *(f"monai_afire.apps.{name}" for name in APPLICATIONS),
]
# what configs of others name, and files hold
LASTING_NAMES = {
    *("AFiRe", "PEAC", "ACE", "MAE", "DINO", "PrototypeBank", "TokenProbabilityHead"),
    *("AFiReLoss", "PEACLoss", "ACELoss", "MAELoss", "DINOLoss"),
    *("LoadRadiographd", "SynthLesionMaskd", "GridCropPaird", "AnomalyDetector", "Training"),
}


@pytest.fixture(scope="module")
def locator() -> ComponentLocator:
    return ComponentLocator()


def exported_classes() -> dict[str, type]:
    """All public classes of the packages, aliases included."""
    found: dict[str, type] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name, value in inspect.getmembers(module, inspect.isclass):
            if value.__module__.startswith("monai_afire.") and not name.startswith("_"):
                found[name] = value
    return found


def test_every_exported_class_is_found_once(locator: ComponentLocator) -> None:
    classes = exported_classes()
    assert set(classes) >= LASTING_NAMES
    for name, value in classes.items():
        found = locator.get_component_module_name(value.__name__)
        assert found == value.__module__, f"{name} is found in {found}"


def monai_modules() -> list[ModuleType]:
    names = "transforms networks.nets networks.blocks networks.layers losses handlers metrics inferers data engines"
    packages = [import_module(f"monai.{name}") for name in (*names.split(), "optimizers")]
    modules = list(packages)
    for package in packages:
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if info.name in sys.modules:
                modules.append(import_module(info.name))
    return modules


def test_no_class_bears_the_name_of_a_monai_class(locator: ComponentLocator) -> None:
    taken = {
        name: module.__name__
        for module in monai_modules()
        for name, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__.startswith("monai.")
    }
    assert len(taken) > 500
    assert "ViT" in taken
    ours = exported_classes()
    clashes = {
        name: taken[name]
        for name in {*ours, *(value.__name__ for value in ours.values())}
        if name in taken
    }
    assert clashes == {}


def test_packages_export_what_they_say() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{package}.{name}"


def test_one_import_in_a_config_is_enough_and_loads_no_application() -> None:
    """Core and applications are two tiers: who composes the core meets it alone."""
    script = """
import sys
from monai.bundle import ConfigParser
bank = {"_target_": "PrototypeBank", "num_tokens": 2, "num_clusters": 3}
parser = ConfigParser({"imports": ["$import monai_afire"], "bank": bank})
print(type(parser.get_parsed_content("bank")).__name__)
print(*[name for name in sys.modules if name.startswith("monai_afire.apps")])
"""
    words = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["PrototypeBank", ""]


def test_the_core_names_no_application() -> None:
    """Imports within functions would not show when the core is loaded."""
    folder = Path(monai_afire.__file__).parent
    core = [path for path in folder.rglob("*.py") if "apps" not in path.relative_to(folder).parts]
    assert len(core) > 100
    assert [str(path) for path in core if "monai_afire.apps" in imported(path)] == []


def test_applications_share_named_parts_alone() -> None:
    """An application stands by itself, but for named parts that they share."""
    shared = {"evaluation", "results", "pages", "readers"}
    folder = Path(apps.__file__).parent
    found = set()
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).parts[0]
        others = {
            name.split(".")[2] for name in re.findall(r"monai_afire\.apps\.\w+", imported(path))
        }
        found |= {(str(path.relative_to(folder)), other) for other in others - {own} - shared}
    assert found == set()


def imported(path: Path) -> str:
    """The modules that a file imports, wherever in it."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules += [
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    ]
    return "\n".join(modules)
