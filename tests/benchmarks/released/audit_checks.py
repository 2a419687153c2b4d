# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Sensitivity and false alarms of each check of the audit, on altered copies of radiographs.

``python -m tests.benchmarks.released.audit_checks --data /path/to/sets`` prints a table of NIH's test images, JSRT and
Montgomery; the rates of ``monai_afire.apps.audit`` are the lowest of each check in the first column. ``--split val``
uses NIH's validation images, on which thresholds were chosen, and adds quantiles of the measurements.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageDraw, ImageFont

from monai_afire.apps.audit import measure_images, near_duplicates
from monai_afire.apps.audit.audit_checks import THRESHOLDS, find
from tests.benchmarks.released.sets import maker_parser, nih_rows

SETS = ("nih_cxr_7k", "jsrt", "montgomery")
Spoil = Callable[[Image.Image, Image.Image], Image.Image]  # of a picture and another one
MEASURED = (
    *("rotated", "mirrored", "inverted", "not_chest", "two_views", "lungs_at_edge", "letters"),
    *("border", "white", "black_inside", "brightness", "contrast", "second_lung"),
)


def side_by_side(picture: Image.Image, other: Image.Image) -> Image.Image:
    """Two views in one picture."""
    sheet = Image.new("L", (2 * picture.width + 8, picture.height))
    sheet.paste(picture)
    sheet.paste(other.resize(picture.size), (picture.width + 8, 0))
    return sheet


def with_text(picture: Image.Image, _: Image.Image) -> Image.Image:
    """A name in the corner, letters of a thirtieth of the height or 9 pixels."""
    copy = picture.copy()
    font = ImageFont.load_default(max(9, picture.height // 24))
    ImageDraw.Draw(copy).text((6, 6), "MILLER ANNA 1952", fill=255, font=font)
    return copy


def framed(picture: Image.Image, _: Image.Image) -> Image.Image:
    """A black border, a tenth of the side at each edge."""
    width = picture.width // 8
    sheet = Image.new("L", (picture.width + 2 * width, picture.height + 2 * width))
    sheet.paste(picture, (width, width))
    return sheet


def compressed(picture: Image.Image, _: Image.Image) -> Image.Image:
    """JPEG of quality 60."""
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=60)
    return Image.open(content)


def cut(box: tuple[float, float, float, float]) -> Spoil:
    """A part of the picture, as fractions of its sides."""
    return lambda picture, _: picture.crop(
        tuple(round(f * s) for f, s in zip(box, picture.size * 2, strict=True))
    )


def exposed(function: Callable[[float], float]) -> Spoil:
    """Other gray levels."""
    return lambda picture, _: picture.point(
        [min(255, max(0, round(function(level)))) for level in range(256)]
    )


def turned(way: Image.Transpose) -> Spoil:
    """Rotated or mirrored."""
    return lambda picture, _: picture.transpose(way)


ALONE: dict[str, dict[str, Spoil]] = {  # check -> ways to spoil every picture of a set
    "rotated": {way.name: turned(way) for way in list(Image.Transpose)[2:]},
    "mirrored": {"FLIP_LEFT_RIGHT": turned(Image.Transpose.FLIP_LEFT_RIGHT)},
    "inverted": {"inverted": exposed(lambda level: 255 - level)},
    "two_views": {"side by side": side_by_side},
    "partial_lungs": {
        "left 55 %": cut((0, 0, 0.55, 1)),
        "right 55 %": cut((0.45, 0, 1, 1)),
        "upper 55 %": cut((0, 0, 1, 0.55)),
        "lower 60 %": cut((0, 0.4, 1, 1)),
    },
    "text": {"a name": with_text},
    "borders": {"an eighth": framed},
    "saturated": {
        "x 2, clipped": exposed(lambda level: 2 * level),
        "2 x - 1.2": exposed(lambda level: 2 * level - 306),
    },
}
AMONG: dict[str, dict[str, Spoil]] = {  # ways to spoil one in ten
    "exposure": {
        "x 0.3": exposed(lambda level: 0.3 * level),
        "brighter": exposed(lambda level: 200 + 0.2 * level),
    },
    "resolution": {
        "a third": lambda picture, _: picture.resize((picture.width // 3, picture.height // 3))
    },
}
DUPLICATES: dict[str, Spoil] = {
    "JPEG 60": compressed,
    "resized x 0.6": lambda picture, _: picture.resize(
        (round(0.6 * picture.width), round(0.6 * picture.height))
    ),
    "resized x 1.5": lambda picture, _: picture.resize(
        (round(1.5 * picture.width), round(1.5 * picture.height))
    ),
    "contrast + 10 %": exposed(lambda level: 128 + 1.1 * (level - 128)),
    "contrast - 10 %": exposed(lambda level: 128 + 0.9 * (level - 128)),
}


def images_of(data: Path, name: str, split: str) -> list[Path]:
    """Files of a set."""
    if name == "nih_cxr_7k":
        return [Path(path) for path in nih_rows(data, split)["path"]]
    return sorted((data / name / "images").glob("*.[pj][np]g"))


def measured(files: list[Path], spoil: Spoil | None = None) -> tuple[pd.DataFrame, np.ndarray]:
    """Measurements of files, or of their spoiled copies."""
    with tempfile.TemporaryDirectory() as folder:
        paths = files
        if spoil:
            paths = [Path(folder, f"{number}.png") for number in range(len(files))]
            for number, path in enumerate(paths):
                pictures = (
                    Image.open(files[k]).convert("L") for k in (number, (number + 1) % len(files))
                )
                spoil(*pictures).save(path)
        frame, pictures = measure_images([{"image": str(path)} for path in paths], 0)
    frame["patient"], frame["section"] = "", "training"
    frame["image"] = [path.name for path in files]
    return frame, pictures


def rates(files: list[Path]) -> dict[tuple[str, str], float]:
    """(check, what was done) -> share of the images with the finding; "clean" is the rate of false alarms."""
    clean, pictures = measured(files)
    table = {(name, "clean"): len(rows) / len(clean) for name, rows in find(clean, []).items()}
    for check, ways in ALONE.items():
        for way, spoil in ways.items():
            table[check, way] = len(find(measured(files, spoil)[0], [])[check]) / len(files)
    for check, ways in AMONG.items():
        for way, spoil in ways.items():
            mixed = clean.copy()
            chosen = list(range(0, len(files), 10))
            mixed.iloc[chosen] = measured([files[index] for index in chosen], spoil)[0].to_numpy()
            found = find(mixed.infer_objects(), [])[check]
            table[check, way] = sum(index in found for index in chosen) / len(chosen)
    limit = THRESHOLDS["correlation"]
    table["near_duplicate", "clean"] = len(near_duplicates(pictures, limit)) / len(files)
    for way, spoil in DUPLICATES.items():
        both = np.concatenate([pictures, measured(files, spoil)[1]])
        pairs = {(one, other) for one, other, _ in near_duplicates(both, limit)}
        known = sum((i, i + len(files)) in pairs for i in range(len(files)))
        table["near_duplicate", way] = known / len(files)
    return table


def rates_by_finding(data: Path, split: str) -> pd.DataFrame:
    """Shares of NIH's images that each check reports, without and with findings of disease."""
    rows = nih_rows(data, split)
    found = find(measured([Path(path) for path in rows["path"]])[0], [])
    is_reported = {name: rows.index.isin(list(numbers)) for name, numbers in found.items()}
    is_ill = (rows["findings"] != "No Finding").map({False: "no finding", True: "findings"})
    shares = pd.DataFrame(is_reported).groupby(is_ill).mean().T
    return shares[shares.any(axis=1)]


def other_pictures() -> float:
    """Share of noise and drawings that is no chest radiograph to the audit; photographs were trained on."""
    random, texts = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(60):
            path = Path(folder, f"{number}.png")
            picture = Image.fromarray(random.integers(0, 255, (128, 128), np.uint8))
            if number % 2:
                picture = Image.new("L", (128, 128), int(random.integers(0, 255)))
                for _ in range(8):
                    corners = np.sort(random.integers(0, 128, (2, 2)), 0).ravel().tolist()
                    ImageDraw.Draw(picture).ellipse(corners, fill=int(random.integers(0, 255)))
            picture.save(path)
            texts.append(path)
        return len(find(measured(texts)[0], [])["not_chest"]) / len(texts)


def main() -> None:
    """Run from the repository's root."""
    parser = maker_parser(__doc__)
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--most", type=int, default=2000, help="images of a set")
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = {}
    for name in SETS if options.split == "test" else SETS[:1]:
        files = images_of(options.data, name, options.split)[: options.most]
        columns[name] = rates(files)
        if options.split == "val":
            frame = measured(files)[0]
            print(frame[list(MEASURED)].quantile([0.005, 0.01, 0.5, 0.99, 0.995]).T.to_string())
    print(pd.DataFrame(columns).to_string(float_format="{:.3f}".format))
    by_finding = rates_by_finding(options.data, options.split)
    print(by_finding.to_string(float_format="{:.3f}".format))
    print(f"not_chest, noise and drawings: {other_pictures():.3f}")


if __name__ == "__main__":
    main()
