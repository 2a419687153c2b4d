# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Detection on real radiographs by the encoders of several pre-trainings, each alone and frozen, beside the controls.

``python -m tests.evidence.real_encoders --data /path/to/childcxr --encoders untrained= mae=/path/to/model.pt`` takes
the statistics of the set's training normals from each encoder's tokens and prints one table of the validation images,
and with ``--test`` of the test images. What tells is the same for all of them: the Gaussian of the mean token, the
nearest normal tokens at the position, and the sum of both in standard deviations of the normals ("fused").
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.networks import ViTEncoder, load_encoder_weights
from tests.evidence.radiograph_sets import in_section
from tests.evidence.real_detection import (
    FUSED_SCORES,
    OVERRIDES,
    controls,
    detector_scores,
    figures,
    fitted_detector,
    read_set,
    summary,
)

SCORES = (*FUSED_SCORES, "fused")
SHAPE_OPTIONS = ("image_size", "patch_size", "hidden_size", "num_layers", "num_heads")
COLUMNS = ["AUC", "Q1", "Q2", "Q3", "Q4", "matched", "AP"]


def shape_in(overrides: Mapping[str, Any]) -> dict[str, int]:
    """The sizes among a bundle's overrides."""
    sizes = {name.removeprefix("encoder_def::"): value for name, value in overrides.items()}
    return {name: sizes[name] for name in SHAPE_OPTIONS}


SHAPE = shape_in(OVERRIDES)


def encoder(weights: str, shape: Mapping[str, int] = SHAPE, seed: int = 0) -> ViTEncoder:
    """The network of all pre-trainings that are compared, with its weights; "" for random ones."""
    torch.manual_seed(seed)
    network = ViTEncoder(
        img_size=shape["image_size"],
        patch_size=shape["patch_size"],
        hidden_size=shape["hidden_size"],
        num_layers=shape["num_layers"],
        num_heads=shape["num_heads"],
    )
    if weights:
        load_encoder_weights(network, weights)
    return network


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    """Sizes of the network, those of the released encoder unless they are given."""
    for name in SHAPE_OPTIONS:
        parser.add_argument(f"--{name}", type=int, default=SHAPE[name], help="of the encoders")


def shape_of(options: argparse.Namespace) -> dict[str, int]:
    """The sizes that were given."""
    return {name: getattr(options, name) for name in SHAPE_OPTIONS}


def encoder_scores(
    table: pd.DataFrame, images: torch.Tensor, network: ViTEncoder, **how: object
) -> pd.DataFrame:
    """Rows of the images that are judged, with their scores."""
    training = in_section(table, "training")
    detector = fitted_detector(network, images[training], {**how, "score_fusion": FUSED_SCORES})
    scores = dict(
        zip(detector.score_names, detector_scores(detector, images[~training]).T, strict=True)
    )
    return table[table["section"] != "training"].reset_index(drop=True).assign(**scores)


def compared(options: argparse.Namespace) -> pd.DataFrame:
    """Every score of every encoder beside the controls; also written to the output's folder."""
    options.output.mkdir(parents=True, exist_ok=True)
    section = "test" if options.test else "validation"
    table, images = read_set(options.data.resolve(), options.output.resolve(), options.image_size)
    how = {"copies": options.copies, "field_of_view": options.field_of_view}
    shown = {}
    for name, weights in (text.split("=", 1) for text in options.encoders):
        network = encoder(weights, shape_of(options))
        rows = encoder_scores(table, images, network, **how)
        found = figures(rows[rows["section"] == section], SCORES, {})
        shown |= {f"{name} {score}": row for score, row in summary([found]).iterrows()}
    result = pd.concat(
        [pd.DataFrame(shown).T, summary([controls(table, images, section, options.field_of_view)])]
    )
    result = result[COLUMNS]
    (options.output / f"summary_{section}.txt").write_text(result.to_string())
    return result


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="ChildCXR, or a folder with manifest.csv"
    )
    parser.add_argument("--encoders", nargs="+", required=True, metavar="NAME=WEIGHTS")
    parser.add_argument("--output", type=Path, default=Path("bundles/afire/output/real_encoders"))
    parser.add_argument(
        "--copies", type=int, default=0, help="of each normal image with another field of view"
    )
    parser.add_argument("--field_of_view", choices=FIELDS_OF_VIEW, default="image")
    add_shape_options(parser)
    parser.add_argument(
        "--test", action="store_true", help="the test images, once everything is chosen"
    )
    result = compared(parser.parse_args())
    pd.set_option("display.width", 250)
    print(result.to_string())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    main()
