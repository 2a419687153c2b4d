# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What several rooms need and no other room is the place for."""

from __future__ import annotations

from monai_afire.utils.command_line import as_bool, show_cause_last
from monai_afire.utils.cpu import tune_cpu
from monai_afire.utils.files import atomic_path, check_writable, output_path
from monai_afire.utils.labels import resolve_uncertain
from monai_afire.utils.packing import pack_bundle
from monai_afire.utils.precision import at_least_float32, full_matmul_precision, without_autocast

__all__ = [
    "as_bool",
    "at_least_float32",
    "atomic_path",
    "check_writable",
    "full_matmul_precision",
    "output_path",
    "pack_bundle",
    "resolve_uncertain",
    "show_cause_last",
    "tune_cpu",
    "without_autocast",
]
