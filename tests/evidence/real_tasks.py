# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What an encoder is worth on four sets of real radiographs, beside the same network from scratch.

``python -m tests.evidence.real_tasks --data /path/to/sets`` fine-tunes and probes every initialization over seeds and
label fractions, by ``monai_afire.apps.experiments``: an interrupted command goes on. The folder has ``childcxr``,
``nih_cxr_1k``, ``montgomery`` and ``jsrt``. Settings are the same for all sets and initializations, and were not tuned.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from monai_afire.apps.experiments.__main__ import main as run_experiment
from monai_afire.apps.readers.__main__ import main as write_datalist
from monai_afire.networks import released_encoder
from tests.evidence.jsrt_correspondence import CONTOUR_POINTS, contour_points
from tests.evidence.radiograph_sets import option_words

# every tenth training patient validates, where the published split has no such part
VALIDATION = 10
SHAPE = {
    "image_size": 64,
    "patch_size": 8,
    "encoder_def::hidden_size": 192,
    "encoder_def::num_layers": 6,
    "encoder_def::num_heads": 6,
    "standardize": True,
}
MACHINE = {"train::inferer::enabled": False}  # so small a network is faster without, on a CPU
FINDINGS = ("Atelectasis", "Effusion", "Infiltration", "Consolidation", "Edema")
CONTOUR_STEP = 6  # every sixth becomes a landmark


def listed_childcxr(data: Path, path: Path) -> None:
    """The official split, as the package reads it."""
    write_datalist(["childcxr", "--root", str(data / "childcxr"), "--output", str(path)])


def listed_nih(data: Path, path: Path) -> None:
    """Normal against pneumonia, by the set's own list."""
    sections, _ = _nih_sections(data, path)
    for item in itertools.chain.from_iterable(sections.values()):
        del item["findings"]
    path.write_text(json.dumps({**sections, "labels": {"0": "normal", "1": "pneumonia"}}))


def listed_findings(data: Path, path: Path) -> None:
    """The findings beside pneumonia that at least ten test images have."""
    sections, names = _nih_sections(data, path)
    chosen = [names.index(name) for name in FINDINGS]
    for item in itertools.chain.from_iterable(sections.values()):
        findings = item.pop("findings")
        item["label"] = [findings[number] for number in chosen]
    path.write_text(
        json.dumps({**sections, "labels": {str(k): name for k, name in enumerate(FINDINGS)}})
    )


def _nih_sections(data: Path, path: Path) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The set's own list, with paths as seen from the new one, and the names of its findings."""
    folder = data / "nih_cxr_1k"
    contents = json.loads((folder / "datalist_classification.json").read_text())
    sections = {name: contents[name] for name in ("training", "validation", "test")}
    for item in itertools.chain.from_iterable(sections.values()):
        item["image"] = os.path.relpath(folder / item["image"], path.parent)
    return sections, contents["finding_names"]


def listed_montgomery(data: Path, path: Path) -> None:
    """Tuberculosis, by the published split."""
    folder = data / "montgomery"
    rows = pd.read_csv(folder / "manifest.csv").to_dict("records")
    items = [
        {
            "image": os.path.relpath(folder / row["image"], path.parent),
            "label": row["tuberculosis"],
            "patient_id": row["patient_id"],
        }
        for row in rows
    ]
    sections = split_as_published(items, [row["published_split"] for row in rows])
    path.write_text(json.dumps({**sections, "labels": {"0": "normal", "1": "tuberculosis"}}))


def listed_jsrt(data: Path, path: Path) -> None:
    """Masks of five organs, by the split that comes with the contour points."""
    write_datalist(["jsrt", "--allow_missing", "--root", str(data / "jsrt"), "--output", str(path)])
    contents = json.loads(path.read_text())
    published = json.loads((data / "jsrt" / "contours.json").read_text())
    items = sorted(
        [item for name in ("training", "validation", "test") for item in contents[name]],
        key=lambda item: item["image"],
    )
    sections = split_as_published(
        items, [published[Path(item["image"]).stem]["published_split"] for item in items]
    )
    path.write_text(json.dumps({**contents, **sections}))


def listed_contour_points(data: Path, path: Path) -> None:
    """Every sixth contour point of JSRT's lungs and heart as a landmark, by the split that comes with them."""
    names = [
        f"{organ} {n}"
        for organ, points in CONTOUR_POINTS.items()
        for n in range(0, points, CONTOUR_STEP)
    ]
    items, splits = [], []
    for split in ("train", "test"):
        for file, points in zip(
            *contour_points(data / "jsrt", 10**6, CONTOUR_STEP, split), strict=True
        ):
            image = os.path.relpath(file, path.parent)
            items.append(
                {"image": image, "patient_id": Path(file).stem, "landmarks": points.tolist()}
            )
            splits.append(split)
    path.write_text(json.dumps({**split_as_published(items, splits), "landmark_names": names}))


def split_as_published(
    items: list[dict[str, Any]], splits: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Sections of a datalist; some of the published training images validate."""
    training = [item for item, split in zip(items, splits, strict=True) if split == "train"]
    return {
        "training": [item for number, item in enumerate(training) if number % VALIDATION],
        "validation": training[::VALIDATION],
        "test": [item for item, split in zip(items, splits, strict=True) if split == "test"],
    }


@dataclass(frozen=True)
class Task:
    """A set, the bundle that learns it, and how."""

    bundle: str
    datalist: Callable[[Path, Path], None]
    metrics: tuple[str, ...]
    fractions: tuple[str, ...] = ("1.0",)
    settings: dict[str, Any] = field(default_factory=dict)


TASKS = {
    "montgomery": Task(
        "classification",
        listed_montgomery,
        ("mean_auc",),
        settings={"num_classes": 1, "epochs": 20},
    ),
    "nih": Task(
        "classification", listed_nih, ("mean_auc",), settings={"num_classes": 1, "epochs": 20}
    ),
    "nih_findings": Task(
        "classification",
        listed_findings,
        ("mean_auc", *(f"per_class::{name}::auc" for name in FINDINGS)),
        settings={"num_classes": len(FINDINGS), "epochs": 20},
    ),
    "jsrt": Task("segmentation", listed_jsrt, ("mean_dice", "mean_hd95"), settings={"epochs": 20}),
    "landmarks": Task(
        "landmarks",
        listed_contour_points,
        ("mean_radial_error",),
        settings={"epochs": 100, "train::run::early_stopping::patience": 100},
    ),
    "childcxr_few": Task(
        "classification",
        listed_childcxr,
        ("mean_auc",),
        ("0.01", "0.1"),
        {"num_classes": 1, "epochs": 10},
    ),
    "childcxr": Task(
        "classification", listed_childcxr, ("mean_auc",), settings={"num_classes": 1, "epochs": 10}
    ),
}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--output", type=Path, default=Path("results/real_tasks"))
    parser.add_argument(
        "--weights", type=Path, default=released_encoder(), help="encoder to compare with scratch"
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument(
        "--modes", nargs="+", default=["fine_tuned", "frozen"], choices=["fine_tuned", "frozen"]
    )
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    options = parser.parse_args()
    for name in options.tasks:
        task, folder = TASKS[name], (options.output / name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        task.datalist(options.data.resolve(), folder / "datalist.json")
        settings = {"datalist": folder / "datalist.json", **SHAPE, **MACHINE, **task.settings}
        for mode in options.modes:
            words = ["--config_file", f"bundles/radiograph_{task.bundle}/configs/train.json"]
            words += ["--output_dir", str(folder / mode), "--metrics", *task.metrics]
            words += [
                "--initializations",
                "scratch=",
                f"pretrained={options.weights}",
                "--seed",
                *options.seeds,
            ]
            words += ["--label_fraction", *task.fractions]
            frozen = {"network_def::freeze_encoder": mode == "frozen"}
            run_experiment([*words, *option_words({**settings, **frozen})])


if __name__ == "__main__":
    main()
