# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Public sets, of chest radiographs above all: a function for each, which reads its label files as they are published.

The docstring of a function is the help of its command: where the files come from, and how they must lie. A new set is
a function and an entry in :data:`PUBLIC_SETS`.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from monai_afire.apps.readers.label_files import (
    UNCERTAIN,
    LabeledImages,
    LabelSet,
    cell_values,
    existing_files,
    files_by_name,
    find_file,
    finding_labels,
    progress,
    read_table,
    read_text,
    refuse_lines,
    require_file,
    stem_of,
)
from monai_afire.data.datalist.datalist_checks import DatalistError, parse_json
from monai_afire.data.datalist.patients import patient_of
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.data.phantom.anatomy import ORGAN_NAMES
from monai_afire.transforms.radiograph_files import SUPPORTED_EXTENSIONS
from monai_afire.transforms.radiograph_header import header_of
from monai_afire.utils.files import save_png
from monai_afire.utils.text import counted, first_few

_SIDE = 1024  # of the images of NIH, RSNA, SIIM-ACR and ChestX-Det, in pixels
_BOXES = {"box_mode": "xywh", "box_image_size": [_SIDE, _SIDE]}
_AGAIN = "download the file again"


def _published_table(path: Path, *columns: str) -> pd.DataFrame:
    """A table, or a JSON file with an array of objects, that must have some columns."""
    if ".json" in path.suffixes:
        table = pd.DataFrame(parse_json(read_text(path), path, _AGAIN))
    else:
        table = read_table(path, columns)
    if absent := [name for name in columns if name not in table]:
        text = f"is not as published, without {', '.join(absent)}"
        raise DatalistError(f"{path}: {text}; {_AGAIN}.")
    return table


def _classes(*names: str) -> dict[str, Any]:
    """Header of a set whose labels are numbers of classes."""
    return {"labels": {str(number): name for number, name in enumerate(names)}}


def _dicom_headers(files: Sequence[str | None]) -> pd.DataFrame:
    """Patient and view of DICOM files, "" where the header does not give them."""
    headers = []
    for file in progress(files, "reading DICOM headers"):
        header = header_of(file or "", ["PatientID"])
        patient, view = (
            str(header.get(tag) or "").strip() for tag in ("PatientID", "ViewPosition")
        )
        headers.append((patient, view.upper()))
    return pd.DataFrame(headers, columns=["patient", "view"])


# ---- NIH ChestX-ray14

NIH_FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia"),
    *("Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening"),
    "Hernia",
)


def read_nih(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Labels of 14 findings from reports; "label" is a list of 0 and 1, "abnormal" is 0 for "No Finding".

    From https://nihcc.app.box.com/v/ChestXray-NIHCC ::

        ROOT/Data_Entry_2017_v2020.csv (or Data_Entry_2017.csv)
        ROOT/train_val_list.txt, test_list.txt    the official split
        ROOT/BBox_List_2017.csv                   if there: boxes
        ROOT/images_001/images/*.png ...          the images, in any subfolders

    The label files may be compressed with gzip, or lie elsewhere (--labels).
    """
    path = require_file(labels, "Data_Entry_2017_v2020*.csv", "Data_Entry_2017*.csv")
    needed = ("Image Index", "Finding Labels", "Patient ID", "View Position")
    table = _published_table(path, *needed)
    names, found = table["Image Index"], table["Finding Labels"]
    known = dict.fromkeys((*NIH_FINDINGS, "No Finding"))
    cell_values(path, found.str.split("|").explode(), known)
    findings = found.str.get_dummies("|").reindex(columns=NIH_FINDINGS, fill_value=0)
    rows = {
        "name": names,
        "file": files_by_name(root, names),
        "label": findings.to_numpy().tolist(),
        "abnormal": findings.any(axis=1).astype(int),
        "patient_id": table["Patient ID"].str.zfill(8),
        "view": table["View Position"].replace("", "unknown"),
        "sex": table.get("Patient Gender", ""),
        "age": table.get("Patient Age", ""),
    }
    if official:
        rows["section"] = _nih_sections(labels, path, names)
    frame = pd.DataFrame(rows)
    header = {"finding_names": list(NIH_FINDINGS)}
    boxes = find_file(labels, "BBox_List_2017*.csv")
    if boxes is None:
        return LabeledImages(frame, header, ["no boxes: BBox_List_2017.csv is not there"])
    return LabeledImages(frame.join(_nih_boxes(boxes), on="name"), header | _BOXES, [])


def _nih_sections(labels: Path, path: Path, names: pd.Series) -> pd.Series:
    """Section of each image; the official lists have no validation section."""
    sections: dict[str, str] = {}
    for pattern, section in (("train_val_list*.txt", "training"), ("test_list*.txt", "test")):
        listed = read_text(require_file(labels, pattern, unless="--split random"))
        sections.update(dict.fromkeys(listed.split(), section))
    unlisted = names[~names.isin(sections.keys())]
    remedy = "download its lists again, or give --split random"
    refuse_lines(path, unlisted, "images are in no list of the official split", remedy)
    return names.map(sections)


def _nih_boxes(path: Path) -> pd.DataFrame:
    """Lists of boxes and of their findings, by the name of the image."""
    sides = ("Bbox [x", "y", "w", "h]")  # the header's brackets are not quoted: four columns
    table = _published_table(path, "Image Index", "Finding Label", *sides)
    # the box list has another name for it than the labels
    spelling = {**{name: name for name in NIH_FINDINGS}, "Infiltrate": "Infiltration"}
    table["boxes"] = table[list(sides)].astype(float).to_numpy().tolist()
    table["box_findings"] = cell_values(path, table["Finding Label"], spelling)
    return table.groupby("Image Index")[["boxes", "box_findings"]].agg(list)


# ---- CheXpert and MIMIC-CXR-JPG

CHEXPERT_FINDINGS = (
    *("No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion"),
    *("Edema", "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion"),
    *("Pleural Other", "Fracture", "Support Devices"),
)
_OBSERVATIONS = {
    "finding_names": list(CHEXPERT_FINDINGS),
    "label_values": {"1": "present", "0": "absent", "-1": "uncertain", "null": "not mentioned"},
}
_LATERAL = ("LATERAL", "LL", "RL", "XTABLE LATERAL")


def read_chexpert(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Labels of 14 observations: "label" is a list of 1, 0, -1 (uncertain) and null (not mentioned).

    From https://stanfordmlgroup.github.io/competitions/chexpert ::

        ROOT/train.csv, valid.csv         as published; valid.csv is the test section ...
        ROOT/test.csv or test_labels.csv  ... unless the test set is there: then it is the validation section
        ROOT/train/patient00001/study1/view1_frontal.jpg ...

    ROOT is the folder CheXpert-v1.0 or CheXpert-v1.0-small, or the one around it.
    """
    train = require_file(labels, "train.csv")
    valid = find_file(labels, "valid.csv")
    test = find_file(labels, "test.csv", "test_labels.csv")
    sections = {train: "training", valid: "validation" if test else "test", test: "test"}
    tables = [
        _chexpert_images(path, root).assign(section=section)
        for path, section in sections.items()
        if path is not None
    ]
    note = "valid.csv is the test section" if valid else "neither valid.csv nor test.csv is there"
    rows = pd.concat(tables, ignore_index=True)
    return LabeledImages(rows, _OBSERVATIONS, [] if test else [note])


def _chexpert_images(path: Path, root: Path) -> pd.DataFrame:
    """Images of one of the tables."""
    table = _published_table(path, "Path", *CHEXPERT_FINDINGS)
    names = table["Path"]
    # without the name of the set in front
    below = names.str.replace(r"^(?!(?:train|valid|test)/)[^/]*/", "", regex=True)
    base, inside = root, root / names.iloc[0].split("/")[0]
    folder = below.iloc[0].split("/")[0]
    if not (root / folder).is_dir() and (inside / folder).is_dir():
        base = inside
    values = finding_labels(path, table, CHEXPERT_FINDINGS)
    projections = table.get("AP/PA", pd.Series("", table.index))
    views = projections.where(projections.isin(["AP", "PA"]), "frontal")
    is_lateral = names.str.rsplit("/", n=1).str[-1].str.contains("lateral", case=False)
    return pd.DataFrame(
        {
            "name": names,
            "file": existing_files([os.path.join(base, name) for name in below]),
            "label": values,
            "abnormal": [_is_abnormal(row) for row in values],
            "patient_id": names.map(patient_of),
            "view": views.mask(is_lateral, "lateral"),
            "sex": table.get("Sex", ""),
            "age": table.get("Age", ""),
        }
    )


def _is_abnormal(values: Sequence[int | None]) -> int:
    """Whether the observations of an image say that it is abnormal; support devices do not."""
    no_finding, diseases = values[0], values[1:-1]
    if 1 in diseases:
        return 1
    return 0 if no_finding == 1 and UNCERTAIN not in diseases else UNCERTAIN


def read_mimic(
    root: Path, labels: Path, official: bool, labeler: str = "chexpert"
) -> LabeledImages:
    """
    Labels of 14 observations of each study, in CheXpert's order: 1, 0, -1 (uncertain), null (not mentioned).

    From https://physionet.org/content/mimic-cxr-jpg ::

        ROOT/mimic-cxr-2.0.0-chexpert.csv.gz (or -negbio), -split.csv.gz
        ROOT/mimic-cxr-2.0.0-metadata.csv.gz      if there: views
        ROOT/files/p10/p10000032/s50414267/*.jpg ...

    For pre-training AFiRe on normal images add --normal_only --frontal_only.
    """
    path = require_file(labels, f"mimic-cxr-*-{labeler}.csv")
    table = _published_table(path, "study_id", *CHEXPERT_FINDINGS)
    observed = finding_labels(path, table, CHEXPERT_FINDINGS)
    known = dict(zip(table["study_id"], observed, strict=True))
    path = require_file(labels, "mimic-cxr-*-split.csv")
    table = _published_table(path, "dicom_id", "study_id", "subject_id", "split")
    sections = {"train": "training", "validate": "validation", "test": "test"}
    images, studies, patients = table["dicom_id"], table["study_id"], table["subject_id"]
    names = "p" + patients.str[:2] + "/p" + patients + "/s" + studies + "/" + images + ".jpg"
    base = root / "files" if (root / "files").is_dir() else root
    values = [known.get(study, [None] * len(CHEXPERT_FINDINGS)) for study in studies]
    views = _mimic_views(labels)
    rows = {
        "name": names,
        "file": existing_files([os.path.join(base, name) for name in names]),
        "label": values,
        "abnormal": [_is_abnormal(row) for row in values],
        "patient_id": patients,
        "view": [views.get(image, "unknown") for image in images],
        "section": cell_values(path, table["split"], sections),
    }
    unlabeled = int((~studies.isin(known.keys())).sum())
    notes = [f"without labels: {counted(unlabeled, 'image')}"] if unlabeled else []
    notes += [] if views else ["views unknown: mimic-cxr-2.0.0-metadata.csv.gz is not there"]
    return LabeledImages(pd.DataFrame(rows), _OBSERVATIONS, notes)


def _mimic_views(labels: Path) -> dict[str, str]:
    """View of each image; empty without the metadata file."""
    path = find_file(labels, "mimic-cxr-*-metadata.csv")
    if path is None:
        return {}
    table = _published_table(path, "dicom_id", "ViewPosition")
    words = {"": "unknown", **dict.fromkeys(_LATERAL, "lateral")}
    return dict(zip(table["dicom_id"], table["ViewPosition"].replace(words), strict=True))


# ---- ChildCXR

_CHILDCXR_FILE = (
    r"(?i)(?:^|/)(?P<folder>train|val|test)/(?P<kind>normal|pneumonia)/(?P<file>[^/]+)$"
)
_CHILDCXR_PATIENT = (
    r"(?i)^(person\d+_(?:bacteria|virus)(?=_\d)|(?:NORMAL2-)?IM-\d+(?=-\d)"
    r"|(?:NORMAL|BACTERIA|VIRUS)-\d+(?=-\d))"
)


def read_childcxr(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Normal or pneumonia, by the name of the folder; the patient is in the file's name.

    From https://data.mendeley.com/datasets/rscbjbr9sj (ChestXRay), or its edition on Kaggle (chest-xray-pneumonia) ::

        ROOT/train/NORMAL/*.jpeg, ROOT/train/PNEUMONIA/*.jpeg
        ROOT/test/NORMAL/*.jpeg,  ROOT/test/PNEUMONIA/*.jpeg

    ROOT may be a folder around these; val, of the Kaggle edition, counts as train; second copies are left out.
    """
    # of several copies, the one nearest to the root comes first
    paths = sorted(scan_radiographs(root), key=lambda path: (path.count("/"), path))
    table = pd.Series(paths, dtype=str).str.extract(_CHILDCXR_FILE).assign(name=paths).dropna()
    # the 16 images of "val" were taken from "train"; as few are no validation section
    sections = {"train": "training", "val": "training", "test": "test"}
    table["section"] = table["folder"].str.lower().map(sections)
    table["label"] = (table["kind"].str.lower() == "pneumonia").astype(int)
    table = table.drop_duplicates(["section", "label", "file"]).sort_values("name")
    if set(table["section"]) != {"training", "test"}:
        text = "no images in train/NORMAL and train/PNEUMONIA, or in test/NORMAL and test/PNEUMONIA"
        raise DatalistError(f"{root}: {text}; set --root to where train and test lie.")
    patients = table["file"].str.extract(_CHILDCXR_PATIENT)[0]
    unknown = table["file"][patients.isna()]
    rows = {
        "name": table["name"],
        "file": [os.path.join(root, *PurePosixPath(name).parts) for name in table["name"]],
        "label": table["label"],
        "abnormal": table["label"],
        "patient_id": patients.fillna(unknown.map(lambda name: os.path.splitext(name)[0])),
        "view": "frontal",
        "section": table["section"],
    }
    notes = [f"patient unknown, counted as one each: {first_few(unknown)}"] if len(unknown) else []
    return LabeledImages(pd.DataFrame(rows), _classes("normal", "pneumonia"), notes)


# ---- SIIM-ACR Pneumothorax

_EMPTY = "-1"


def decode_rle(code: str, shape: tuple[int, int] = (_SIDE, _SIDE)) -> NDArray[np.uint8]:
    r"""
    Mask (rows, columns) of a *relative* run-length code, as the SIIM-ACR challenge writes them.

    The code is pairs :math:`o_1\, n_1\, o_2\, n_2 \dots` over the pixels taken column by column: after :math:`o_i`
    pixels outside, counted from the end of the run before, come :math:`n_i` pixels inside. "-1" is the empty mask.

    Raises:
        ValueError: When the code is not such pairs of integers, or the runs do not fit into the shape.

    Example:
        >>> decode_rle("1 2 2 1", shape=(3, 2))
        array([[0, 0],
               [1, 0],
               [1, 1]], dtype=uint8)
    """
    pixels = np.zeros(shape[0] * shape[1], np.uint8)
    if code.strip() != _EMPTY:
        numbers = [int(word) for word in code.split()]
        offsets, lengths = numbers[0::2], numbers[1::2]
        is_code = 0 < len(offsets) == len(lengths) and min(offsets) >= 0 and min(lengths) > 0
        if not is_code or sum(numbers) > pixels.size:
            raise ValueError(f"{code[:40]!r} is no run-length code of a mask of {shape}")
        is_inside = np.arange(len(numbers)) % 2
        pixels[: sum(numbers)] = np.repeat(is_inside, numbers)
    return np.ascontiguousarray(pixels.reshape(shape[1], shape[0]).T)


def read_siim(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Pneumothorax or none, and a mask of it; an image may have several rows, one for each region.

    From https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation ::

        ROOT/train-rle.csv or stage_2_train.csv   ImageId, EncodedPixels
        ROOT/dicom-images-train/*/*/*.dcm         the images, in any subfolders; converted ones (ImageId.png), too

    --mask_dir draws the masks as PNG, 1024 x 1024, as the images are.
    """
    path = require_file(labels, "stage_2_train.csv", "train-rle.csv")
    table = _published_table(path, "ImageId", "EncodedPixels")
    codes = table.groupby("ImageId", sort=False)["EncodedPixels"].agg(list)
    label = codes.map(lambda own: set(own) != {_EMPTY}).astype(int).to_numpy()
    files = files_by_name(root, codes.index)
    headers = _dicom_headers(files)
    rows = {
        "name": codes.index,
        "file": files,
        "label": label,
        "abnormal": np.where(label, 1, UNCERTAIN),
        "patient_id": headers["patient"].where(headers["patient"] != "", codes.index),
        "view": headers["view"].replace("", "frontal"),
        "run_lengths": codes.to_numpy(),
    }
    is_read = (headers != "").any(axis=None)
    notes = [] if is_read else ["each image counts as one patient: no DICOM header was read"]
    return LabeledImages(pd.DataFrame(rows), _classes("no pneumothorax", "pneumothorax"), notes)


def _draw_regions(row: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Union of the run-length codes of an image."""
    return np.max([decode_rle(code) for code in row["run_lengths"]], axis=0)


# ---- RSNA Pneumonia

_RSNA_MAPPING = "pneumonia-challenge-dataset-mappings_2018.json"


def read_rsna(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Lung opacity or none, with "boxes" [x, y, width, height] in pixels of the 1024 x 1024 image, none for the others.

    From https://www.kaggle.com/c/rsna-pneumonia-detection-challenge ::

        ROOT/stage_2_train_labels.csv
        ROOT/stage_2_detailed_class_info.csv   if there: which images are normal
        ROOT/stage_2_train_images/*.dcm        the images, in any subfolders; converted ones, too
        ROOT/pneumonia-challenge-dataset-mappings_2018.json
                                               if there (from RSNA's page of the challenge): patients
    """
    path = require_file(labels, "stage_2_train_labels.csv")
    sides = ("x", "y", "width", "height")
    table = _published_table(path, "patientId", *sides, "Target")
    boxes: dict[str, list[list[float]]] = {name: [] for name in table["patientId"]}
    marked = table[cell_values(path, table["Target"], {"0": False, "1": True})]
    for name, box in zip(marked["patientId"], marked[list(sides)].to_numpy(), strict=True):
        boxes[name].append([float(side) for side in box])
    classes, patients = _rsna_classes(labels), _rsna_patients(labels)
    files = files_by_name(root, boxes)
    rows = {
        "name": list(boxes),
        "file": files,
        "label": [int(bool(own)) for own in boxes.values()],
        "abnormal": [1 if own else classes.get(name, UNCERTAIN) for name, own in boxes.items()],
        "patient_id": [patients.get(name, name) for name in boxes],
        "view": _dicom_headers(files)["view"].replace("", "frontal"),
        "boxes": list(boxes.values()),
    }
    notes = []
    if not classes:
        notes.append("normal images unknown: stage_2_detailed_class_info.csv is not there")
    if not patients:
        notes.append(f"each image counts as one patient: {_RSNA_MAPPING} is not there")
    header = _classes("no lung opacity", "lung opacity") | _BOXES
    return LabeledImages(pd.DataFrame(rows), header, notes)


def _rsna_classes(labels: Path) -> dict[str, int]:
    """Whether each image is abnormal; empty without the file."""
    path = find_file(labels, "stage_2_detailed_class_info.csv")
    if path is None:
        return {}
    table = _published_table(path, "patientId", "class")
    words = {"Normal": 0, "No Lung Opacity / Not Normal": 1, "Lung Opacity": 1}
    return dict(zip(table["patientId"], cell_values(path, table["class"], words), strict=True))


def _rsna_patients(labels: Path) -> dict[str, str]:
    """NIH patient of each image, by RSNA's mapping; empty without it."""
    path = find_file(labels, _RSNA_MAPPING)
    if path is None:
        return {}
    table = _published_table(path, "subset_img_id", "img_id").astype(str)
    return dict(zip(table["subset_img_id"], table["img_id"].str[:8], strict=True))


# ---- Shenzhen


def read_shenzhen(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Normal or tuberculosis; one image of each patient.

    From https://lhncbc.nlm.nih.gov/LHC-downloads/downloads.html (Shenzhen Hospital X-ray set) ::

        ROOT/CXR_png/CHNCXR_0001_0.png ...   662 images, _0: normal, _1: tuberculosis; in any subfolders

    Other files, such as lung masks, are left out.
    """
    paths = pd.Series(scan_radiographs(root), dtype=str)
    found = paths.map(stem_of).str.extract(r"(?i)^(CHNCXR_\d{4})_([01])$").dropna()
    names, patients, label = paths[found.index], found[0].str.upper(), found[1].astype(int)
    if found.empty:
        raise DatalistError(f"{root}: no images such as CHNCXR_0001_0.png; check --root.")
    rows = {
        "name": names,
        "file": [os.path.join(root, *PurePosixPath(name).parts) for name in names],
        "label": label,
        "abnormal": label,
        "patient_id": patients,
        "view": "frontal",
    }
    return LabeledImages(pd.DataFrame(rows), _classes("normal", "tuberculosis"), [])


# ---- JSRT

_JSRT_SIDE = 2048
_JSRT_MAXIMUM = 4095  # 12 bits, in which dense tissue is dark
# names of the folders of SCR, and of conversions of it
_ORGAN_FOLDERS = {
    **{name.replace("_", " "): name for name in ORGAN_NAMES},
    **{" ".join(reversed(name.split("_"))): name for name in ORGAN_NAMES},
}


def read_jsrt(root: Path, labels: Path, official: bool, png_dir: str = "") -> LabeledImages:
    """
    Lung nodule or none, and, with the masks of SCR, "organs".

    From http://db.jsrt.or.jp/eng.php, masks: SCR database (https://www.isi.uu.nl/Research/Databases/SCR) ::

        ROOT/**/JPCLN001.IMG ... JPCNN093.IMG       154 nodules (LN), 93 none (NN); raw with --png_dir, or as .png
        ROOT/**/fold1/masks/left lung/JPCLN001.gif  if there: masks; also "heart", "right clavicle" ...
    """
    folder = Path(png_dir).expanduser() if png_dir else None
    pictures = _jsrt_pictures(root, folder)
    image, raw = pictures["image"], pictures["raw"]
    files = image.where(image.notna(), raw)
    if files.isna().all():
        text = "no images such as JPCLN001.IMG or JPCLN001.png"
        raise DatalistError(f"{root}: {text}; check --root.")
    unconverted = int((files == raw).sum())
    if unconverted and folder is None:
        remedy = "have them written as PNG with --png_dir FOLDER"
        raise DatalistError(f"{root}: {counted(unconverted, 'raw .IMG file')}; {remedy}.")
    organs = [organ for organ in ORGAN_NAMES if organ in pictures]
    rows = _jsrt_rows(pictures, files, organs)
    if folder is not None:
        rows = _converted_jsrt(rows, organs, folder)
    header = _classes("no nodule", "nodule") | ({"organ_names": organs} if organs else {})
    absent = [name.replace("_", " ") for name in ORGAN_NAMES if name not in organs]
    note = f"no masks of {', '.join(absent)} are there: organ_names lacks them"
    return LabeledImages(rows, header, [note] if absent else [])


def _jsrt_pictures(root: Path, written: Path | None) -> pd.DataFrame:
    """By the name of the image the paths of "image", "raw" and organs; nothing of what an earlier run wrote."""
    skipped = written and written.absolute()
    found = []
    for path in sorted(root.absolute().rglob("JPC[LN]N[0-9][0-9][0-9].*")):
        organ = _ORGAN_FOLDERS.get(path.parent.name.lower().replace("_", " "))
        kind = _jsrt_kind(path.suffix.lower(), organ)
        if kind and skipped not in path.parents:
            found.append((path.stem, kind, str(path)))
    table = pd.DataFrame(found, columns=["name", "kind", "path"])
    is_copy = table.duplicated(["name", "kind"], keep=False) & (table["kind"] != "raw")
    if is_copy.any():
        text = f"{first_few(table['path'][is_copy], 2)} are copies of one picture"
        raise DatalistError(f"{text}; set --root to one of them.")
    table = table.drop_duplicates(["name", "kind"]).astype(object)
    pictures = table.pivot(index="name", columns="kind", values="path")
    organs = pictures.columns.intersection(ORGAN_NAMES)
    return pictures.reindex(columns=["image", "raw", *organs])


def _jsrt_kind(extension: str, organ: str | None) -> str | None:
    """What a picture is: the mask of an organ, or an image, "raw" as published; None for another file."""
    is_readable = extension in SUPPORTED_EXTENSIONS
    if organ and (is_readable or extension == ".gif"):
        return organ
    if extension == ".img":
        return "raw"
    return "image" if is_readable else None


def _jsrt_rows(pictures: pd.DataFrame, files: pd.Series, organs: Sequence[str]) -> pd.DataFrame:
    """Row of each image, which counts as absent without one of the masks."""
    names = pictures.index.to_series()
    label = names.str.startswith("JPCLN").astype(int)
    rows = pd.DataFrame({"name": names, "file": files, "label": label, "abnormal": label})
    rows = rows.assign(patient_id=names, view="PA")
    rows["section"] = np.where(names.str[-3:].astype(int) % 2, "training", "test")
    for organ in reversed(organs):  # the first one that is absent is named
        lacks = pictures[organ].isna() & files.notna()
        rows.loc[lacks, "name"] = f"{organ} mask of " + names[lacks]
        rows.loc[lacks, "file"] = None
    return rows.assign(organs=pictures[organs].to_numpy().tolist()) if organs else rows


def _converted_jsrt(rows: pd.DataFrame, organs: Sequence[str], folder: Path) -> pd.DataFrame:
    """Write the images that are there, and their masks, as PNG; the rows with the new paths."""
    records = rows.to_dict("records")
    there = [row for row in records if pd.notna(row["file"])]
    for row in progress(there, "converting"):
        name = f"{row['patient_id']}.png"
        pixels = _jsrt_pixels(row["file"])
        row["file"] = str(folder / "images" / name)
        save_png(pixels, row["file"])
        for number, organ in enumerate(organs):
            mask = (_jsrt_pixels(row["organs"][number]) > 0).astype(np.uint8) * 255
            row["organs"][number] = str(folder / "masks" / organ / name)
            save_png(mask, row["organs"][number])
    return pd.DataFrame(records)


def _jsrt_pixels(path: str) -> NDArray:
    """Pixels: of a raw image in 16 bits with dense tissue bright, of another file its gray levels."""
    if not path.lower().endswith(".img"):
        with Image.open(path) as picture:
            return np.asarray(picture if picture.mode.startswith("I") else picture.convert("L"))
    raw = np.fromfile(path, dtype=">u2")
    if raw.size != _JSRT_SIDE**2 or raw.max() > _JSRT_MAXIMUM:
        text = f"is not {_JSRT_SIDE} x {_JSRT_SIDE} values of 12 bits"
        raise DatalistError(f"{path}: {text}; {_AGAIN}.")
    dense = (_JSRT_MAXIMUM - raw.astype(np.uint32)) * 65535 // _JSRT_MAXIMUM
    return dense.astype(np.uint16).reshape(_JSRT_SIDE, _JSRT_SIDE)


# ---- ChestX-Det

CHESTX_DET_FINDINGS = (
    *("Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "Diffuse Nodule"),
    *("Effusion", "Emphysema", "Fibrosis", "Fracture", "Mass", "Nodule", "Pleural Thickening"),
    "Pneumothorax",
)


def read_chestx_det(root: Path, labels: Path, official: bool) -> LabeledImages:
    """
    Findings marked by radiologists.

    From https://github.com/Deepwise-AILab/ChestX-Det-Dataset ::

        ROOT/ChestX_Det_train.json, ChestX_Det_test.json
        ROOT/train/*.png, ROOT/test/*.png          the images, in any subfolders

    --mask_dir draws the union of all findings as PNG, 1024 x 1024.
    """
    tables = []
    for name, section in (("train", "training"), ("test", "test")):
        path = require_file(labels, f"ChestX_Det_{name}.json")
        marks = _published_table(path, "file_name", "syms", "boxes", "polygons")
        cell_values(path, marks["syms"].explode().dropna(), dict.fromkeys(CHESTX_DET_FINDINGS))
        tables.append(marks.assign(section=section))
    table = pd.concat(tables, ignore_index=True)
    names, findings = table["file_name"].astype(str), table["syms"]
    rows = {
        "name": names,
        "file": files_by_name(root, names),
        "label": [[int(name in own) for name in CHESTX_DET_FINDINGS] for own in findings],
        "abnormal": findings.map(bool).astype(int),
        "patient_id": names.str.rsplit(".", n=1).str[0],
        "view": "frontal",
        "boxes": [[[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in own] for own in table["boxes"]],
        "box_findings": findings,
        "polygons": table["polygons"],
        "section": table["section"],
    }
    header = {"finding_names": list(CHESTX_DET_FINDINGS), **_BOXES}
    note = "each image counts as one patient: the set does not tell its patients"
    return LabeledImages(pd.DataFrame(rows), header, [note])


def _draw_polygons(row: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Union of the findings of an image."""
    picture = Image.new("L", (_SIDE, _SIDE))
    pencil = ImageDraw.Draw(picture)
    for polygon in row["polygons"]:
        if len(polygon) > 1:
            pencil.polygon([(float(x), float(y)) for x, y in polygon], fill=1, outline=1)
    return np.asarray(picture)


# ---- FIRE

_FIRE_NAME = re.compile(r"control_points_(([SPA])\d+)_(\d+)_(\d+)\.txt")
_FIRE_KINDS = {"S": "large overlap", "P": "small overlap", "A": "changed anatomy"}


def read_fire(
    root: Path, labels: Path, official: bool, exclude: Sequence[str] = ()
) -> LabeledImages:
    """
    Items are pairs: "image" and "image_2" with "landmarks" and "landmarks_2", (row, column) of the same places.

    From https://projects.ics.forth.gr/cvrl/fire ::

        ROOT/Images/A01_1.jpg, A01_2.jpg ...                   134 pairs, in any subfolders
        ROOT/Ground Truth/control_points_A01_1_2.txt ...       or below --labels; a line for each place: x1 y1 x2 y2
    """
    table = _fire_pairs(labels)
    if unknown := [pair for pair in exclude if pair not in set(table["pair"])]:
        text = f"no pair is called {first_few(unknown)}"
        raise DatalistError(f"{labels}: {text}; correct --exclude.")
    table = table[~table["pair"].isin(exclude)].reset_index(drop=True)
    first, second = (pd.Series(files_by_name(root, table[name])) for name in ("first", "second"))
    rows = {
        "name": table["first"].where(first.isna() | second.notna(), table["second"]),
        "file": first.where(second.notna(), None),
        "image_2": second,
        "landmarks": [points[:, [1, 0]].tolist() for points in table["points"]],
        "landmarks_2": [points[:, [3, 2]].tolist() for points in table["points"]],
        "label": table["pair"].str[0].map(list(_FIRE_KINDS).index),
        "group": table["pair"].str[0].map(_FIRE_KINDS),
        "abnormal": UNCERTAIN,
        "patient_id": table["pair"],
        "view": "fundus",
        "section": "test",
    }
    header = {**_classes(*_FIRE_KINDS.values()), "modality": {"0": "OP"}}
    return LabeledImages(pd.DataFrame(rows), header, [])


def _fire_pairs(labels: Path) -> pd.DataFrame:
    """Name of each "pair", of its "first" and "second" photograph, and the "points" x1, y1, x2, y2."""
    found = []
    for path in sorted(labels.rglob("control_points_*.txt")):
        if (match := _FIRE_NAME.fullmatch(path.name)) is None:
            continue
        points = np.loadtxt(io.StringIO(read_text(path)), ndmin=2)
        if points.shape[1] != 4 or not (np.isfinite(points) & (points >= 0)).all():
            text = "its lines are not four numbers x1 y1 x2 y2, from 0 on"
            raise DatalistError(f"{path}: {text}; {_AGAIN}.")
        pair, _, first, second = match.groups()
        found.append((pair, f"{pair}_{first}", f"{pair}_{second}", points))
    table = pd.DataFrame(found, columns=["pair", "first", "second", "points"])
    if table.empty or table["pair"].duplicated().any():
        text = "no files such as control_points_A01_1_2.txt, or several of one pair"
        raise DatalistError(f"{labels}: {text}; set --labels to one copy of them.")
    return table


# ---- all

PUBLIC_SETS: dict[str, LabelSet] = {
    "nih": LabelSet(
        "NIH ChestX-ray14",
        "Wang et al., ChestX-ray8, CVPR 2017; data provider: NIH Clinical Center",
        read_nih,
    ),
    "chexpert": LabelSet("CheXpert", "Irvin et al., CheXpert, AAAI 2019", read_chexpert),
    "mimic": LabelSet(
        "MIMIC-CXR-JPG", "Johnson et al., MIMIC-CXR-JPG, arXiv:1901.07042", read_mimic
    ),
    "childcxr": LabelSet("ChildCXR", "Kermany et al., Cell 172 (2018)", read_childcxr),
    "siim": LabelSet(
        "SIIM-ACR Pneumothorax",
        "SIIM-ACR Pneumothorax Segmentation Challenge, 2019",
        read_siim,
        _draw_regions,
    ),
    "rsna": LabelSet(
        "RSNA Pneumonia", "Shih et al., Radiology: Artificial Intelligence 1 (2019)", read_rsna
    ),
    "shenzhen": LabelSet(
        "Shenzhen",
        "Jaeger et al., Quantitative Imaging in Medicine and Surgery 4 (2014)",
        read_shenzhen,
    ),
    "jsrt": LabelSet(
        "JSRT",
        "Shiraishi et al., AJR 174 (2000); van Ginneken et al., Medical Image Analysis 10 (2006)",
        read_jsrt,
    ),
    "chestx_det": LabelSet(
        "ChestX-Det",
        "Lian et al., IEEE Transactions on Medical Imaging 40 (2021)",
        read_chestx_det,
        _draw_polygons,
    ),
    "fire": LabelSet(
        "FIRE",
        "Hernandez-Matas et al., Journal for Modeling in Ophthalmology 4 (2017)",
        read_fire,
    ),
}
"""The sets by the name of their command."""
