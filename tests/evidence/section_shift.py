# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where a detector's loss between ChildCXR's validation and test images comes from: its normals or its abnormal ones.

``python -m tests.evidence.section_shift --data /path/to/childcxr --field_of_view lungs`` judges both sections by an
encoder alone (``fused``, statistics of the training normals) and prints: the abnormal images of each section against
the normals of each; the median score by the kinds of files that the set is made of; detectors that know one kind of
normal; and the test by statistics of the other normal patients of the test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch

from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.networks import ViTEncoder, released_encoder
from tests.evidence.radiograph_sets import file_kind, part_of
from tests.evidence.real_detection import figures, read_set, summary
from tests.evidence.real_encoders import (
    SCORES,
    add_shape_options,
    encoder,
    encoder_scores,
    shape_of,
)

SECTIONS = ("validation", "test")
FOLDS = 3


def auc_between(rows: pd.DataFrame, abnormal: str, normal: str, score: str = "fused") -> float:
    """AUC of one section's abnormal images against the normals of one."""
    positive = (rows["section"] == abnormal) & (rows["label"] == 1)
    compared = rows[positive | ((rows["section"] == normal) & (rows["label"] == 0))]
    return roc_auc(compared["label"], compared[score])


def crossed(rows: pd.DataFrame) -> pd.DataFrame:
    """AUC of each section's abnormal images (columns) against each section's normals (rows)."""
    values = {
        side: {other: auc_between(rows, side, other) for other in SECTIONS} for side in SECTIONS
    }
    return (
        pd.DataFrame(values).rename("abnormal of {}".format, axis=1).rename("normals of {}".format)
    )


def by_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """Median score of each kind of file, and AUC of each kind of abnormal file against its section's normals."""
    normal = rows[rows["label"] == 0]
    found = {
        f"{section}, all normals": {"images": len(part), "median": part["fused"].median()}
        for section, part in normal.groupby("section")
    }
    for (section, label, kind), part in rows.groupby(["section", "label", "file_kind"]):
        values = {"images": len(part), "median": part["fused"].median()}
        if label:
            values["AUC"] = auc_between(pd.concat([part, normal]), str(section), str(section))
        found[f"{section}, {kind}"] = values
    return pd.DataFrame(found).T


def other_kind(
    table: pd.DataFrame, images: torch.Tensor, network: ViTEncoder, **how: object
) -> pd.Series:
    """AUC on validation images, the normals of which are of another kind than those of the statistics."""
    found = {}
    kinds = sorted(table.loc[table["label"] == 0, "file_kind"].unique())
    for kind in kinds:
        normal, known = table["label"] == 0, table["file_kind"] == kind
        kept = (normal & (table["section"] == "training") & known) | (
            (table["section"] == "validation") & ~(normal & known)
        )
        rows = encoder_scores(*part_of(table, images, kept), network, **how)
        found[f"statistics of {kind}, normals of the others"] = auc_between(
            rows, "validation", "validation"
        )
    return pd.Series(found)


def by_own_normals(
    table: pd.DataFrame, images: torch.Tensor, network: ViTEncoder, section: str, **how: object
) -> list[pd.DataFrame]:
    """Figures of each third of a section's normal patients, with statistics of the others instead of the training's."""
    part = table["section"] == section
    normal = part & (table["label"] == 0)
    patients = table.loc[normal, "patient"].drop_duplicates().sample(frac=1, random_state=0)
    found = []
    for fold in range(FOLDS):
        own = normal & ~table["patient"].isin(patients[fold::FOLDS])
        chosen = table.assign(section=table["section"].mask(own, "training"))
        rows = encoder_scores(*part_of(chosen, images, part), network, **how)
        found.append(figures(rows, SCORES, {}))
    return found


def reported(options: argparse.Namespace) -> list[str]:
    """The tables as they are printed."""
    options.output.mkdir(parents=True, exist_ok=True)
    table, images = read_set(options.data.resolve(), options.output.resolve(), options.image_size)
    table["file_kind"] = table["image"].map(file_kind)
    network = encoder(options.weights, shape_of(options))
    how = {"copies": 0, "field_of_view": options.field_of_view}
    rows = encoder_scores(table, images, network, **how)
    shown = (
        crossed(rows),
        by_kind(rows),
        other_kind(table, images, network, **how),
        summary(by_own_normals(table, images, network, "test", **how)),
    )
    return [part.round(3).to_string() for part in shown]


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="ChildCXR")
    parser.add_argument(
        "--weights", default=str(released_encoder()), help="of the encoder (default: released)"
    )
    parser.add_argument("--output", type=Path, default=Path("bundles/afire/output/section_shift"))
    parser.add_argument("--field_of_view", choices=FIELDS_OF_VIEW, default="image")
    add_shape_options(parser)
    print("\n\n".join(reported(parser.parse_args())))


if __name__ == "__main__":
    main()
