# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Public sets as they are published, with a handful of images: each becomes the right list, or is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from unit.transforms.radiograph_files import GRAY12, write_dicom

from monai_afire.apps.readers import SETS, write_datalist
from monai_afire.data import DatalistError
from monai_afire.data.phantom import ORGAN_NAMES

SECTIONS = ("training", "validation", "test")


def build(name: str, root: Path, **options: Any) -> dict[str, Any]:
    write_datalist(SETS[name], root, root / "list.json", **options)
    return json.loads((root / "list.json").read_text())


def items_of(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Items of all sections by the name of the image without its extension."""
    items = [item for section in SECTIONS for item in content.get(section, ())]
    return {Path(item["image"]).stem: item for item in items}


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def dicom(path: Path, **values: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_dicom(path, GRAY12, **values)


# ---- the sets

NIH_FINDINGS = [
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia"),
    *("Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening"),
    "Hernia",
]
CHEXPERT_FINDINGS = [
    *("No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion"),
    *("Edema", "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion"),
    *("Pleural Other", "Fracture", "Support Devices"),
]
CHESTX_DET_FINDINGS = [
    *("Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "Diffuse Nodule"),
    *("Effusion", "Emphysema", "Fibrosis", "Fracture", "Mass", "Nodule", "Pleural Thickening"),
    "Pneumothorax",
]
NIH_HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
NIH_ROWS = [
    "00000001_000.png,Cardiomegaly,0,1,57,M,PA,2682,2749,0.143,0.143",
    "00000001_001.png,Cardiomegaly|Emphysema,1,1,58,M,AP,2894,2729,0.143,0.143",
    "00000002_000.png,No Finding,0,2,80,M,PA,2500,2048,0.171,0.171",
    "00000003_000.png,Hernia|Infiltration,0,3,74,F,PA,2500,2048,0.168,0.168",
    "00000004_000.png,No Finding,0,4,82,,,2500,2048,0.168,0.168",
]
CHEXPERT_HEADER = ",".join(["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT_FINDINGS])
SQUARE = [[100, 200], [110, 200], [110, 220], [100, 220]]
SCR_FOLDERS = ("right lung", "left lung", "heart", "right clavicle", "left clavicle")


def findings(names: list[str], absent: int | None = 0, **values: int) -> list[int | None]:
    """Labels in the order of the names, in which blanks are written "_"."""
    return [values.get(name.replace(" ", "_"), absent) for name in names]


def nih(**values: int) -> list[int | None]:
    return findings(NIH_FINDINGS, **values)


def seen(**values: int) -> list[int | None]:
    """Observations of CheXpert."""
    return findings(CHEXPERT_FINDINGS, None, **values)


def chexpert_row(path: str, projection: str = "AP", **values: int) -> str:
    cells = ["" if value is None else f"{value}.0" for value in seen(**values)]
    view = "Lateral" if "lateral" in path else "Frontal"
    return ",".join([f"CheXpert-v1.0-small/{path}", "Female", "68", view, projection, *cells])


def make_nih(root: Path) -> None:
    write(root / "Data_Entry_2017_v2020.csv", NIH_HEADER, *NIH_ROWS)
    names = [row.split(",")[0] for row in NIH_ROWS]
    write(root / "train_val_list.txt", *names[:3])
    write(root / "test_list.txt", *names[3:])
    box = "00000003_000.png,Infiltrate,225.08,547.02,86.78,79.19"
    other = "00000003_000.png,Hernia,0,0,1024,10.5"
    write(root / "BBox_List_2017.csv", "Image Index,Finding Label,Bbox [x,y,w,h],,,", box, other)
    for number, name in enumerate(names):
        touch(root, f"images_{number % 2 + 1:03d}/images/{name}")


def make_chexpert(root: Path) -> None:
    rows = [
        chexpert_row(
            "train/patient00001/study1/view1_frontal.jpg", No_Finding=1, Support_Devices=1
        ),
        chexpert_row(
            "train/patient00002/study1/view1_frontal.jpg",
            "PA",
            Edema=-1,
            Cardiomegaly=0,
            Fracture=1,
        ),
        chexpert_row("train/patient00002/study1/view2_lateral.jpg", "", Edema=-1, No_Finding=1),
        chexpert_row("train/patient00003/study2/view1_frontal.jpg", "LL", Support_Devices=1),
    ]
    valid = chexpert_row("valid/patient64541/study1/view1_frontal.jpg", Edema=0, No_Finding=0)
    write(root / "train.csv", CHEXPERT_HEADER, *rows)
    write(root / "valid.csv", CHEXPERT_HEADER, valid)
    touch(root, *(row.split(",")[0].partition("/")[2] for row in [*rows, valid]))


def make_mimic(root: Path, labeler: str = "chexpert") -> None:
    images = [
        ("aaaa-1", "50000001", "10000032", "train", "PA"),
        ("aaaa-2", "50000001", "10000032", "train", "LATERAL"),
        ("bbbb-1", "50000002", "10000032", "train", ""),
        ("cccc-1", "50000003", "11000764", "validate", "AP"),
        ("dddd-1", "50000004", "19001217", "test", "PA"),
    ]
    studies = {
        "50000001": {"No Finding": "1.0"},
        "50000002": {"Edema": "1.0", "Fracture": "-1.0"},
        "50000003": {"No Finding": "1.0", "Support Devices": "1.0"},
    }
    columns = sorted(CHEXPERT_FINDINGS)
    rows = [
        f"1,{s},{','.join(own.get(name, '') for name in columns)}" for s, own in studies.items()
    ]
    start = str(root / "mimic-cxr-2.0.0")
    write(Path(f"{start}-{labeler}.csv.gz"), f"subject_id,study_id,{','.join(columns)}", *rows)
    rows = [",".join(image[:4]) for image in images]
    write(Path(f"{start}-split.csv.gz"), "dicom_id,study_id,subject_id,split", *rows)
    rows = [f'{image[0]},"CHEST (PA, LAT)",{image[4]}' for image in images]
    write(Path(f"{start}-metadata.csv.gz"), "dicom_id,Procedure,ViewPosition", *rows)
    touch(root, *(f"files/p{p[:2]}/p{p}/s{s}/{name}.jpg" for name, s, p, *_ in images))


def make_childcxr(root: Path) -> None:
    names = (
        "train/NORMAL/IM-0115-0001.jpeg",
        "train/PNEUMONIA/person1_bacteria_2.jpeg",
        "val/PNEUMONIA/person1946_bacteria_4874.jpeg",
        "test/NORMAL/NORMAL2-IM-0383-0001.jpeg",
        "test/PNEUMONIA/BACTERIA-1008087-0001.jpeg",
        "test/PNEUMONIA/mystery.jpeg",
    )
    touch(root, *(f"chest_xray/{name}" for name in names))
    touch(root, *(f"chest_xray/chest_xray/{name}" for name in names))  # the archive has copies
    touch(root, "chest_xray/train/NORMAL/notes.txt", "chest_xray/other/NORMAL/IM-0001-0001.jpeg")


def make_siim(root: Path) -> None:
    codes = [" -1", "102410 20 1004 20", "0 5 1019 5"]
    rows = [f"1.2.3.{number},{code}" for number, code in enumerate(codes, start=1)]
    write(root / "train-rle.csv", "ImageId, EncodedPixels", *rows, "1.2.3.3,1048570 6")
    touch(root, *(f"images/1.2.3.{number}.png" for number in (1, 2, 3)))


def make_rsna(root: Path) -> None:
    boxes = ["aa-2,264.0,152.0,213.0,379.0,1", "aa-2,562.0,152.0,256.0,453.0,1"]
    header = "patientId,x,y,width,height,Target"
    write(root / "stage_2_train_labels.csv", header, "aa-1,,,,,0", *boxes, "aa-3,,,,,0")
    classes = ["aa-1,No Lung Opacity / Not Normal", "aa-2,Lung Opacity", "aa-3,Normal"]
    write(root / "stage_2_detailed_class_info.csv", "patientId,class", *classes)
    patients = {"aa-1": "00000007", "aa-2": "00000009", "aa-3": "00000007"}
    mapping = [
        {"img_id": f"{patient}_000.png", "subset_img_id": name, "orig_labels": []}
        for name, patient in patients.items()
    ]
    (root / "pneumonia-challenge-dataset-mappings_2018.json").write_text(json.dumps(mapping))
    for name in patients:
        dicom(root / f"stage_2_train_images/{name}.dcm", ViewPosition="AP" * (name != "aa-1"))


def make_shenzhen(root: Path) -> None:
    touch(root, "CXR_png/CHNCXR_0001_0.png", "CXR_png/chncxr_0002_1.png")
    touch(root, "mask/CHNCXR_0001_0_mask.png", "ClinicalReadings/CHNCXR_0001_0.txt")


def make_jsrt(root: Path, extension: str = ".png") -> None:
    for name in ("JPCLN001", "JPCLN002", "JPCNN001"):
        touch(root, f"All247images/{name}{extension}")
        for number, organ in enumerate(SCR_FOLDERS):
            path = root / f"scratch/masks/{organ}/{name}.gif"
            path.parent.mkdir(parents=True, exist_ok=True)
            mask = np.zeros((8, 8), np.uint8)
            mask[number, 2] = 255
            Image.fromarray(mask).save(path)


def make_chestx_det(root: Path) -> None:
    mark = {"file_name": "1.png", "syms": ["Mass"], "boxes": [[100, 200, 110, 220]]}
    nothing = {"file_name": "2.png", "syms": [], "boxes": [], "polygons": []}
    (root / "ChestX_Det_train.json").write_text(json.dumps([{**mark, "polygons": [SQUARE]}]))
    (root / "ChestX_Det_test.json").write_text(json.dumps([nothing]))
    touch(root, "train/1.png", "test/2.png")


def make_fire(root: Path) -> None:
    points = {"A01": "10 20 11.5 22\n100 200 101 202.25", "P37": "1.0e2  7 3 4 \r\n"}
    for pair, text in points.items():
        write(root / f"Ground Truth/control_points_{pair}_1_2.txt", text)
        touch(root, f"Images/{pair}_1.jpg", f"Images/{pair}_2.jpg")
    touch(root, "Masks/mask.png")


MAKE: dict[str, Callable[[Path], None]] = {
    "nih": make_nih,
    "chexpert": make_chexpert,
    "mimic": make_mimic,
    "childcxr": make_childcxr,
    "siim": make_siim,
    "rsna": make_rsna,
    "shenzhen": make_shenzhen,
    "jsrt": make_jsrt,
    "chestx_det": make_chestx_det,
    "fire": make_fire,
}
# image without extension, section, patient, label, abnormal, view
ITEMS: dict[str, list[tuple[str, str, str, Any, int, str]]] = {
    "nih": [
        ("00000001_000", "training", "00000001", nih(Cardiomegaly=1), 1, "PA"),
        ("00000001_001", "training", "00000001", nih(Cardiomegaly=1, Emphysema=1), 1, "AP"),
        ("00000002_000", "training", "00000002", nih(), 0, "PA"),
        ("00000003_000", "test", "00000003", nih(Hernia=1, Infiltration=1), 1, "PA"),
        ("00000004_000", "test", "00000004", nih(), 0, "unknown"),
    ],
    "mimic": [
        ("aaaa-1", "training", "10000032", seen(No_Finding=1), 0, "PA"),
        ("aaaa-2", "training", "10000032", seen(No_Finding=1), 0, "lateral"),
        ("bbbb-1", "training", "10000032", seen(Edema=1, Fracture=-1), 1, "unknown"),
        ("cccc-1", "validation", "11000764", seen(No_Finding=1, Support_Devices=1), 0, "AP"),
        ("dddd-1", "test", "19001217", seen(), -1, "PA"),
    ],
    "childcxr": [
        ("IM-0115-0001", "training", "IM-0115", 0, 0, "frontal"),
        ("person1_bacteria_2", "training", "person1_bacteria", 1, 1, "frontal"),
        ("person1946_bacteria_4874", "training", "person1946_bacteria", 1, 1, "frontal"),
        ("NORMAL2-IM-0383-0001", "test", "NORMAL2-IM-0383", 0, 0, "frontal"),
        ("BACTERIA-1008087-0001", "test", "BACTERIA-1008087", 1, 1, "frontal"),
        ("mystery", "test", "mystery", 1, 1, "frontal"),
    ],
    "siim": [
        ("1.2.3.1", "training", "1.2.3.1", 0, -1, "frontal"),
        ("1.2.3.2", "training", "1.2.3.2", 1, 1, "frontal"),
        ("1.2.3.3", "training", "1.2.3.3", 1, 1, "frontal"),
    ],
    "rsna": [
        ("aa-1", "training", "00000007", 0, 1, "frontal"),
        ("aa-2", "training", "00000009", 1, 1, "AP"),
        ("aa-3", "training", "00000007", 0, 0, "AP"),
    ],
    "shenzhen": [
        ("CHNCXR_0001_0", "training", "CHNCXR_0001", 0, 0, "frontal"),
        ("chncxr_0002_1", "training", "CHNCXR_0002", 1, 1, "frontal"),
    ],
    "jsrt": [
        ("JPCLN001", "training", "JPCLN001", 1, 1, "PA"),
        ("JPCNN001", "training", "JPCNN001", 0, 0, "PA"),
        ("JPCLN002", "test", "JPCLN002", 1, 1, "PA"),
    ],
    "chestx_det": [
        ("1", "training", "1", findings(CHESTX_DET_FINDINGS, Mass=1), 1, "frontal"),
        ("2", "test", "2", findings(CHESTX_DET_FINDINGS), 0, "frontal"),
    ],
    "fire": [
        ("A01_1", "test", "A01", 2, -1, "fundus"),
        ("P37_1", "test", "P37", 1, -1, "fundus"),
    ],
}


@pytest.mark.parametrize("name", ITEMS)
def test_each_set_becomes_the_right_list(tmp_path: Path, name: str) -> None:
    MAKE[name](tmp_path)
    content = build(name, tmp_path, val_fraction=0, test_fraction=0)
    keys = ("patient_id", "label", "abnormal", "view")
    found = [
        (Path(item["image"]).stem, section, *(item[key] for key in keys))
        for section in SECTIONS
        for item in content.get(section, ())
    ]
    assert found == ITEMS[name]
    assert all((tmp_path / item["image"]).is_file() for item in items_of(content).values())
    assert ("finding_names" in content) == isinstance(found[0][3], list)


def test_chexpert_becomes_the_right_list(tmp_path: Path) -> None:
    make_chexpert(tmp_path)
    content = build("chexpert", tmp_path, val_fraction=0)
    assert content["finding_names"] == CHEXPERT_FINDINGS
    frontal = content["training"][1]
    assert frontal == {
        "image": "train/patient00002/study1/view1_frontal.jpg",
        "label": seen(Edema=-1, Cardiomegaly=0, Fracture=1),
        "abnormal": 1,
        "patient_id": "patient00002",
        "view": "PA",
        "sex": "Female",
        "age": "68",
    }
    assert [item["view"] for item in content["training"]] == ["AP", "PA", "lateral", "frontal"]
    # support devices are no disease, "No Finding" beside an uncertain one says nothing
    assert [item["abnormal"] for item in content["training"]] == [0, 1, -1, -1]
    assert [item["patient_id"] for item in content["test"]] == ["patient64541"]
    assert np.isnan(np.asarray(frontal["label"], dtype="float32")).sum() == 11


def rename(root: Path, file: str, column: str) -> None:
    path = root / file
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = text.replace(column.encode(), b"other")
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize(
    ("name", "file", "column"),
    [
        ("nih", "Data_Entry_2017_v2020.csv", "Emphysema"),
        ("chexpert", "train.csv", "Edema"),
        ("mimic", "mimic-cxr-2.0.0-split.csv.gz", "validate"),
        ("siim", "train-rle.csv", "EncodedPixels"),
        ("rsna", "stage_2_detailed_class_info.csv", ",Normal"),
        ("chestx_det", "ChestX_Det_train.json", "Mass"),
    ],
)
def test_a_file_without_a_column_or_with_an_unknown_word_is_refused(
    tmp_path: Path, name: str, file: str, column: str
) -> None:
    MAKE[name](tmp_path)
    rename(tmp_path, file, column)
    with pytest.raises(ValueError, match=Path(file).name):
        build(name, tmp_path)
    assert not (tmp_path / "list.json").exists()


# ---- what is particular to a set


def test_nih_boxes_and_groups(tmp_path: Path) -> None:
    make_nih(tmp_path)
    content = build("nih", tmp_path)
    assert content["box_image_size"] == [1024, 1024]
    marked, other = content["test"]
    assert marked["boxes"] == [[225.08, 547.02, 86.78, 79.19], [0, 0, 1024, 10.5]]
    assert marked["box_findings"] == ["Infiltration", "Hernia"]
    assert (marked["sex"], marked["age"]) == ("F", "74")
    assert not {"boxes", "sex"} & set(other)


def test_nih_of_2017_without_lists_and_with_converted_images(tmp_path: Path) -> None:
    """The table of 2017 has a comma at the end of each line."""
    make_nih(tmp_path)
    for name in ("Data_Entry_2017_v2020.csv", "test_list.txt"):
        (tmp_path / name).unlink()
    write(tmp_path / "Data_Entry_2017.csv", f"{NIH_HEADER},", *(f"{row}," for row in NIH_ROWS))
    for path in tmp_path.glob("images_*/images/*.png"):
        path.rename(path.with_suffix(".jpg"))
    with pytest.raises(DatalistError, match="--split random"):
        build("nih", tmp_path)
    content = build("nih", tmp_path, split="random")
    assert items_of(content)["00000003_000"]["image"].endswith("00000003_000.jpg")


def test_nih_patient_in_both_lists_is_refused_or_dropped(tmp_path: Path) -> None:
    make_nih(tmp_path)
    write(tmp_path / "train_val_list.txt", "00000001_000.png", "00000002_000.png")
    listed = ["00000001_001.png", "00000003_000.png"]
    write(tmp_path / "test_list.txt", *listed)
    with pytest.raises(DatalistError, match="00000004_000"):  # in neither list
        build("nih", tmp_path)
    write(tmp_path / "test_list.txt", *listed, "00000004_000.png")
    with pytest.raises(DatalistError, match="00000001"):
        build("nih", tmp_path)
    content = build("nih", tmp_path, drop_overlap=True, val_fraction=0)
    assert [item["patient_id"] for item in content["training"]] == ["00000002"]
    assert content["numTest"] == 3


def test_chexpert_with_its_test_set_from_the_folder_around_it(tmp_path: Path) -> None:
    make_chexpert(tmp_path / "CheXpert-v1.0-small")
    path = "CheXpert-v1.0-small/test/patient64741/study1/view1_frontal.jpg"
    table = tmp_path / "CheXpert-v1.0-small" / "test_labels.csv"
    write(table, ",".join(["Path", *CHEXPERT_FINDINGS]), f"{path}{',0' * 14}")
    touch(tmp_path, path)
    content = build("chexpert", tmp_path)
    assert [item["patient_id"] for item in content["validation"]] == ["patient64541"]
    [item] = content["test"]
    assert (item["image"], item["label"]) == (path, [0] * 14)


def test_mimic_options(tmp_path: Path) -> None:
    make_mimic(tmp_path, "negbio")
    with pytest.raises(DatalistError, match=r"chexpert\.csv"):
        build("mimic", tmp_path)
    content = build("mimic", tmp_path, labeler="negbio", findings=["Edema", "No Finding"])
    assert content["settings"]["labeler"] == "negbio"
    assert [item["label"] for item in content["training"]] == [[None, 1], [None, 1], [1, None]]
    content = build("mimic", tmp_path, labeler="negbio", normal_only=True, frontal_only=True)
    assert list(items_of(content)) == ["aaaa-1", "cccc-1"]


def test_childcxr_patient_in_both_is_refused_or_dropped(tmp_path: Path) -> None:
    make_childcxr(tmp_path)
    touch(tmp_path, "chest_xray/test/PNEUMONIA/person1_bacteria_3.jpeg")
    with pytest.raises(DatalistError, match="person1_bacteria"):
        build("childcxr", tmp_path)
    assert build("childcxr", tmp_path, drop_overlap=True, val_fraction=0)["numTest"] == 4


def test_siim_masks(tmp_path: Path) -> None:
    make_siim(tmp_path)
    options = {"mask_dir": tmp_path / "masks", "val_fraction": 0, "test_fraction": 0}
    items = items_of(build("siim", tmp_path, **options))
    expected = {name: np.zeros((1024, 1024), np.uint8) for name in items}
    expected["1.2.3.2"][10:30, 100:102] = 255
    expected["1.2.3.3"][:5, :2] = expected["1.2.3.3"][1018:, 1023] = 255  # both rows of the image
    for name, item in items.items():
        np.testing.assert_array_equal(
            np.asarray(Image.open(tmp_path / item["mask"])), expected[name]
        )
    # masks in the folder of the images do not confuse a second run
    assert items_of(build("siim", tmp_path, **options)) == items


def test_siim_patients_come_from_dicom_headers(tmp_path: Path) -> None:
    make_siim(tmp_path)
    shutil.rmtree(tmp_path / "images")
    for number in (1, 2, 3):
        path = tmp_path / f"dicom/study{number}/series/1.2.3.{number}.dcm"
        dicom(path, PatientID=f"patient{number % 2}", ViewPosition="PA" * (number > 1))
    items = items_of(build("siim", tmp_path, val_fraction=0, test_fraction=0))
    assert [item["patient_id"] for item in items.values()] == ["patient1", "patient0", "patient1"]
    assert [item["view"] for item in items.values()] == ["frontal", "PA", "PA"]


def test_rsna_boxes_and_what_is_not_known_without_the_other_files(tmp_path: Path) -> None:
    make_rsna(tmp_path)
    content = build("rsna", tmp_path, val_fraction=0, test_fraction=0)
    boxes = [item["boxes"] for item in content["training"]]
    assert boxes == [[], [[264, 152, 213, 379], [562, 152, 256, 453]], []]
    (tmp_path / "stage_2_detailed_class_info.csv").unlink()
    (tmp_path / "pneumonia-challenge-dataset-mappings_2018.json").unlink()
    items = items_of(build("rsna", tmp_path))
    assert {name: item["abnormal"] for name, item in items.items()} == {
        "aa-1": -1,
        "aa-2": 1,
        "aa-3": -1,
    }
    assert {item["patient_id"] for item in items.values()} == {"aa-1", "aa-2", "aa-3"}


def test_jsrt_masks(tmp_path: Path) -> None:
    make_jsrt(tmp_path)
    content = build("jsrt", tmp_path, val_fraction=0)
    assert content["organ_names"] == list(ORGAN_NAMES)
    masks = [f"scratch/masks/{organ}/JPCLN001.gif" for organ in SCR_FOLDERS]
    assert content["training"][0]["organs"] == masks
    (tmp_path / "scratch/masks/heart/JPCLN001.gif").unlink()
    with pytest.raises(DatalistError, match="heart mask of JPCLN001"):
        build("jsrt", tmp_path)
    shutil.rmtree(tmp_path / "scratch")
    assert "organs" not in build("jsrt", tmp_path, val_fraction=0)["training"][0]


def test_jsrt_raw_images_are_converted(tmp_path: Path) -> None:
    make_jsrt(tmp_path, ".IMG")
    with pytest.raises(DatalistError, match="--png_dir"):
        build("jsrt", tmp_path)
    raw = np.arange(2048 * 2048, dtype=np.uint32).reshape(2048, 2048) % 4096
    (tmp_path / "All247images/JPCLN001.IMG").write_bytes(raw.astype(">u2").tobytes())
    options = {"png_dir": str(tmp_path / "png"), "val_fraction": 0}
    with pytest.raises(DatalistError, match=r"JPCLN002\.IMG"):  # an empty file
        build("jsrt", tmp_path, **options)
    for name in ("JPCLN002", "JPCNN001"):
        (tmp_path / f"All247images/{name}.IMG").unlink()
    for _ in range(2):  # what the first run wrote does not confuse the second
        content = build("jsrt", tmp_path, allow_missing=True, **options)
    [item] = content["training"]
    pixels = np.asarray(Image.open(tmp_path / item["image"]))
    np.testing.assert_array_equal(pixels, (4095 - raw) * 65535 // 4095)  # dense was dark
    assert item["organs"] == [f"png/masks/{organ}/JPCLN001.png" for organ in ORGAN_NAMES]
    for number, organ in enumerate(item["organs"]):
        marked = np.argwhere(np.asarray(Image.open(tmp_path / organ)) == 255)
        assert marked.tolist() == [[number, 2]]


def test_chestx_det_boxes_and_masks(tmp_path: Path) -> None:
    make_chestx_det(tmp_path)
    content = build("chestx_det", tmp_path, val_fraction=0, mask_dir=tmp_path / "masks")
    [marked], [empty] = content["training"], content["test"]
    assert marked["boxes"] == [[100, 200, 10, 20]]
    assert marked["box_findings"] == ["Mass"]
    assert marked["polygons"] == [SQUARE]
    mask = np.zeros((1024, 1024), np.uint8)
    mask[200:221, 100:111] = 255
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / marked["mask"])), mask)
    assert not np.asarray(Image.open(tmp_path / empty["mask"])).any()


def test_fire_pairs_have_rows_before_columns(tmp_path: Path) -> None:
    make_fire(tmp_path)
    first, second = build("fire", tmp_path)["test"]
    assert (first["image"], first["image_2"]) == ("Images/A01_1.jpg", "Images/A01_2.jpg")
    assert first["landmarks"] == [[20, 10], [200, 100]]
    assert first["landmarks_2"] == [[22, 11.5], [202.25, 101]]
    assert (second["landmarks"], second["landmarks_2"]) == ([[7, 100]], [[4, 3]])
    assert [first["group"], second["group"]] == ["changed anatomy", "small overlap"]
    assert list(items_of(build("fire", tmp_path, exclude=["P37"]))) == ["A01_1"]


@pytest.mark.slow
def test_nih_at_full_scale(shared_data: Path, tmp_path: Path) -> None:
    labels = shared_data / "labels"
    with gzip.open(labels / "BBox_List_2017.csv.gz", "rt") as stream:
        boxed = {line.split(",")[0] for line in stream.readlines()[1:]}
    touch(tmp_path, *boxed)
    rows = SETS["nih"].read(tmp_path, labels, True).rows
    assert rows["patient_id"].nunique() == 30_805
    assert rows["section"].value_counts().to_dict() == {"training": 86_524, "test": 25_596}
    assert (rows["abnormal"] == 0).sum() == 60_361
    published = [
        *(11559, 2776, 13317, 19894, 5782, 6331, 1431),
        *(5302, 4667, 2303, 2516, 1686, 3385, 227),
    ]
    assert np.sum(rows["label"].tolist(), axis=0).tolist() == published
    boxes = Counter(rows["box_findings"].dropna().sum())
    assert (boxes.total(), boxes["Infiltration"]) == (984, 123)
    content = build("nih", tmp_path, labels=labels, allow_missing=True)
    assert content["numTest"] == 880 == len(boxed)
