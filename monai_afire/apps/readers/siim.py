# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""SIIM-ACR Pneumothorax: run-length coded masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from monai_afire.apps.readers.images import files_by_name, read_dicom_headers
from monai_afire.apps.readers.label_reader import UNCERTAIN, LabeledImage, LabeledSet, LabelReader
from monai_afire.apps.readers.label_tables import Table, find_label_file, read_table

_EMPTY = "-1"


def decode_rle(code: str, shape: tuple[int, int] = (1024, 1024)) -> np.ndarray:
    r"""
    Mask of a *relative* run-length code, as the SIIM-ACR challenge writes them.

    The code is pairs :math:`o_1\, n_1\, o_2\, n_2 \dots` over the pixels taken column by column: after :math:`o_i`
    pixels outside, counted from the end of the run before, come :math:`n_i` pixels inside. "-1" is the empty mask.

    Args:
        code: the run-length code.
        shape: rows and columns of the mask.

    Returns:
        (rows, columns) array of ``uint8`` with 0 and 1.

    Raises:
        ValueError: When the code is not pairs of integers, an offset is negative, a run is empty, or the runs do not
            fit into the shape.

    Example:
        >>> decode_rle("1 2 2 1", shape=(3, 2))
        array([[0, 0],
               [1, 0],
               [1, 1]], dtype=uint8)
    """
    if code.strip() == _EMPTY:
        return np.zeros(shape, np.uint8)
    try:
        numbers = np.array(code.split(), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"the run-length code {_shortened(code)} holds something else than integers"
        ) from error
    if numbers.size == 0 or numbers.size % 2:
        raise ValueError(
            f"the run-length code {_shortened(code)} has {numbers.size} numbers; pairs are expected"
        )
    size = shape[0] * shape[1]
    if numbers[0::2].min() < 0 or numbers[1::2].min() < 1 or numbers.max() > size:
        raise ValueError(
            f"the run-length code {_shortened(code)} has offsets or lengths outside 0 to {size}"
        )
    ends = np.cumsum(numbers)
    if ends[-1] > size:
        raise ValueError(
            f"the run-length code {_shortened(code)} ends at pixel {ends[-1]} of {size}"
        )
    inside = np.zeros(len(numbers), np.uint8)
    inside[1::2] = 1
    pixels = np.zeros(size, np.uint8)
    pixels[: ends[-1]] = np.repeat(inside, numbers)
    return np.ascontiguousarray(pixels.reshape(shape[1], shape[0]).T)


def _shortened(code: str) -> str:
    return repr(code if len(code) <= 40 else code[:37] + "...")


_SHAPE = (1024, 1024)


@dataclass
class SIIMReader(LabelReader):
    """
    Pneumothorax or none, and a mask of it; an image may have several rows, one for each region.

    From https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation ::

        ROOT/train-rle.csv or stage_2_train.csv   ImageId, EncodedPixels
        ROOT/dicom-images-train/*/*/*.dcm         the images, in any subfolders; converted ones (ImageId.png), too

    --mask_dir draws the masks as PNG, 1024 x 1024, as the images are.
    """

    title = "SIIM-ACR Pneumothorax"
    reference = "SIIM-ACR Pneumothorax Segmentation Challenge, 2019"
    has_masks = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        path = find_label_file(labels, ["stage_2_train.csv", "train-rle.csv"], "masks")
        columns = ["ImageId", "EncodedPixels"]
        codes = _codes(read_table(path, columns, filled=columns))
        names = list(codes)
        files = files_by_name(root, names)
        headers = read_dicom_headers(files)
        images = []
        for name, file, (patient, view) in zip(names, files, headers, strict=True):
            label = int(bool(codes[name]))
            item = {"label": label, "abnormal": label or UNCERTAIN, "patient_id": patient or name}
            item["view"] = view or "frontal"
            images.append(LabeledImage(name, file, item, draw_mask=partial(_draw, codes[name])))
        notes = (
            []
            if any(map(any, headers))
            else ["each image counts as one patient: no DICOM header was read"]
        )
        return LabeledSet(images, {"labels": {"0": "no pneumothorax", "1": "pneumothorax"}}, notes)


def _codes(table: Table) -> dict[str, list[str]]:
    """Run-length codes of each image, none of an image without pneumothorax; all are tried."""
    names, cells = table.cells["ImageId"], table.cells["EncodedPixels"]
    wrong = ((line, fault) for line, code in cells.items() if (fault := _fault(code)))
    table.refuse(wrong, "wrong run-length codes", "download the file again")
    empty = cells == _EMPTY
    both = (empty.groupby(names).transform("nunique") > 1) & ~names.duplicated(keep="last")
    table.refuse(
        names[both].items(), "images both with and without pneumothorax", "download the file again"
    )
    codes: dict[str, list[str]] = {name: [] for name in names}
    for name, code in zip(names[~empty], cells[~empty], strict=True):
        codes[name].append(code)
    return codes


def _fault(code: str) -> str:
    """What is wrong with a code, "" if nothing is."""
    try:
        decode_rle(code, _SHAPE)
    except ValueError as error:
        return str(error)
    return ""


def _draw(codes: Sequence[str]) -> np.ndarray:
    """Union of an image's regions."""
    mask = np.zeros(_SHAPE, np.uint8)
    for code in codes:
        mask |= decode_rle(code, _SHAPE)
    return mask
