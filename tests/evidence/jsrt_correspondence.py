# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Contour points of JSRT found in other patients: dense tokens, sliding windows (ACE, Fig. 7), copied coordinates.

``python -m tests.evidence.jsrt_correspondence --data jsrt`` takes a folder with ``images`` and a ``contours.json``
that gives the [row, column] of corresponding points of each organ, and prints, for the released and an untrained
encoder, the mean distance of the place that was found from the point, as a percentage of the image side.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from monai_afire.apps.studies import (
    landmark_correspondence,
    same_place_correspondence,
    window_correspondence,
)
from monai_afire.apps.studies.features.tokens import WINDOW
from monai_afire.networks import ViTEncoder, load_encoder_weights
from tests.evidence.radiograph_sets import pictures

__all__ = ["main"]

SIZE, FILE_SIZE = 64, 256
CONTOUR_POINTS = {
    "right_lung": 44,
    "left_lung": 50,
    "heart": 26,
}  # corresponding points of each organ
ORGANS = tuple(CONTOUR_POINTS)


def contour_points(
    folder: Path, images: int, every: int, split: str = "test"
) -> tuple[list[str], torch.Tensor]:
    """Files of some images, evenly spaced, and each so many-th contour point (M, P, 2) in pixels of the file."""
    known = json.loads((folder / "contours.json").read_text())
    names = [
        name
        for name, entry in sorted(known.items())
        if entry["published_split"] == split and all(organ in entry["contours"] for organ in ORGANS)
    ]
    names = [
        names[index]
        for index in np.linspace(0, len(names), min(images, len(names)), endpoint=False).astype(int)
    ]
    points = [
        np.concatenate([known[name]["contours"][organ][::every] for organ in ORGANS]).astype(
            np.float32
        )
        for name in names
    ]
    return [str(folder / "images" / f"{name}.png") for name in names], torch.as_tensor(
        np.stack(points)
    )


def scaled(points: torch.Tensor, size: int) -> torch.Tensor:
    """Points of the file in pixels of the resized image."""
    return ((points + 0.5) * size / FILE_SIZE - 0.5).clamp(-0.5, size - 0.5)


def encoders() -> dict[str, ViTEncoder]:
    """The released encoder and one of its shape that has learned nothing."""
    torch.manual_seed(0)
    shape = {"img_size": SIZE, "patch_size": 8, "hidden_size": 192, "num_layers": 6, "num_heads": 6}
    untrained, released = ViTEncoder(**shape), ViTEncoder(**shape)
    load_encoder_weights(released, "released")
    return {"released": released, "untrained": untrained}


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--references", type=int, default=3)
    parser.add_argument("--every", type=int, default=6, help="of the contour points one in so many")
    parser.add_argument(
        "--stride", type=int, default=6, help="of the windows, pixels of an image of 146"
    )
    parser.add_argument("--encoders", nargs="+", default=["released", "untrained"])
    arguments = parser.parse_args()
    files, points = contour_points(arguments.data, arguments.images, arguments.every)
    reference: dict[str, Any] = {"reference": arguments.references}
    copied = same_place_correspondence(scaled(points, SIZE), (SIZE, SIZE), **reference)
    print(
        f"{len(files)} images, {points.shape[1]} points, {arguments.references} references: mean and median error, %"
    )

    def show(name: str, errors: Any) -> None:
        print(f"{name:50}{100 * errors.mean():8.2f}{100 * errors.median():8.2f}", flush=True)

    show("copied coordinates", copied["error_fraction"])
    small, _ = pictures(files, SIZE)
    larger = round(SIZE / WINDOW)
    large, _ = pictures(files, larger)
    for name, encoder in encoders().items():
        if name not in arguments.encoders:
            continue
        for stride in (4, 2):
            for removed in (False, True):
                table = landmark_correspondence(
                    encoder,
                    small,
                    scaled(points, SIZE),
                    stride=stride,
                    remove_position=removed,
                    **reference,
                    progress=False,
                )
                label = (
                    f"{name}: dense, stride {100 * stride / SIZE:.1f} %"
                    + ", less mean map" * removed
                )
                show(label, table["error_fraction"])
        table = window_correspondence(
            encoder,
            large,
            scaled(points, larger),
            stride=arguments.stride,
            **reference,
            progress=False,
        )
        show(
            f"{name}: windows, stride {100 * arguments.stride / larger:.1f} %",
            table["error_fraction"],
        )


if __name__ == "__main__":
    main()
