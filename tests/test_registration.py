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
from monai.bundle import ConfigParser
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
SHORT_NAMES = [
    "ACE",
    "ACELoss",
    "AFiRe",
    "AFiReLoss",
    "AddControlledLesiond",
    "AnatPasted",
    "AnomalyDetector",
    "AnomalyRestorationLoss",
    "AttributeSchedule",
    "AutocastInferer",
    "CategoryConsistencyLoss",
    "ChestPhantomDataset",
    "ClassificationReport",
    "CorrespondencePreview",
    "CutPasted",
    "DINO",
    "DINOLoss",
    "DistortAppearanced",
    "EpochSeed",
    "GridCropPaird",
    "HeatmapLoss",
    "KNNProbe",
    "LabelVectord",
    "LandmarkHeatmapd",
    "LandmarkReport",
    "LandmarkWriter",
    "LoadMasksd",
    "LoadRadiograph",
    "LoadRadiographd",
    "MAE",
    "MAELoss",
    "MaskedMulticlassLoss",
    "MaskedMultilabelLoss",
    "MaskedReconstructionLoss",
    "MultiCrop",
    "MultiCropd",
    "OptimizerSchedule",
    "PEAC",
    "PEACLoss",
    "PredictionWriter",
    "PrepareInputs",
    "PrepareLesionBatch",
    "PrototypeBank",
    "RestorationDecoder",
    "SegmentationReport",
    "SegmentationWriter",
    "ShufflePatchesd",
    "StandardizeContrastd",
    "StructureConsistencyLoss",
    "SwinEncoder",
    "SynthLesionMask",
    "SynthLesionMaskd",
    "ThresholdFit",
    "TokenProbabilityHead",
    "Training",
    "TransferClassifier",
    "UPerNet",
    "ViTEncoder",
    "cosine_schedule",
    "landmark_correspondence",
    "layer_decay_groups",
    "load_encoder_weights",
    "weight_decay_groups",
]


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


def test_there_is_something_to_check() -> None:
    classes = exported_classes()
    assert len(classes) > 25
    assert {
        "AFiRe",
        "AFiReLoss",
        "SynthLesionMaskd",
        "PrototypeBank",
    } <= set(classes)


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_short_names_mean_one_component(name: str, locator: ComponentLocator) -> None:
    modules = locator.get_component_module_name(name)
    assert isinstance(modules, str), f"{name} is found in {modules}"
    assert modules.startswith("monai_afire.")


def test_every_exported_class_is_found_once(locator: ComponentLocator) -> None:
    for name, value in exported_classes().items():
        found = locator.get_component_module_name(value.__name__)
        assert found == value.__module__, f"{name} is found in {found}"


@pytest.mark.parametrize("prefix", ["", "full"])
def test_config_builds_components(prefix: str) -> None:
    def target(package: str, name: str) -> str:
        return f"monai_afire.{package}.{name}" if prefix else name

    parser = ConfigParser(
        {
            "encoder": {
                "_target_": target("networks", "ViTEncoder"),
                "img_size": 32,
                "hidden_size": 24,
                "num_layers": 1,
                "num_heads": 2,
            },
            "network": {
                "_target_": target("networks", "AFiRe"),
                "encoder": "@encoder",
                "num_clusters": 4,
                "decoder_dim": 24,
                "decoder_layers": 1,
                "decoder_heads": 2,
            },
            "loss": {"_target_": target("losses", "AFiReLoss"), "temperature": 0.5},
            "lesions": {
                "_target_": target("transforms", "SynthLesionMaskd"),
                "keys": "image",
                "num_masks": 2,
            },
            "load": {"_target_": target("transforms", "LoadRadiographd"), "keys": "image"},
            "bank": {
                "_target_": target("networks", "PrototypeBank"),
                "num_tokens": 4,
                "num_clusters": 3,
            },
            "seed": {"_target_": target("handlers", "EpochSeed"), "seed": 1},
            "dataset": {
                "_target_": target("data.phantom", "ChestPhantomDataset"),
                "_mode_": "callable",
            },
        }
    )
    network = parser.get_parsed_content("network")
    assert isinstance(network, monai_afire.networks.AFiRe)
    assert network.encoder is parser.get_parsed_content("encoder")
    assert isinstance(parser.get_parsed_content("loss"), monai_afire.losses.AFiReLoss)
    assert isinstance(parser.get_parsed_content("lesions"), monai_afire.transforms.SynthLesionMaskd)
    assert isinstance(parser.get_parsed_content("load"), monai_afire.transforms.LoadRadiographd)
    assert isinstance(parser.get_parsed_content("bank"), monai_afire.networks.PrototypeBank)
    assert isinstance(parser.get_parsed_content("seed"), monai_afire.handlers.EpochSeed)
    assert parser.get_parsed_content("dataset") is monai_afire.data.phantom.ChestPhantomDataset


@pytest.mark.slow
def test_one_import_in_a_config_is_enough(repository_root: Path) -> None:
    script = """
from monai.bundle import ConfigParser
config = {
    "imports": ["$import monai_afire"],
    "bank": {"_target_": "PrototypeBank", "num_tokens": 2, "num_clusters": 3},
}
print(type(ConfigParser(config).get_parsed_content("bank")).__module__)
"""
    command = [sys.executable, "-W", "ignore", "-c", script]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=repository_root, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[-1] == "monai_afire.networks.blocks.prototype_bank"


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


def test_the_core_loads_no_application() -> None:
    """Core and applications are two tiers: who composes the core meets it alone."""
    script = "import sys, monai_afire; print(*[name for name in sys.modules if name.startswith('monai_afire.apps')])"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert loaded.split() == []


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
