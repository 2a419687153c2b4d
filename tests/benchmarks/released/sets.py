# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the makers share: which images of the sets they read, their options, and the file that they write."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from torch import nn

from monai_afire import __version__
from monai_afire.networks.weights.checkpoint_files import write_safetensors
from monai_afire.networks.weights.description import Description

DAMAGED = "adult_normal_5.jpg"  # by its source; NIH has it, too (00004808_003.png)


def adult_normals(data: Path, every: int = 1) -> list[Path]:
    """Each so-many-th of the adult normals."""
    files = sorted((data / "adult_normals" / "images").iterdir())[::every]
    return [path for path in files if path.name != DAMAGED]


def nih_rows(data: Path, split: str) -> pd.DataFrame:
    """Rows of a split of NIH 7k as text, with "path"; "same_image_in_adult_normals" is "" where there is none."""
    folder = data / "nih_cxr_7k"
    table = pd.read_csv(folder / "manifest.csv", dtype=str, keep_default_na=False)
    table = table[table["split"] == split].reset_index(drop=True)
    return table.assign(path=[str(folder / name) for name in table["image"]])


def held_out_names(data: Path) -> set[str]:
    """Adult normals that show an image of NIH 7k's validation or test patients."""
    parts = [nih_rows(data, split)["same_image_in_adult_normals"] for split in ("val", "test")]
    return set().union(*parts)


OUTLINES = {
    "jsrt": {"heart": ["masks/heart"], "lungs": ["masks/right lung", "masks/left lung"]},
    "montgomery": {"lungs": ["lungs"]},
}
"""Folders of the outlines of each structure by hand, below the folder of a set. They train nothing."""


def maker_parser(description: str | None, output: str | None = None) -> argparse.ArgumentParser:
    """The options of a maker: the folder of the sets, and what it writes."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=layout)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    if output:
        parser.add_argument("--output", type=Path, default=Path(output))
    return parser


def write_network(network: nn.Module, path: Path, task: str) -> None:
    """Write the weights in half precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = network.state_dict().items()
    halves = {name: each.half() if each.is_floating_point() else each for name, each in state}
    write_safetensors(halves, path, Description(task, version=__version__))
