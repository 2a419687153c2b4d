# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Sensitivity and false alarms of each check of the audit, on copies of radiographs that are spoiled on purpose.

``python -m tests.evidence.audit_checks --data /path/to/sets`` prints a table. ``--split val`` uses NIH's validation
images, on which thresholds were chosen, and adds quantiles of the measurements; the default is NIH's test images, JSRT
and Montgomery. ``--only speed`` measures images per second and memory.
"""

from __future__ import annotations

import argparse
import csv
import io
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from monai_afire.apps.audit import audit_images, measure_images, near_duplicates
from monai_afire.apps.audit.audit_checks import THRESHOLDS, find

Spoil = Callable[[Image.Image, Image.Image], Image.Image]  # of a picture and another one
MEASURED = (
    "rotated",
    "mirrored",
    "inverted",
    "not_chest",
    "two_views",
    "lungs_at_edge",
    "letters",
    "border",
    "white",
)
MEASURED += ("black_inside", "brightness", "contrast", "second_lung")


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
    if name != "nih_cxr_7k":
        return sorted((data / name / "images").glob("*.[pj][np]g"))
    with (data / name / "manifest.csv").open(newline="") as file:
        return [data / name / row["image"] for row in csv.DictReader(file) if row["split"] == split]


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
    frame["patient"], frame["section"], frame["image"] = (
        "",
        "training",
        [path.name for path in files],
    )
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
            mixed = mixed.infer_objects()
            table[check, way] = sum(index in find(mixed, [])[check] for index in chosen) / len(
                chosen
            )
    limit = THRESHOLDS["correlation"]
    table["near_duplicate", "clean"] = len(near_duplicates(pictures, limit)) / len(files)
    for way, spoil in DUPLICATES.items():
        both = np.concatenate([pictures, measured(files, spoil)[1]])
        pairs = {(one, other) for one, other, _ in near_duplicates(both, limit)}
        table["near_duplicate", way] = sum(
            (i, i + len(files)) in pairs for i in range(len(files))
        ) / len(files)
    return table


def false_alarms_by_findings(data: Path, split: str) -> pd.DataFrame:
    """Shares of untouched NIH images that each check reports, without and with findings of disease."""
    listed = pd.read_csv(data / "nih_cxr_7k" / "manifest.csv")
    listed = listed[listed["split"] == split].reset_index(drop=True)
    files = [data / "nih_cxr_7k" / name for name in listed["image"]]
    found = find(measured(files)[0], [])
    is_ill = listed["findings"] != "No Finding"
    reported = {name: listed.index.isin(list(rows)) for name, rows in found.items()}
    table = pd.DataFrame(
        {
            f"no finding ({(~is_ill).sum()})": {
                name: each[~is_ill].mean() for name, each in reported.items()
            },
            f"findings ({is_ill.sum()})": {
                name: each[is_ill].mean() for name, each in reported.items()
            },
        }
    )
    return table[table.any(axis=1)]


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


def known_duplicates(data: Path) -> str:
    """Images of NIH 7k that are in the adult normals, too, in another size and by another decoder."""
    with (data / "nih_cxr_7k" / "manifest.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["same_image_in_adult_normals"]]
    files = [data / "nih_cxr_7k" / row["image"] for row in rows]
    files += [
        data / "adult_normals" / "images" / row["same_image_in_adult_normals"] for row in rows
    ]
    pairs = {pair[:2] for pair in near_duplicates(measured(files)[1], THRESHOLDS["correlation"])}
    true = {(index, index + len(rows)) for index in range(len(rows))}
    return f"NIH 7k in adult normals: {len(true & pairs)} of {len(true)} pairs found, {len(pairs - true)} others"


def speed(files: list[Path]) -> str:
    """Images per second of the whole audit on one core, and peak memory."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "images").mkdir()
        for number, path in enumerate(tqdm(files, "linking")):
            Path(folder, "images", f"{number}{path.suffix}").symlink_to(path)
        started = time.process_time(), time.perf_counter()
        summary = audit_images(Path(folder, "images"), output_dir=Path(folder, "audit"))
        used, passed = time.process_time() - started[0], time.perf_counter() - started[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = summary.images / used
    return f"{summary.images} images: {rate:.0f} per second of a core ({passed:.0f} s), {memory:.0f} MB"


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--only", choices=("checks", "findings", "duplicates", "speed"))
    parser.add_argument("--most", type=int, default=2000, help="images of a set")
    parser.add_argument("--sets", nargs="+", default=("nih_cxr_7k", "jsrt", "montgomery"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only in (None, "checks"):
        columns = {}
        for name in ("nih_cxr_7k",) if options.split == "val" else options.sets:
            files = images_of(options.data, name, options.split)[: options.most]
            columns[name] = rates(files)
            if options.split == "val":
                frame = measured(files)[0]
                print(frame[list(MEASURED)].quantile([0.005, 0.01, 0.5, 0.99, 0.995]).T.to_string())
        print(pd.DataFrame(columns).to_string(float_format="{:.3f}".format))
        print(f"not_chest, noise and drawings: {other_pictures():.3f}")
    if options.only in (None, "findings"):
        by_findings = false_alarms_by_findings(options.data, options.split)
        print(by_findings.to_string(float_format="{:.3f}".format))
    if options.only in (None, "duplicates"):
        print(known_duplicates(options.data))
    if options.only in (None, "speed"):
        files = images_of(options.data, "nih_cxr_1k", "") * 100
        for count in (1000, options.most if options.most > 2000 else 10000):
            print(speed(files[:count]))


if __name__ == "__main__":
    main()
