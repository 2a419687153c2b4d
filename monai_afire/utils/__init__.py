# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What several rooms need and no other room is the place for."""

from __future__ import annotations

from monai_afire.utils.command_line import as_bool, show_cause_last
from monai_afire.utils.cpu import tune_cpu
from monai_afire.utils.distributed import (
    gather_from_ranks,
    global_rank,
    max_over_ranks,
    objects_of_ranks,
    sum_over_ranks,
    wait_for_ranks,
    world_size,
)
from monai_afire.utils.files import atomic_path, check_writable, output_path
from monai_afire.utils.labels import resolve_uncertain
from monai_afire.utils.memory import garbage_collection_paused
from monai_afire.utils.packing import pack_bundle
from monai_afire.utils.precision import at_least_float32, full_matmul_precision, without_autocast
from monai_afire.utils.process_group import join_process_group, leave_process_group, main_rank_first, rank_device

__all__ = [
    "as_bool",
    "at_least_float32",
    "atomic_path",
    "check_writable",
    "full_matmul_precision",
    "garbage_collection_paused",
    "gather_from_ranks",
    "global_rank",
    "join_process_group",
    "leave_process_group",
    "main_rank_first",
    "max_over_ranks",
    "objects_of_ranks",
    "output_path",
    "pack_bundle",
    "rank_device",
    "resolve_uncertain",
    "show_cause_last",
    "sum_over_ranks",
    "tune_cpu",
    "wait_for_ranks",
    "without_autocast",
    "world_size",
]
