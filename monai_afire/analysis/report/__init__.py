# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""All studies of some encoders in one file to read and one to compute with."""

from __future__ import annotations

from monai_afire.analysis.report.encoders import classifiers_of, encoders_of
from monai_afire.analysis.report.page import report_page
from monai_afire.analysis.report.run import property_report

__all__ = [
    "classifiers_of",
    "encoders_of",
    "property_report",
    "report_page",
]
