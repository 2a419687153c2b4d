# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which images the released detector judges, and how often a judged normal image has a small p-value.

``python -m tests.evidence.support --data /path/to/sets --cache FOLDER --write FILE`` takes the normal images that are
shipped from NIH 7k's train and validation patients, and prints the figures of its validation patients, where the train
patients are the normal images. ``--sets test`` prints those of the test sets, with the shipped file. The cache keeps
scores and features. The protocol is in ``docs/reports/support.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.transforms import Resize
from numpy.typing import NDArray
from tqdm import tqdm

from monai_afire.apps.worklist import load_normals, normals_from, save_normals
from monai_afire.apps.worklist.image_facts import CHILD_AGE, ImageFacts, ImageFactsReader
from monai_afire.apps.worklist.normal_images import NormalImages
from monai_afire.apps.worklist.support import FeatureSpace
from monai_afire.detection import AnomalyDetector, load_detector
from monai_afire.detection.token_features import tokens_and_features
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks import ModelFile
from monai_afire.transforms import LoadRadiograph, StandardizeContrast
from tests.evidence.other_scanners import OtherScanners
from tests.evidence.radiograph_sets import radiograph_table

DETECTOR = Path("bundles/afire/released/detector.safetensors")
NORMALS = DETECTOR.with_name("normals.safetensors")
SIZE, BATCH = 64, 32
LEVEL = 0.05
CHILD = 13  # oldest child of the validation, in years
OWN, DRAWS = (50, 100, 200), 20
TEST = ("nih_test", "jsrt", "montgomery", "child")
Rows = dict[str, NDArray[Any]]


def table_of(data: Path, name: str) -> pd.DataFrame:
    """Columns "path", "abnormal", "patient", "view" and "age" (NaN for unknown) of a set."""
    if name.startswith("nih_"):
        table = pd.read_csv(data / "nih_cxr_7k/manifest.csv", dtype={"patient_id": str})
        table = table[table["split"] == name.removeprefix("nih_")].reset_index(drop=True)
        table["path"] = [str(data / "nih_cxr_7k" / image) for image in table["image"]]
        table["abnormal"] = (table["findings"] != "No Finding").astype(int)
        return table.rename(columns={"patient_id": "patient"})
    if name == "child":
        table = child_table(data / "childcxr")
    elif name == "jsrt":
        table = jsrt_table(data / "jsrt/images")
    else:
        found = radiograph_table(data / "montgomery")
        table = found.rename(columns={"image": "path", "label": "abnormal"})
    return table.assign(view="", age=np.nan)


def jsrt_table(folder: Path) -> pd.DataFrame:
    """JSRT: names with LN have a nodule."""
    paths = sorted(folder.glob("*.png"))
    abnormal = [int(path.name.startswith("JPCLN")) for path in paths]
    names = [path.name for path in paths]
    return pd.DataFrame({"path": map(str, paths), "abnormal": abnormal, "patient": names})


def child_table(folder: Path) -> pd.DataFrame:
    """ChildCXR's folders val and test; train teaches the classifier of age."""
    paths = [path for part in ("test", "val") for path in sorted((folder / part).glob("*/*.jpeg"))]
    abnormal = [int(path.parent.name != "NORMAL") for path in paths]
    names = [path.name for path in paths]
    return pd.DataFrame({"path": map(str, paths), "abnormal": abnormal, "patient": names})


def raw_pictures(paths: list[str]) -> torch.Tensor:
    """``(N, 1, 64, 64)`` in [0, 1]."""
    load, resize = LoadRadiograph(), Resize((SIZE, SIZE), mode="area", anti_aliasing=False)
    read = [torch.as_tensor(np.asarray(resize(load(path)))) for path in tqdm(paths, "reading")]
    return torch.stack(read).float()


def standardized(pictures: torch.Tensor) -> torch.Tensor:
    """Pictures as the detector takes them."""
    standardize = StandardizeContrast()
    return torch.stack([torch.as_tensor(np.asarray(standardize(each))) for each in pictures])


def rows_of(detector: AnomalyDetector, data: Path, cache: Path, name: str) -> Rows:
    """Scores, features and facts of a set, from the cache if they are there."""
    path = cache / f"{name}.npz"
    if not path.is_file():
        raw = raw_pictures(table_of(data, name)["path"].tolist())
        np.savez(path, **scored_rows(detector, raw, name))
    return dict(np.load(path))


SPOILED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "turned": lambda pictures: torch.rot90(pictures, 1, (2, 3)),
    "inverted": lambda pictures: 1 - pictures,
}


def spoiled_rows(detector: AnomalyDetector, data: Path, cache: Path, way: str) -> Rows:
    """Each fourth picture of NIH 7k's validation patients, turned or inverted, which must not be judged."""
    path = cache / f"{way}.npz"
    if not path.is_file():
        raw = raw_pictures(table_of(data, "nih_val")["path"][::4].tolist())
        np.savez(path, **scored_rows(detector, SPOILED[way](raw), way))
    return dict(np.load(path))


@torch.no_grad()
def scored_rows(detector: AnomalyDetector, raw: torch.Tensor, name: str) -> Rows:
    """Scores, features and facts of pictures."""
    reader, parts = ImageFactsReader(detector), []
    for batch in tqdm(raw.split(BATCH), f"scoring {name}"):
        image = standardized(batch)
        outputs = detector(image)
        sources = [""] * len(batch)
        facts = reader.read(
            {"picture": 255 * batch}, outputs["tokens"], sources, reader.lungs(image)
        )
        for score, fact in zip(outputs["scores"][:, -1].tolist(), facts, strict=True):
            parts.append(
                {"scores": score, "features": fact.features, "lungs": fact.lungs, **fact.looks}
            )
    return {key: np.stack([part[key] for part in parts]) for key in parts[0]}


@torch.no_grad()
def copied_features(
    detector: AnomalyDetector, paths: list[str], cache: Path, name: str, seed: int
) -> NDArray:
    """Features of one copy of each radiograph."""
    path = cache / f"{name}_copies.npz"
    if path.is_file():
        return np.load(path)["features"]
    found = []
    for batch in OtherScanners(seed)(raw_pictures(paths)).split(BATCH):
        tokens, _ = tokens_and_features(detector.network.encoder, standardized(batch), "last")
        found.append(tokens[:, detector.interior].mean(1).numpy())
    np.savez(path, features=np.concatenate(found))
    return np.concatenate(found)


def facts_of(rows: Rows, views: list[str]) -> list[ImageFacts]:
    """Facts of each row, with the views of a header or "" for none."""
    return [
        ImageFacts(
            view=view,
            lungs=float(rows["lungs"][i]),
            looks={name: float(rows[name][i]) for name in ("ap", "child", "pose")},
            features=rows["features"][i],
        )
        for i, view in enumerate(views)
    ]


def chosen(rows: Rows, mask: NDArray[np.bool_]) -> Rows:
    """Some of the rows."""
    return {name: values[mask] for name, values in rows.items()}


def unknown_normals(table: pd.DataFrame, others: pd.DataFrame) -> NDArray[np.bool_]:
    """Adult normals of patients without an image among the detector's own."""
    shared = pd.concat([table, others])
    own = set(shared.loc[shared["same_image_in_adult_normals"].notna(), "patient"])
    kept = (table["age"] >= CHILD_AGE) & (table["abnormal"] == 0) & ~table["patient"].isin(own)
    return kept.to_numpy()


class Sources:
    """NIH 7k's train and validation patients, and what is taken from them."""

    def __init__(self, detector: AnomalyDetector, data: Path, cache: Path) -> None:
        self.tables = {name: table_of(data, f"nih_{name}") for name in ("train", "val")}
        self.rows = {name: rows_of(detector, data, cache, f"nih_{name}") for name in self.tables}
        both = pd.concat(self.tables.values())
        self.normal = {name: unknown_normals(table, both) for name, table in self.tables.items()}
        self.space = self._space(detector, cache)
        paths = self.tables["val"]["path"].tolist()
        self.copied = copied_features(detector, paths, cache, "val", seed=2)

    def _space(self, detector: AnomalyDetector, cache: Path) -> FeatureSpace:
        """Directions of adult train patients, and of the copies of each second of their images."""
        table = self.tables["train"]
        adult, half = (table["age"] >= CHILD_AGE).to_numpy(), np.arange(len(table)) % 2 == 0
        views = (table["view"] == "AP").to_numpy().astype(int)
        copied = copied_features(detector, table["path"][half].tolist(), cache, "train", seed=1)
        features = [self.rows["train"]["features"][adult & half], copied[adult[half]]]
        space = FeatureSpace.fit(np.concatenate(features), np.tile(views[adult & half], 2), 2)
        return space.moved(features[0], views[adult & half])

    def part(self, name: str, mask: NDArray[np.bool_]) -> tuple[Rows, list[ImageFacts]]:
        """Rows of a section and their facts, views as headers have them."""
        views = self.tables[name]["view"][mask].tolist()
        rows = chosen(self.rows[name], mask)
        return rows, facts_of(rows, views)

    def normals(self, sections: tuple[str, ...], digest: str) -> NormalImages:
        """Scores of these sections; references of the looks are those of the last section."""
        parts = [self.part(name, self.normal[name]) for name in sections]
        scores = np.concatenate([rows["scores"] for rows, _ in parts])
        facts = [fact for _, facts in parts for fact in facts]
        named = {"origin": "NIH ChestX-ray14", "made": "1992 to 2015", "detector": digest}
        found = normals_from(scores, facts, LEVEL, **named)
        last = self.tables["val"]
        reference = ((last["age"] >= CHILD_AGE) & (last["abnormal"] == 0)).to_numpy()
        rows, facts = self.part("val", reference)
        views = np.array([fact.view == "AP" for fact in facts]).astype(int)
        looks = {"child": rows["child"], "ap": rows["ap"]}
        looks["pose"] = np.array([fact.wrong_pose for fact in facts])
        # of copies, since another hospital's adults are as far away as those
        looks["distance"] = self.space.distances(self.copied[reference], views)
        return replace(found, looks=looks, space=self.space, children=False, adults=True)


def measured(
    title: str, normals: NormalImages, rows: Rows, facts: list[ImageFacts], abnormal: NDArray
) -> dict[str, Any]:
    """A row of the table."""
    found = [normals.judge(score, fact) for score, fact in zip(rows["scores"], facts, strict=True)]
    p_values = np.array([each.p_value for each in found])
    judged, normal = np.isfinite(p_values), abnormal == 0
    row = {
        "images": title,
        "normal": int(normal.sum()),
        "not judged": (~judged)[normal].mean(),
        "p <= 0.05": (p_values[judged & normal] <= LEVEL).mean(),
    }
    if abnormal.any():
        row["abnormal not judged"] = (~judged)[~normal].mean()
        row["AUC of all"] = roc_auc(abnormal, rows["scores"])
        if (judged & ~normal).any() and (judged & normal).any():
            row["AUC of judged"] = roc_auc(abnormal[judged], rows["scores"][judged])
    return row


def own_rows(
    title: str,
    shipped: NormalImages,
    rows: Rows,
    facts: list[ImageFacts],
    abnormal: NDArray,
    patients: NDArray,
) -> Iterator[dict[str, Any]]:
    """The same after calibration with own normal images; their patients are not tested."""
    normal = np.flatnonzero(abnormal == 0)
    for count in OWN:
        drawn = []
        for seed in range(DRAWS if len(normal) >= count + 20 else 0):
            own = np.random.default_rng(seed).choice(normal, count, replace=False)
            rest = ~np.isin(patients, patients[own])
            named = {"origin": title, "made": "", "detector": shipped.detector}
            scores, own_facts = rows["scores"][own], [facts[i] for i in own]
            normals = normals_from(scores, own_facts, LEVEL, shipped, **named)
            kept = [fact for fact, stays in zip(facts, rest, strict=True) if stays]
            drawn.append(measured(title, normals, chosen(rows, rest), kept, abnormal[rest]))
        if drawn:
            means = pd.DataFrame(drawn).mean(numeric_only=True).to_dict()
            yield {"images": f"{title}, {count} own", **means}


def groups_of(table: pd.DataFrame, rows: Rows, name: str) -> Iterator[tuple[str, NDArray, bool]]:
    """Title, mask, and whether views are those of a header."""
    if not name.startswith("nih_"):
        yield name, np.ones(len(table), bool), False
        return
    adult = (table["age"] >= CHILD_AGE).to_numpy()
    for view in ("PA", "AP"):
        mask = adult & (table["view"] == view).to_numpy()
        yield f"{name}, adults {view}", mask, False
        yield f"{name}, adults {view}, by header", mask, True
    yield f"{name}, children", (table["age"] <= CHILD).to_numpy(), False


def figures(
    normals: NormalImages, tables: Mapping[str, pd.DataFrame], rows: Mapping[str, Rows], own: bool
) -> pd.DataFrame:
    """All rows of the report."""
    lines = []
    for name, table in tables.items():
        for title, mask, by_header in groups_of(table, rows[name], name):
            part = chosen(rows[name], mask)
            views = table["view"][mask].tolist() if by_header else [""] * int(mask.sum())
            facts, abnormal = facts_of(part, views), table["abnormal"][mask].to_numpy()
            lines.append(measured(title, normals, part, facts, abnormal))
            if own and not by_header and "children" not in title:
                patients = table["patient"][mask].to_numpy()
                lines += own_rows(title, normals, part, facts, abnormal, patients)
    return pd.DataFrame(lines)


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--cache", type=Path, required=True, help="folder of scores and features")
    parser.add_argument("--sets", choices=("val", "test"), default="val")
    parser.add_argument("--write", type=Path, help="file of the normal images that are shipped")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    detector, digest = load_detector(DETECTOR), str(ModelFile(DETECTOR).identity.digest)
    if options.sets == "test":
        normals, names = load_normals(NORMALS, digest), TEST
    else:
        sources = Sources(detector, options.data, options.cache)
        normals, names = sources.normals(("train",), digest), ("nih_val",)
        if options.write:
            save_normals(sources.normals(("train", "val"), digest), options.write)
    tables = {name: table_of(options.data, name) for name in names}
    rows = {name: rows_of(detector, options.data, options.cache, name) for name in names}
    table = figures(normals, tables, rows, own=True)
    if options.sets == "val":
        spoiled = {way: spoiled_rows(detector, options.data, options.cache, way) for way in SPOILED}
        nothing = {way: np.zeros(len(each["scores"]), int) for way, each in spoiled.items()}
        lines = [
            measured(way, normals, each, facts_of(each, [""] * len(nothing[way])), nothing[way])
            for way, each in spoiled.items()
        ]
        table = pd.concat([table, pd.DataFrame(lines)])
    print(table.to_markdown(index=False, floatfmt=".3f"))


if __name__ == "__main__":
    main()
