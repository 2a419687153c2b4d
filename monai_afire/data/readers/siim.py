# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""SIIM-ACR Pneumothorax: run-length coded masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from monai_afire.data.readers.base import UNCERTAIN, LabelledImage, LabelledSet, LabelReader, option
from monai_afire.data.readers.images import files_by_name, read_dicom_headers
from monai_afire.data.readers.rle import decode_rle
from monai_afire.data.readers.tables import Table, find_label_file, read_table

__all__ = ["SIIMReader"]

_SHAPE = (1024, 1024)
_NO_PNEUMOTHORAX = "-1"


@dataclass
class SIIMReader(LabelReader):
    """
    Pneumothorax or none, and a mask of it; an image may have several rows, one for each region.

    An image without pneumothorax may show other diseases: its "abnormal" is -1.
    """

    headers: bool = option(True, "take patient and view from the DICOM headers, where the images are DICOM files")

    title = "SIIM-ACR Pneumothorax"
    layout = """\
https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation
  ROOT/train-rle.csv or stage_2_train.csv   ImageId, EncodedPixels
  ROOT/dicom-images-train/*/*/*.dcm         the images, in any subfolders; converted ones (ImageId.png), too
--mask_dir draws the masks as PNG, 1024 x 1024, as the images are."""
    reference = "SIIM-ACR Pneumothorax Segmentation Challenge, 2019"
    has_masks = True

    def read(self, root: Path, labels: Path, official: bool) -> LabelledSet:
        """See :meth:`LabelReader.read`."""
        path = find_label_file(labels, ["stage_2_train.csv", "train-rle.csv"], "masks")
        assert path is not None
        codes = _codes(read_table(path, ["ImageId", "EncodedPixels"]))
        names = list(codes)
        files = files_by_name(root, names)
        known = read_dicom_headers(files) if self.headers else [None] * len(files)
        images = []
        for name, file, header in zip(names, files, known, strict=True):
            patient, view = header or ("", "")
            label = int(bool(codes[name]))
            item = {
                "label": label,
                "abnormal": 1 if label else UNCERTAIN,
                "patient_id": patient or name,
                "view": view or "frontal",
            }
            images.append(LabelledImage(name, file, item, draw_mask=partial(_draw, codes[name])))
        notes = [] if any(known) else ["each image counts as one patient: no DICOM header was read"]
        return LabelledSet(images, {"labels": {"0": "no pneumothorax", "1": "pneumothorax"}}, notes)


def _codes(table: Table) -> dict[str, list[str]]:
    """Run-length codes of each image, none of an image without pneumothorax; all are tried."""
    table.require_cells("ImageId", "EncodedPixels")
    codes: dict[str, list[str]] = {}
    empty: set[str] = set()
    contradictory, wrong = [], []
    for row, (name, code) in enumerate(zip(table.column("ImageId"), table.column("EncodedPixels"), strict=True)):
        regions = codes.setdefault(name, [])
        if code == _NO_PNEUMOTHORAX:
            empty.add(name)
        else:
            try:
                decode_rle(code, _SHAPE)
            except ValueError as error:
                wrong.append((row, str(error)))
            regions.append(code)
        if regions and name in empty:
            contradictory.append((row, name))
    table.refuse(wrong, "wrong run-length codes", "download the file again")
    table.refuse(contradictory, "images both with and without pneumothorax", "download the file again")
    return codes


def _draw(codes: Sequence[str]) -> np.ndarray:
    """Union of an image's regions."""
    mask = np.zeros(_SHAPE, np.uint8)
    for code in codes:
        mask |= decode_rle(code, _SHAPE)
    return mask
