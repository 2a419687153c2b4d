# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list of scored radiographs: its table and page, DICOM results for an archive, a watched folder."""

from __future__ import annotations

from monai_afire.apps.worklist.anomaly_writer import AnomalyWriter
from monai_afire.apps.worklist.dicom_results import (
    NoStudyError,
    read_source,
    secondary_capture,
    structured_report,
)
from monai_afire.apps.worklist.heat_places import hottest_place, lung_zone
from monai_afire.apps.worklist.normal_images import normals_from
from monai_afire.apps.worklist.normals_file import load_normals, save_normals
from monai_afire.apps.worklist.run_normals import RunNormals

__all__ = [
    "AnomalyWriter",
    "NoStudyError",
    "RunNormals",
    "hottest_place",
    "load_normals",
    "lung_zone",
    "normals_from",
    "read_source",
    "save_normals",
    "secondary_capture",
    "structured_report",
]
