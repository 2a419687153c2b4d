# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anomaly detection: a pre-trained network with statistics of the normal, how it is fitted, evaluated and used.

``detector`` is a loop over the tables of ``scores``: each of these measures one of the ``network_outputs``, by
``score_equations`` or by ``normal_statistics`` (as in PaDiM and PatchCore), in the fields of view of ``field_of_view``.
``detection_items`` lists the images that a detector is evaluated on. ``detector_file`` keeps a fitted one in one file,
``score_thresholds`` and ``conformal`` compare its scores with those of normal images. The handlers of an engine are
:class:`monai_afire.handlers.DetectorFit`, :class:`monai_afire.apps.results.AnomalyReport` and
:class:`monai_afire.apps.worklist.AnomalyWriter`.
"""

from __future__ import annotations

from monai_afire.detection.conformal import conformal_p_values
from monai_afire.detection.detection_items import detection_items, validation_items
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.detection.detector_file import load_detector, save_detector
from monai_afire.detection.score_equations import anomaly_score, prototype_distance
from monai_afire.detection.scores import IMAGE_SCORES, TOKEN_MAPS, TokenMap

__all__ = [
    "AnomalyDetector",
    "IMAGE_SCORES",
    "TOKEN_MAPS",
    "TokenMap",
    "anomaly_score",
    "conformal_p_values",
    "detection_items",
    "load_detector",
    "prototype_distance",
    "save_detector",
    "validation_items",
]
