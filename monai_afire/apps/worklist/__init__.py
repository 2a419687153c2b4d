# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list of scored radiographs: its table and page, DICOM results for an archive, a watched folder."""

from __future__ import annotations

from monai_afire.apps.worklist.anomaly_writer import AnomalyWriter
from monai_afire.apps.worklist.heat_places import lung_zone
from monai_afire.apps.worklist.normal_images import normals_from
from monai_afire.apps.worklist.normals_file import load_normals, save_normals
from monai_afire.apps.worklist.run_normals import RunNormals

__all__ = [
    "AnomalyWriter",
    "RunNormals",
    "load_normals",
    "lung_zone",
    "normals_from",
    "save_normals",
]
