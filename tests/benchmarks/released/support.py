# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The normal images that come with the detector: which images it judges, and how often a normal one has a small p.

``python -m tests.benchmarks.released.support --data /path/to/sets`` takes them from NIH 7k's train and validation
patients, and prints the figures of its validation patients, where the train patients are the normal images. ``--test``
prints those of the test sets with the shipped file, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.transforms import Resize
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from tqdm import tqdm

from monai_afire.apps.worklist import load_normals, normals_from, save_normals
from monai_afire.apps.worklist.image_facts import CHILD_AGE, ImageFacts, ImageFactsReader
from monai_afire.apps.worklist.normal_images import FeatureSpace, NormalImages
from monai_afire.detection import AnomalyDetector, load_detector
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks import ModelFile
from monai_afire.transforms import LoadRadiograph, StandardizeContrast
from tests.benchmarks.released.other_scanners import OtherScanners
from tests.benchmarks.released.sets import maker_parser, nih_rows

DETECTOR = Path("bundles/afire/released/detector.safetensors")
NORMALS = DETECTOR.with_name("normals.safetensors")
JUDGED_SIZE, BATCH = 64, 32  # pixels by which view, age and pose are judged
LEVEL = 0.05
CHILD = 13  # oldest child of the figures, in years
TEST = ("NIH test", "JSRT", "Montgomery", "ChildCXR")


def table_of(data: Path, name: str) -> pd.DataFrame:
    """Columns "path", "abnormal", "view" and "age" (NaN for unknown) of a set, and more of NIH's."""
    if name.startswith("NIH "):
        table = nih_rows(data, name.removeprefix("NIH ")).astype({"age": float})
        return table.assign(abnormal=(table["findings"] != "No Finding").astype(int))
    if name == "JSRT":  # names with LN have a nodule
        paths = sorted((data / "jsrt/images").glob("*.png"))
        abnormal = [path.name.startswith("JPCLN") for path in paths]
    elif name == "Montgomery":
        rows = pd.read_csv(data / "montgomery/manifest.csv")
        paths = [data / "montgomery" / image for image in rows["image"]]
        abnormal = rows["tuberculosis"].tolist()
    else:  # ChildCXR's train folder teaches the classifier of age
        folders = [data / "childcxr" / part for part in ("test", "val")]
        paths = [path for folder in folders for path in sorted(folder.glob("*/*.jpeg"))]
        abnormal = [path.parent.name != "NORMAL" for path in paths]
    files = pd.DataFrame({"path": map(str, paths), "abnormal": np.array(abnormal, int)})
    return files.assign(view="", age=np.nan)


def raw_pictures(paths: list[str], size: int) -> torch.Tensor:
    """``(N, 1, size, size)`` in [0, 1]."""
    load, resize = LoadRadiograph(), Resize((size, size), mode="area", anti_aliasing=False)
    read = [torch.as_tensor(np.asarray(resize(load(path)))) for path in tqdm(paths, "reading")]
    return torch.stack(read).float()


def detector_pictures(detector: AnomalyDetector, paths: list[str]) -> torch.Tensor:
    """Pictures of the detector's size, whose contrast is not yet standardized."""
    return raw_pictures(paths, detector.network.encoder.img_size[0])


def standardized(pictures: torch.Tensor) -> torch.Tensor:
    """Pictures as the detector takes them."""
    standardize = StandardizeContrast()
    return torch.stack([torch.as_tensor(np.asarray(standardize(each))) for each in pictures])


@torch.no_grad()
def features_of_copies(detector: AnomalyDetector, paths: list[str], seed: int) -> NDArray:
    """Features of one copy of each radiograph, as by another scanner."""
    found = []
    for batch in OtherScanners(seed)(detector_pictures(detector, paths)).split(BATCH):
        tokens = detector(standardized(batch))["tokens"]
        found.append(tokens[:, detector.interior].mean(1).numpy())
    return np.concatenate(found)


@dataclass(frozen=True)
class Scored:
    """Images of a set: their table, scores ``(M,)``, and what is known by the picture."""

    table: pd.DataFrame
    scores: NDArray
    facts: list[ImageFacts]

    @classmethod
    @torch.no_grad()
    def read(cls, detector: AnomalyDetector, data: Path, name: str) -> Scored:
        """All images of a set."""
        table, reader = table_of(data, name), ImageFactsReader(detector)
        scores: list[float] = []
        facts: list[ImageFacts] = []
        paths = table["path"].tolist()
        sizes = detector_pictures(detector, paths), raw_pictures(paths, JUDGED_SIZE)
        pairs = zip(*(pictures.split(BATCH) for pictures in sizes), strict=True)
        for batch, judged in tqdm(list(pairs), f"scoring {name}"):
            image = standardized(batch)
            outputs = detector(image)
            picture, headers = {"picture": 255 * judged}, [Dataset()] * len(batch)
            facts += reader.read(picture, outputs["tokens"], headers, reader.lungs(image))
            scores += outputs["scores"][:, -1].tolist()
        return cls(table, np.array(scores), facts)

    def part(self, mask: NDArray[np.bool_]) -> Scored:
        """Some of the images."""
        facts = [fact for fact, kept in zip(self.facts, mask, strict=True) if kept]
        return Scored(self.table[mask].reset_index(drop=True), self.scores[mask], facts)

    def by_header(self) -> Scored:
        """The same images with their views."""
        views = zip(self.facts, self.table["view"], strict=True)
        return replace(self, facts=[replace(fact, view=view) for fact, view in views])

    @property
    def features(self) -> NDArray:
        """``(M, D)``."""
        return np.stack([fact.features for fact in self.facts])


def is_ap(scored: Scored) -> NDArray:
    """1 for AP and 0 for PA, by the header."""
    return (scored.table["view"] == "AP").to_numpy().astype(int)


class Sources:
    """NIH 7k's train and validation patients, and what is taken from them."""

    def __init__(self, detector: AnomalyDetector, data: Path) -> None:
        self.train, self.val = (
            Scored.read(detector, data, f"NIH {part}") for part in ("train", "val")
        )
        both = pd.concat([self.train.table, self.val.table])
        # patients with an image among the detector's own
        self.known = set(both.loc[both["same_image_in_adult_normals"] != "", "patient_id"])
        self.space = self._space(detector)
        self.copied = features_of_copies(detector, self.val.table["path"].tolist(), seed=2)

    def _space(self, detector: AnomalyDetector) -> FeatureSpace:
        """Directions of adult train patients, and of the copies of each second of their images."""
        table, views = self.train.table, is_ap(self.train)
        adult, half = (table["age"] >= CHILD_AGE).to_numpy(), np.arange(len(table)) % 2 == 0
        copied = features_of_copies(detector, table["path"][half].tolist(), seed=1)
        own, views = self.train.features[adult & half], views[adult & half]
        space = FeatureSpace.fit(np.concatenate([own, copied[adult[half]]]), np.tile(views, 2), 2)
        return space.moved(own, views)

    def normals(self, sections: list[Scored], digest: str) -> NormalImages:
        """Scores of adult normals of these sections; references of the looks are validation patients."""
        parts = []
        for section in sections:
            unknown = ~section.table["patient_id"].isin(self.known).to_numpy()
            parts.append(section.part(adult_normal(section) & unknown).by_header())
        scores = np.concatenate([part.scores for part in parts])
        facts = [fact for part in parts for fact in part.facts]
        named = {"origin": "NIH ChestX-ray14", "made": "1992 to 2015", "detector": digest}
        found = normals_from(scores, facts, LEVEL, **named)
        return replace(found, looks=self._looks(), space=self.space, children=False, adults=True)

    def _looks(self) -> dict[str, NDArray]:
        chosen = adult_normal(self.val)
        reference = self.val.part(chosen).by_header()
        looks = {
            name: np.array([fact.looks[name] for fact in reference.facts])
            for name in ("child", "ap")
        }
        looks["pose"] = np.array([fact.wrong_pose for fact in reference.facts])
        # of copies, since another hospital's adults are as far away as those
        looks["distance"] = self.space.distances(self.copied[chosen], is_ap(reference))
        return looks


def adult_normal(scored: Scored) -> NDArray[np.bool_]:
    """Which images are normal ones of adults."""
    table = scored.table
    return ((table["age"] >= CHILD_AGE) & (table["abnormal"] == 0)).to_numpy()


def measured(title: str, normals: NormalImages, scored: Scored) -> dict[str, Any]:
    """A row of the table."""
    found = [normals.judge(*pair) for pair in zip(scored.scores, scored.facts, strict=True)]
    p_values, abnormal = np.array([each.p_value for each in found]), scored.table["abnormal"]
    judged, normal = np.isfinite(p_values), (abnormal == 0).to_numpy()
    row = {
        "images": title,
        "normal": int(normal.sum()),
        "not judged": (~judged)[normal].mean(),
        "p <= 0.05": (p_values[judged & normal] <= LEVEL).mean(),
    }
    if not normal.all():
        row["abnormal not judged"] = (~judged)[~normal].mean()
        row["AUC of all"] = roc_auc(abnormal, scored.scores)
        if (judged & ~normal).any() and (judged & normal).any():
            row["AUC of judged"] = roc_auc(abnormal[judged], scored.scores[judged])
    return row


def groups_of(name: str, scored: Scored) -> Iterator[tuple[str, Scored]]:
    """The images of a set; of NIH's, adults by view, with and without their headers, and children."""
    if not name.startswith("NIH "):
        yield name, scored
        return
    age, view = scored.table["age"].to_numpy(), scored.table["view"].to_numpy()
    for each in ("PA", "AP"):
        adults = scored.part((age >= CHILD_AGE) & (view == each))
        yield f"{name}, adults {each}", adults
        yield f"{name}, adults {each}, by header", adults.by_header()
    yield f"{name}, children", scored.part(age <= CHILD)


def main() -> None:
    """Run from the repository's root."""
    parser = maker_parser(__doc__, "results/normals.safetensors")
    parser.add_argument("--test", action="store_true", help="figures of the test sets alone")
    options = parser.parse_args()
    detector, digest = load_detector(DETECTOR), str(ModelFile(DETECTOR).description.digest)
    if options.test:
        normals = load_normals(NORMALS, digest)
        sets = {name: Scored.read(detector, options.data, name) for name in TEST}
    else:
        sources = Sources(detector, options.data)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        save_normals(sources.normals([sources.train, sources.val], digest), options.output)
        normals, sets = sources.normals([sources.train], digest), {"NIH val": sources.val}
    rows = [
        measured(title, normals, part)
        for name, scored in sets.items()
        for title, part in groups_of(name, scored)
    ]
    print(pd.DataFrame(rows).to_markdown(index=False, floatfmt=".3f"))


if __name__ == "__main__":
    main()
