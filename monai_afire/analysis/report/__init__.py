# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of all studies: the encoders to compare, the run, the page."""

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
