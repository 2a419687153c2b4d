# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Audit: are these images fit for training?

``measurements`` reads each file once and asks how it is turned, ``duplicates`` finds what shows the same,
``audit_checks`` turns this into findings, and ``audit`` joins and shows them.
"""

from __future__ import annotations

from monai_afire.apps.audit.audit import audit_images
from monai_afire.apps.audit.audit_checks import CHECKS, Check
from monai_afire.apps.audit.duplicates import near_duplicates
from monai_afire.apps.audit.measurements import measure_images

__all__ = ["CHECKS", "Check", "audit_images", "measure_images", "near_duplicates"]
