# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Label files of public sets, of chest radiographs above all, read into MONAI datalists.

``monai-afire data SET --root FOLDER --output datalist.json`` writes a datalist that
``monai.data.load_decathlon_datalist(path, is_segmentation=False)`` and
:func:`monai_afire.data.load_radiograph_datalist` read. Its items are::

    {"image": path, "label": ..., "abnormal": 0, "patient_id": "00000013", "view": "PA"}

* "image": relative to the folder of the datalist.
* "label": the number of the class, named in the header's "labels"; or, for sets with findings, a list in the order of
  the header's "finding_names" with 1 (present), 0 (absent), -1 (uncertain) and null (not mentioned).
  ``numpy.asarray(label, dtype="float32")`` turns null into NaN.
* "abnormal": 0, 1, or -1 where the labels do not say.
* "view": "PA", "AP", "frontal", "lateral", "unknown", or as the set has it.
* "sex", "age", "manufacturer": as the set has them, where it does.
* where there are some: "boxes" ([x, y, width, height] in pixels of the header's "box_image_size") with
  "box_findings", "polygons", "mask" (a path), "organs" (a path for each of the header's "organ_names"); of pairs of
  images "image_2", "landmarks" and "landmarks_2" ((row, column) of the same places in both).

No patient is in two sections. A set is one module; the line in :data:`READERS` makes it a command.
"""

from __future__ import annotations

from monai_afire.apps.readers.chestx_det import ChestXDetReader
from monai_afire.apps.readers.chexpert import CheXpertReader
from monai_afire.apps.readers.childcxr import ChildCXRReader
from monai_afire.apps.readers.datalist_writing import DatalistReport, write_datalist
from monai_afire.apps.readers.fire import FIREReader
from monai_afire.apps.readers.jsrt import JSRTReader
from monai_afire.apps.readers.label_reader import (
    UNCERTAIN,
    LabeledImage,
    LabeledSet,
    LabelReader,
    option,
)
from monai_afire.apps.readers.mimic import MIMICReader
from monai_afire.apps.readers.nih import NIHReader
from monai_afire.apps.readers.rsna import RSNAReader
from monai_afire.apps.readers.shenzhen import ShenzhenReader
from monai_afire.apps.readers.siim import SIIMReader, decode_rle
from monai_afire.apps.readers.table_reader import TableReader

__all__ = [
    "READERS",
    "UNCERTAIN",
    "DatalistReport",
    "LabelReader",
    "LabeledImage",
    "LabeledSet",
    "decode_rle",
    "option",
    "write_datalist",
]

READERS: dict[str, type[LabelReader]] = {
    "nih": NIHReader,
    "chexpert": CheXpertReader,
    "mimic": MIMICReader,
    "childcxr": ChildCXRReader,
    "siim": SIIMReader,
    "rsna": RSNAReader,
    "shenzhen": ShenzhenReader,
    "jsrt": JSRTReader,
    "chestx_det": ChestXDetReader,
    "fire": FIREReader,
    "table": TableReader,
}
