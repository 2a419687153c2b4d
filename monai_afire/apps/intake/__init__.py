# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What an image is before it is scored or counted: its header, exposure, view and pose."""

from __future__ import annotations

from monai_afire.apps.intake.dicom_header import header_groups, header_of
from monai_afire.apps.intake.header_view import frontal_view, other_than_frontal_chest
from monai_afire.apps.intake.pose_classifier import PoseClassifier
from monai_afire.apps.intake.radiograph_description import (
    DescribeRadiographD,
    DescribeRadiographd,
    DescribeRadiographDict,
)
from monai_afire.apps.intake.view_classifier import ViewClassifier

__all__ = [
    "DescribeRadiographD",
    "DescribeRadiographDict",
    "DescribeRadiographd",
    "PoseClassifier",
    "ViewClassifier",
    "frontal_view",
    "header_groups",
    "header_of",
    "other_than_frontal_chest",
]
