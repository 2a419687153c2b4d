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

No patient is in two sections.
"""

from __future__ import annotations

from monai_afire.apps.readers.datalist_writing import divide_by_patient, write_datalist
from monai_afire.apps.readers.label_files import LabelSet
from monai_afire.apps.readers.own_table import OWN_TABLE
from monai_afire.apps.readers.public_sets import PUBLIC_SETS, decode_rle

__all__ = ["SETS", "LabelSet", "decode_rle", "divide_by_patient", "write_datalist"]

SETS: dict[str, LabelSet] = {**PUBLIC_SETS, "table": OWN_TABLE}
"""All sets by the name of their command."""
