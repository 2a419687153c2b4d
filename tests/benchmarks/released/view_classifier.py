# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Train the classifier of views on NIH 7k's headers: AP or PA, child or adult.

``python -m tests.benchmarks.released.view_classifier --data /path/to/sets`` trains on its train patients and prints the
accuracy of its val patients. ``--split test`` prints that of its test patients instead, and trains nothing. Children of
ChildCXR's train folder and adults of ``adult_normals`` teach the age, too, since NIH 7k has few children.
Pictures are copied as by other scanners, and marked and covered at random, so that a scanner's habits teach little.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F
from tqdm import tqdm

from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks.nets.view_classifier import ViewClassifier
from tests.benchmarks.released.other_scanners import OtherScanners
from tests.benchmarks.released.pose_classifier import Examples, read
from tests.benchmarks.released.sets import (
    adult_normals,
    held_out_names,
    maker_parser,
    nih_rows,
    write_network,
)

STEPS, PEAK, BATCH = 3000, 4e-3, 64
CHILD, ADULT = 13, 18  # oldest child and youngest adult of the training, in years
# of a batch; the rest are AP and PA views of NIH of all ages, as many of each
COUNTS = {"children of NIH": 8, "children of ChildCXR": 8, "adult normals": 8}
EVERY = 3  # of the adult normals


def rows_of(data: Path, split: str) -> pd.DataFrame:
    """Rows of a split of NIH 7k: "path", "view" and "age"."""
    return nih_rows(data, split).astype({"age": int})[["path", "view", "age"]]


def training_rows(data: Path) -> pd.DataFrame:
    """NIH 7k's train patients, and pictures of others with an age alone, by "source"."""
    nih, held_out = rows_of(data, "train").assign(source="NIH"), held_out_names(data)
    adults = [str(path) for path in adult_normals(data, EVERY) if path.name not in held_out]
    children = [str(path) for path in sorted((data / "childcxr" / "train").rglob("*.jpeg"))]
    others = [
        pd.DataFrame({"path": adults, "view": "", "age": ADULT, "source": "adult normals"}),
        pd.DataFrame({"path": children, "view": "", "age": 1, "source": "children of ChildCXR"}),
    ]
    table = pd.concat([nih, *others], ignore_index=True)
    table.loc[(table["source"] == "NIH") & (table["age"] <= CHILD), "source"] = "children of NIH"
    return table


def pictures_of(table: pd.DataFrame) -> torch.Tensor:
    """uint8 ``(N, 1, 96, 96)``."""
    read_all = [read(Path(name)) for name in tqdm(table["path"], "reading", leave=False)]
    return torch.from_numpy(np.stack(read_all)).unsqueeze(1)


def drawn(table: pd.DataFrame, random: np.random.Generator) -> np.ndarray:
    """Rows of a batch."""
    groups = [(np.flatnonzero(table["source"] == name), count) for name, count in COUNTS.items()]
    half = (BATCH - sum(COUNTS.values())) // 2
    groups += [(np.flatnonzero(table["view"] == view), half) for view in ("AP", "PA")]
    return np.concatenate([random.choice(rows, count) for rows, count in groups])


def train(classifier: ViewClassifier, images: torch.Tensor, table: pd.DataFrame) -> None:
    """One cycle of the learning rate; ages between child and adult teach the view alone."""
    examples, random = Examples(images, images), np.random.default_rng(0)
    scanners = OtherScanners(seed=0)
    optimizer = torch.optim.AdamW(classifier.parameters(), 1e-3, weight_decay=2e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK, total_steps=STEPS)
    ap = torch.tensor((table["view"] == "AP").to_numpy()).float()
    has_view = torch.tensor((table["view"] != "").to_numpy())
    age = torch.tensor(table["age"].to_numpy())
    bar = tqdm(range(STEPS), "training")
    for _ in bar:
        rows = torch.from_numpy(drawn(table, random))
        picture = examples.spoiled(scanners(images[rows].float() / 255))
        if examples.uniform(0, 1, 1) < 0.4:
            picture = examples.with_patch(picture)
        logits = classifier.logits(picture)
        seen = has_view[rows]
        known = (age[rows] <= CHILD) | (age[rows] >= ADULT)
        child = (age[rows][known] <= CHILD).float()
        loss = F.binary_cross_entropy_with_logits(logits[seen, 0], ap[rows][seen])
        loss = loss + F.binary_cross_entropy_with_logits(logits[known, 1], child)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


@torch.no_grad()
def measured(classifier: ViewClassifier, images: torch.Tensor, table: pd.DataFrame) -> dict:
    """Accuracy by view, the share with a probability of 0.9, and AUC of view and age."""
    parts = [classifier(batch.float() / 255) for batch in images.split(128)]
    ap, child = (torch.cat([part[name] for part in parts]).numpy() for name in ("ap", "child"))
    is_ap, age = (table["view"] == "AP").to_numpy(), table["age"].to_numpy()
    known = (age <= CHILD) | (age >= ADULT)
    sure = np.maximum(ap, 1 - ap) >= 0.9
    right = (ap >= 0.5) == is_ap
    return {
        "images": len(table),
        "AP right": right[is_ap].mean(),
        "PA right": right[~is_ap].mean(),
        "sure": sure.mean(),
        "right where sure": right[sure].mean(),
        "AUC of view": roc_auc(is_ap, ap),
        "AUC of child": roc_auc(age[known] <= CHILD, child[known]),
    }


def main() -> None:
    """Run from the repository's root."""
    parser = maker_parser(__doc__, "results/views.safetensors")
    parser.add_argument("--split", choices=("val", "test"), default="val")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.split == "test":
        classifier = ViewClassifier.released()
    else:
        classifier, table = ViewClassifier(), training_rows(options.data)
        train(classifier, pictures_of(table), table)
        write_network(classifier, options.output, "classifier of views")
    table = rows_of(options.data, options.split)
    row = measured(classifier.eval(), pictures_of(table), table)
    print(pd.DataFrame([row]).round(3).to_markdown(index=False))


if __name__ == "__main__":
    main()
