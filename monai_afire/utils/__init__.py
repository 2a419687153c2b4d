# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What several rooms need and no other room is the place for."""

from __future__ import annotations

from monai_afire.utils.command_line import as_bool, show_cause_last
from monai_afire.utils.cpu import tune_cpu
from monai_afire.utils.files import atomic_path, check_writable, output_path
from monai_afire.utils.labels import resolve_uncertain
from monai_afire.utils.precision import at_least_float32, full_matmul_precision

__all__ = [
    "as_bool",
    "at_least_float32",
    "atomic_path",
    "check_writable",
    "full_matmul_precision",
    "output_path",
    "resolve_uncertain",
    "show_cause_last",
    "tune_cpu",
]
