# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Components resolve in MONAI's configs by short and by full name, and shadow none of MONAI's."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

from monai.bundle.config_item import ComponentLocator

import monai_afire
from monai_afire import apps

APPLICATIONS = ("evaluation", "exchange", "results", "studies", "worklist")
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


def exported_classes() -> dict[str, type]:
    """All public classes of the packages, aliases included."""
    found: dict[str, type] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name, value in inspect.getmembers(module, inspect.isclass):
            if value.__module__.startswith("monai_afire.") and not name.startswith("_"):
                found[name] = value
    return found


def test_every_exported_class_is_found_once_and_shadows_none_of_monai() -> None:
    classes, locator = exported_classes(), ComponentLocator()
    assert set(classes) >= LASTING_NAMES
    for name, value in classes.items():
        found = locator.get_component_module_name(value.__name__)
        assert found == value.__module__, f"{name} is found in {found}"


def test_the_core_names_no_application() -> None:
    folder = Path(monai_afire.__file__).parent
    core = [path for path in folder.rglob("*.py") if "apps" not in path.relative_to(folder).parts]
    assert len(core) > 100
    users = [path for path in core if any("monai_afire.apps" in name for name in imported(path))]
    assert users == []


def test_applications_share_named_parts_alone() -> None:
    """An application stands by itself, but for named parts that they share."""
    shared = {"evaluation", "results", "pages", "readers"}
    folder = Path(apps.__file__).parent
    found = set()
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).parts[0]
        names = [name.split(".") for name in imported(path) if name.startswith("monai_afire.apps.")]
        found |= {(own, name[2]) for name in names if name[2] not in {own, *shared}}
    assert found == set()


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it: imports within functions would not show when it is loaded."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imports = [node for node in nodes if isinstance(node, ast.Import)]
    return modules | {alias.name for node in imports for alias in node.names}
