# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The studies of the report, each a small class with its options as arguments."""

from __future__ import annotations

from monai_afire.analysis.studies.composition import CompositionStudy
from monai_afire.analysis.studies.correspondence import CorrespondenceStudy
from monai_afire.analysis.studies.cosegmentation import CosegmentationStudy
from monai_afire.analysis.studies.grouping import ImageMapStudy, LandmarkMapStudy, PositionMapStudy
from monai_afire.analysis.studies.prototypes import PrototypeStudy
from monai_afire.analysis.studies.restoration import RestorationStudy
from monai_afire.analysis.studies.saliency import SaliencyStudy
from monai_afire.analysis.studies.study import Study, StudyResult
from monai_afire.analysis.studies.symmetry import SymmetryStudy

__all__ = [
    "CompositionStudy",
    "CorrespondenceStudy",
    "CosegmentationStudy",
    "ImageMapStudy",
    "LandmarkMapStudy",
    "PositionMapStudy",
    "PrototypeStudy",
    "RestorationStudy",
    "SaliencyStudy",
    "Study",
    "StudyResult",
    "SymmetryStudy",
]
