# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Helpers that several packages use: files, processes, numerical precision, text."""

from __future__ import annotations

from monai_afire.utils.device import default_num_workers
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.process_group import (
    destroy_process_group,
    join_process_group,
    parallel_network,
    per_process_batch,
    run_device,
)
from monai_afire.utils.run_folder import print_results, run_dir

__all__ = [
    "default_num_workers",
    "destroy_process_group",
    "global_rank",
    "join_process_group",
    "parallel_network",
    "per_process_batch",
    "print_results",
    "run_device",
    "run_dir",
]
