# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The audit of a folder and of a datalist: what it finds, what it keeps, and what it never shows."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from html_pages import Elements
from PIL import Image
from unit.transforms.radiograph_files import write_dicom

from monai_afire.apps.audit import CHECKS, audit_images
from monai_afire.apps.audit.__main__ import main
from monai_afire.apps.audit.audit_checks import EXCLUDED
from monai_afire.data import load_radiograph_datalist
from monai_afire.data.phantom import draw_chest_phantom

SECRET = "Hidden^Name"


def drawn(seed: int, side: int = 128) -> np.ndarray:
    """A drawn radiograph, uint8."""
    return np.rint(255 * draw_chest_phantom(seed, side).image[0]).astype(np.uint8)


def save(pixels: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def save_dicom(pixels: np.ndarray, path: Path, **elements: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_dicom(path, pixels, **elements)


def findings(folder: Path) -> dict[str, set[str]]:
    """Name of an image -> its findings."""
    with (folder / "audit.csv").open(newline="", encoding="utf-8") as file:
        return {row["image"]: set(row["findings"].split()) for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one image of each fault."""
    root = tmp_path_factory.mktemp("images")
    for seed in range(3):
        save(drawn(seed), root / "train" / f"patient{seed:05d}_a.png")
    shutil.copy(root / "train" / "patient00000_a.png", root / "train" / "patient00007_copy.png")
    Image.fromarray(drawn(1)).resize((200, 200)).save(root / "test.jpg", quality=60)
    (root / "test").mkdir()
    (root / "test.jpg").rename(root / "test" / "patient00001_b.jpg")
    save(np.full((128, 128), 80, np.uint8), root / "train" / "blank.png")
    (root / "train" / "broken.png").write_bytes((root / "train" / "blank.png").read_bytes()[:60])
    save(np.clip(drawn(4).astype(int) * 4, 0, 255).astype(np.uint8), root / "train" / "bright.png")
    save(np.pad(drawn(5), 30), root / "train" / "frame.png")
    save_dicom(
        drawn(6),
        root / "train" / "lateral.dcm",
        ViewPosition="LL",
        PatientName=SECRET,
        PatientID="HIDDEN",
    )
    return root


@pytest.fixture(scope="module")
def audited(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("audit")
    assert main([str(folder), "--output_dir", str(output)]) == 0
    return output


@pytest.mark.parametrize(
    ("image", "check"),
    [
        ("train/patient00007_copy.png", "exact_duplicate"),
        ("train/patient00001_a.png", "near_duplicate"),
        ("train/patient00001_a.png", "patient_in_splits"),
        ("train/blank.png", "blank"),
        ("train/broken.png", "unreadable"),
        ("train/bright.png", "saturated"),
        ("train/frame.png", "borders"),
        ("train/frame.png", "no_patient"),
        ("train/lateral.dcm", "other_view"),
        ("train/lateral.dcm", "identifying_header"),
    ],
)
def test_each_fault_is_found_there_and_nowhere_it_is_not(
    audited: Path, image: str, check: str
) -> None:
    found = findings(audited)
    assert check in found[image]
    assert check not in found["train/patient00002_a.png"]


def test_the_test_section_keeps_what_training_has_too(audited: Path) -> None:
    kept = findings(audited)["test/patient00001_b.jpg"]
    assert not {"near_duplicate", "patient_in_splits"} & kept
    with (audited / "audit.csv").open(newline="") as file:
        details = {row["image"]: row["details"] for row in csv.DictReader(file)}
    assert "test/patient00001_b.jpg, in another split" in details["train/patient00001_a.png"]
    assert "of another patient" in details["train/patient00007_copy.png"]


def test_of_copies_the_one_to_test_on_is_kept(tmp_path: Path) -> None:
    save(drawn(0), tmp_path / "a.png")
    shutil.copy(tmp_path / "a.png", tmp_path / "b.png")
    sections = {"training": [{"image": "a.png"}], "test": [{"image": "b.png"}]}
    (tmp_path / "list.json").write_text(json.dumps(sections))
    audit_images(tmp_path, tmp_path / "list.json", tmp_path / "out")
    found = findings(tmp_path / "out")
    assert "exact_duplicate" in found["a.png"]
    assert "exact_duplicate" not in found["b.png"]


def test_training_takes_the_cleaned_datalist(folder: Path, audited: Path) -> None:
    items = load_radiograph_datalist(
        folder, audited / "datalist.json", "training", hold_out=True, seed=1
    )
    names = {Path(item["image"]).name for item in items}
    assert "patient00002_a.png" in names
    left_out = {"blank.png", "broken.png", "lateral.dcm", "patient00007_copy.png"}
    assert not names & {*left_out, "patient00001_a.png"}


def test_no_value_of_a_header_is_written(audited: Path) -> None:
    for path in audited.iterdir():
        text = path.read_text(encoding="utf-8")
        assert SECRET not in text, path
        assert "HIDDEN" not in text, path
    assert json.loads((audited / "audit.json").read_text())["identifying_fields"] == {
        "PatientName": 1
    }


def test_a_datalist_keeps_its_keys_and_loses_what_is_excluded(tmp_path: Path) -> None:
    for seed in range(2):
        save(drawn(seed), tmp_path / f"{seed}.png")
    items = [
        {"image": f"{seed}.png", "patient_id": patient, "label": [seed]}
        for seed, patient in ((0, "a"), (1, " "))
    ]
    missing = {"image": "gone.png", "patient_id": "c"}
    (tmp_path / "list.json").write_text(
        json.dumps({"class_names": ["x"], "training": [*items, missing]})
    )
    audit_images(
        tmp_path, tmp_path / "list.json", tmp_path / "out", exclude=["unreadable", "no_patient"]
    )
    cleaned = json.loads((tmp_path / "out" / "datalist.json").read_text())
    [kept] = cleaned["training"]
    assert kept.pop("view") in ("AP", "PA")
    assert kept.pop("view_source") == "from pixels"
    assert cleaned == {
        "class_names": ["x"],
        "training": [{"image": "0.png", "patient_id": "a", "label": [0]}],
    }
    assert "no_patient" in findings(tmp_path / "out")["1.png"]


def test_what_may_be_disease_is_kept_for_a_decision(tmp_path: Path) -> None:
    """A lung that is opaque moves the heart for the eye of a network; two opaque lungs are hardly a chest."""
    assert not {"mirrored", "rotated", "inverted", "not_chest", "partial_lungs"} & set(EXCLUDED)
    pictures = {
        "mirrored": drawn(0)[:, ::-1],
        "turned": np.rot90(drawn(1)),
        "inverted": 255 - drawn(2),
        "plain": drawn(3),
    }
    for name, pixels in pictures.items():
        save(pixels, tmp_path / f"{name}.png")
    Image.fromarray(drawn(3)).resize((200, 200)).save(tmp_path / "sick copy.png")
    pictures["sick copy"] = drawn(3)
    items = [{"image": f"{name}.png", "label": [int(name != "plain"), 0]} for name in pictures]
    (tmp_path / "list.json").write_text(json.dumps({"training": items}))
    summary = audit_images(tmp_path, tmp_path / "list.json", tmp_path / "out")
    found = findings(tmp_path / "out")
    assert {"mirrored", "rotated", "inverted"} & set().union(*found.values())
    assert (summary["images"], summary["kept"], summary["abnormal"]) == (5, 4, 4)
    assert "near_duplicate" in found["plain.png"]  # and not the copy, which may show disease
    sick = [own for name, own in found.items() if name != "plain.png"]
    counts = {check.name: sum(check.name in own for own in sick) for check in CHECKS}
    assert summary["abnormal_findings"] == counts


def test_outliers_are_sought_by_scanner(tmp_path: Path) -> None:
    for seed in range(20):
        pixels = drawn(seed, 96)
        for scanner, levels in (("Acme", pixels), ("Bright", 225 + pixels // 10)):
            save_dicom(levels, tmp_path / scanner / f"{seed}.dcm", Manufacturer=scanner)
    save_dicom(225 + drawn(50, 96) // 10, tmp_path / "Acme" / "bright.dcm", Manufacturer="Acme")
    save_dicom(drawn(51, 40), tmp_path / "Acme" / "small.dcm", Manufacturer="Acme")
    summary = audit_images(tmp_path, output_dir=tmp_path / "out")
    found = findings(tmp_path / "out")
    assert summary["scanners"] == {"Acme": 22, "Bright": 20}
    assert {name for name, own in found.items() if "exposure" in own} == {"Acme/bright.dcm"}
    assert {name for name, own in found.items() if "resolution" in own} <= {"Acme/small.dcm"}


def test_a_gate_names_which_images_and_why(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"--output_dir {tmp_path} --fail_on blank unreadable text".split()
    assert main([str(folder), *options]) == 3
    said = capsys.readouterr().err
    assert "train/blank.png" in said
    assert "train/broken.png" in said
    written = json.loads((tmp_path / "audit.json").read_text())
    assert set(written["failed"]) == {"blank", "unreadable", "text"}
    assert list(written["failed"]["blank"]) == ["train/blank.png"]
    assert written["rates"]["mirrored"]["sensitivity"] == 0.983


# ---- page

HOSTILE = ('<script>alert("1")<', "\" onerror='alert(2)", "a&b #1%", "Ünïcode", "=1+1")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("page")
    for seed, name in enumerate(HOSTILE):
        save(drawn(seed, 64), root / f"{name}.png")
    (root / "bad<b>.png").write_text("text")
    audit_images(root, output_dir=root / "out", shown=3)
    assert "\n'=1+1.png," in (root / "out/audit.csv").read_text(encoding="utf-8")
    return (root / "out/audit.html").read_text(encoding="utf-8")


def test_the_page_is_one_file_and_every_text_of_others_is_escaped(page: str) -> None:
    elements = Elements(page)
    assert not {"script", "b", "link"} & {tag for tag, _ in elements.found}
    assert not any(name.startswith("on") for _, each in elements.found for name in each)
    assert not re.search(r"https?://|@import", page)
    sources = [each["src"] or "" for each in elements.named("img")]
    assert len(sources) >= 3
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
