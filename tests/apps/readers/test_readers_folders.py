# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the readers of sets whose labels are in the names of folders and files: ChildCXR, Shenzhen, JSRT."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from monai_afire.apps.phantom import ORGAN_NAMES
from monai_afire.apps.readers import LabelReader, write_datalist
from monai_afire.apps.readers.childcxr import ChildCXRReader
from monai_afire.apps.readers.jsrt import JSRTReader
from monai_afire.apps.readers.shenzhen import ShenzhenReader
from monai_afire.data.datalist.loading import DatalistError


def build(reader: LabelReader, root: Path, **arguments: Any) -> dict[str, Any]:
    report = write_datalist(reader, root, root / "list.json", **arguments)
    return json.loads(report.path.read_text())


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


# ---- ChildCXR

KERMANY = (
    "train/NORMAL/IM-0115-0001.jpeg",
    "train/NORMAL/NORMAL2-IM-0383-0001.jpeg",
    "train/PNEUMONIA/person1_bacteria_1.jpeg",
    "train/PNEUMONIA/person1_bacteria_2.jpeg",
    "val/PNEUMONIA/person1946_bacteria_4874.jpeg",
    "test/NORMAL/IM-0001-0001.jpeg",
    "test/PNEUMONIA/person1_virus_6.jpeg",
)


def test_childcxr(tmp_path: Path) -> None:
    content = build(ChildCXRReader(), touch(tmp_path, *KERMANY), val_fraction=0)
    assert content["labels"] == {"0": "normal", "1": "pneumonia"}
    assert {item["image"]: (item["label"], item["patient_id"]) for item in content["training"]} == {
        KERMANY[0]: (0, "IM-0115"),
        KERMANY[1]: (0, "NORMAL2-IM-0383"),
        KERMANY[2]: (1, "person1_bacteria"),
        KERMANY[3]: (1, "person1_bacteria"),
        KERMANY[4]: (1, "person1946_bacteria"),
    }
    assert {item["image"]: item["abnormal"] for item in content["test"]} == {
        KERMANY[5]: 0,
        KERMANY[6]: 1,
    }
    # the order of the files does not matter
    assert build(ChildCXRReader(), tmp_path, normal_only=True)["numTest"] == 2


def test_childcxr_copies_and_other_files_are_passed_over(tmp_path: Path) -> None:
    root = touch(tmp_path, *(f"chest_xray/{name}" for name in KERMANY))
    touch(
        root,
        *(f"chest_xray/chest_xray/{name}" for name in KERMANY),
        "chest_xray/__MACOSX/train/NORMAL/x.jpeg",
    )
    touch(root, "chest_xray/train/NORMAL/notes.txt", "chest_xray/other/NORMAL/IM-0001-0001.jpeg")
    content = build(ChildCXRReader(), root)
    names = [item["image"] for name in ("training", "validation", "test") for item in content[name]]
    assert sorted(names) == sorted(f"chest_xray/{name}" for name in KERMANY)


def test_childcxr_names_of_the_mendeley_edition(tmp_path: Path) -> None:
    root = touch(
        tmp_path,
        "train/NORMAL/NORMAL-1003233-0001.jpeg",
        "train/PNEUMONIA/BACTERIA-1008087-0001.jpeg",
    )
    touch(root, "train/PNEUMONIA/BACTERIA-1008087-0002.jpeg", "test/NORMAL/mystery.jpeg")
    report = write_datalist(ChildCXRReader(), root, root / "list.json", val_fraction=0)
    assert report.num_patients == {"training": 2, "validation": 0, "test": 1}
    assert "patient unknown, counted as one each: mystery.jpeg" in str(report)


def test_childcxr_patient_in_both_folders(tmp_path: Path) -> None:
    touch(tmp_path, *KERMANY, "test/PNEUMONIA/person1_bacteria_3.jpeg")
    with pytest.raises(DatalistError, match="1 patient in two sections: person1_bacteria"):
        build(ChildCXRReader(), tmp_path)
    report = write_datalist(ChildCXRReader(), tmp_path, tmp_path / "list.json", drop_overlap=True)
    assert "2 images left out" in str(report)


def test_childcxr_folders_missing(tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match="test/NORMAL"):
        build(ChildCXRReader(), touch(tmp_path, KERMANY[0]))


# ---- Shenzhen


def test_shenzhen(tmp_path: Path) -> None:
    names = [f"CXR_png/CHNCXR_{number:04d}_{int(number > 6)}.png" for number in range(1, 13)]
    touch(
        tmp_path,
        *names,
        "mask/CHNCXR_0001_0_mask.png",
        "CXR_png/Thumbs.db",
        "ClinicalReadings/CHNCXR_0001_0.txt",
    )
    report = write_datalist(ShenzhenReader(), tmp_path, tmp_path / "list.json", test_fraction=0.3)
    assert "12 of the 662 published images" in str(report)
    assert report.label_counts == {"normal": 6, "tuberculosis": 6}
    content = json.loads(report.path.read_text())
    items = [item for name in ("training", "validation", "test") for item in content[name]]
    assert {item["image"]: item["label"] for item in items} == {
        name: int(name[-5]) for name in names
    }
    assert {item["patient_id"] for item in items} == {
        f"CHNCXR_{number:04d}" for number in range(1, 13)
    }


def test_shenzhen_refuses_contradictions_and_emptiness(tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match=r"CHNCXR_0001_0\.png"):
        build(ShenzhenReader(), tmp_path)
    touch(tmp_path, "CHNCXR_0001_0.png", "CHNCXR_0001_1.png")
    with pytest.raises(DatalistError, match="CHNCXR_0001 is there twice"):
        build(ShenzhenReader(), tmp_path)


# ---- JSRT

SCR_FOLDERS = (
    "right lung",
    "left lung",
    "heart",
    "right clavicle",
    "left clavicle",
)  # in the order of ORGAN_NAMES
JSRT_NAMES = ("JPCLN001", "JPCLN002", "JPCNN001", "JPCNN002")


def make_jsrt(root: Path, extension: str = ".png") -> Path:
    touch(root, *(f"All247images/{name}{extension}" for name in JSRT_NAMES))
    for name in JSRT_NAMES:
        for number, organ in enumerate(SCR_FOLDERS):
            path = root / f"scratch/fold{2 - int(name[-1]) % 2}/masks/{organ}/{name}.gif"
            path.parent.mkdir(parents=True, exist_ok=True)
            mask = np.zeros((8, 8), np.uint8)
            mask[number, 2] = 255
            Image.fromarray(mask).save(path)
    return root


def write_raw(path: Path, side: int = 2048) -> np.ndarray:
    pixels = np.arange(side * side, dtype=np.uint32).reshape(side, side) % 4096
    path.write_bytes(pixels.astype(">u2").tobytes())
    return pixels


def test_jsrt_with_masks(tmp_path: Path) -> None:
    content = build(JSRTReader(), make_jsrt(tmp_path), val_fraction=0)
    assert content["organ_names"] == list(ORGAN_NAMES)
    assert [item["patient_id"] for item in content["training"]] == ["JPCLN001", "JPCNN001"]
    assert [item["patient_id"] for item in content["test"]] == ["JPCLN002", "JPCNN002"]
    first = content["training"][0]
    assert first["label"] == 1
    assert first["image"] == "All247images/JPCLN001.png"
    assert first["organs"] == [f"scratch/fold1/masks/{organ}/JPCLN001.gif" for organ in SCR_FOLDERS]
    assert content["test"][1]["abnormal"] == 0


def test_jsrt_missing_mask_or_image_counts_as_missing(tmp_path: Path) -> None:
    make_jsrt(tmp_path)
    (tmp_path / "scratch/fold1/masks/heart/JPCLN001.gif").unlink()
    (tmp_path / "All247images/JPCNN002.png").unlink()
    with pytest.raises(DatalistError, match=r"2 of 4 .*: heart mask of JPCLN001, JPCNN002;"):
        build(JSRTReader(), tmp_path)
    content = build(
        JSRTReader(), tmp_path, allow_missing=True, split="random", val_fraction=0, test_fraction=0
    )
    assert [item["patient_id"] for item in content["training"]] == ["JPCLN002", "JPCNN001"]


def test_jsrt_with_masks_of_some_organs(tmp_path: Path) -> None:
    """The clavicles' masks, of which there are fewer conversions, are not needed for the others' sake."""
    make_jsrt(tmp_path)
    for path in (tmp_path / "scratch").rglob("* clavicle"):
        shutil.rmtree(path)
    report = write_datalist(JSRTReader(), tmp_path, tmp_path / "list.json", val_fraction=0)
    content = json.loads(report.path.read_text())
    assert content["organ_names"] == [name for name in ORGAN_NAMES if "clavicle" not in name]
    folder = "scratch/fold1/masks"
    assert content["training"][0]["organs"] == [
        f"{folder}/{organ}/JPCLN001.gif" for organ in SCR_FOLDERS[:3]
    ]
    assert "no masks of clavicle right, clavicle left are there" in str(report)
    (tmp_path / "scratch/fold1/masks/heart/JPCLN001.gif").unlink()
    with pytest.raises(DatalistError, match=r"1 of 4 .*: heart mask of JPCLN001;"):
        build(JSRTReader(), tmp_path)


def test_jsrt_without_masks(tmp_path: Path) -> None:
    report = write_datalist(
        JSRTReader(), touch(tmp_path, "JPCLN001.png", "JPCLN003.png"), tmp_path / "list.json"
    )
    assert "no organ masks" in str(report)
    assert "organs" not in json.loads(report.path.read_text())["training"][0]


def test_jsrt_raw_images_are_converted(tmp_path: Path) -> None:
    make_jsrt(tmp_path, ".IMG")
    raw = {name: write_raw(tmp_path / f"All247images/{name}.IMG") for name in JSRT_NAMES[:1]}
    with pytest.raises(DatalistError, match=r"4 raw \.IMG files.*--png_dir"):
        build(JSRTReader(), tmp_path)
    for name in JSRT_NAMES[1:]:
        (tmp_path / f"All247images/{name}.IMG").unlink()
    reader = JSRTReader(png_dir=str(tmp_path / "png"))
    for _ in range(2):  # what the first run wrote does not confuse the second
        content = build(reader, tmp_path, allow_missing=True, val_fraction=0)
    [item] = content["training"]
    assert item["image"] == "png/images/JPCLN001.png"
    pixels = np.asarray(Image.open(tmp_path / item["image"]))
    assert pixels.dtype == np.uint16
    # dense is dark in the raw file
    np.testing.assert_array_equal(pixels, (4095 - raw["JPCLN001"]) * 65535 // 4095)
    assert item["organs"] == [f"png/masks/{organ}/JPCLN001.png" for organ in ORGAN_NAMES]
    for number, organ in enumerate(item["organs"]):
        mask = np.asarray(Image.open(tmp_path / organ))
        assert np.argwhere(mask == 255).tolist() == [[number, 2]]
        assert (mask == 0).sum() == 63
    # converted images are preferred to raw ones
    assert build(JSRTReader(), tmp_path / "png", val_fraction=0)["training"][0]["organs"] == [
        f"masks/{organ}/JPCLN001.png" for organ in ORGAN_NAMES
    ]


def test_jsrt_bad_raw_file_copies_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match="no images such as"):
        build(JSRTReader(), tmp_path)
    write_raw(tmp_path / "JPCLN001.IMG", side=64)
    with pytest.raises(DatalistError, match=r"JPCLN001\.IMG: holds 4096 values"):
        build(JSRTReader(png_dir=str(tmp_path / "png")), tmp_path)
    touch(tmp_path, "a/JPCLN001.png", "b/JPCLN001.png")
    with pytest.raises(DatalistError, match="copies of one picture"):
        build(JSRTReader(), tmp_path)
