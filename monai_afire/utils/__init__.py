# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Helpers that several packages use: files, processes, numerical precision, text."""

from __future__ import annotations

from monai_afire.utils.device import (
    chosen_device,
    default_device,
    default_num_workers,
    has_bfloat16,
    pins_memory,
)
from monai_afire.utils.distributed import (
    all_gather,
    all_gather_object,
    all_reduce,
    all_reduce_max,
    barrier,
    destroy_process_group,
    global_rank,
    init_process_group,
    is_launched,
    join_process_group,
    parallel_network,
    per_process_batch,
    rank_device,
    run_device,
    world_size,
)
from monai_afire.utils.files import (
    atomic_path,
    bundle_root,
    check_writable,
    output_path,
    refuse_existing,
)
from monai_afire.utils.folder_lock import folder_lock
from monai_afire.utils.garbage_collection import garbage_collection_paused
from monai_afire.utils.precision import at_least_float32, full_matmul_precision, without_autocast
from monai_afire.utils.uncertain_labels import resolve_uncertain

__all__ = [
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "all_reduce_max",
    "at_least_float32",
    "atomic_path",
    "barrier",
    "bundle_root",
    "check_writable",
    "chosen_device",
    "default_device",
    "default_num_workers",
    "destroy_process_group",
    "folder_lock",
    "refuse_existing",
    "full_matmul_precision",
    "garbage_collection_paused",
    "global_rank",
    "has_bfloat16",
    "init_process_group",
    "is_launched",
    "join_process_group",
    "parallel_network",
    "run_device",
    "output_path",
    "per_process_batch",
    "pins_memory",
    "rank_device",
    "resolve_uncertain",
    "without_autocast",
    "world_size",
]
