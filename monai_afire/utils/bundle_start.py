# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where a bundle is, and how many processes load its images."""

from __future__ import annotations

import os

import torch

__all__ = ["bundle_root", "default_num_workers"]


def bundle_root(name: str) -> str:
    """
    Find the folder of one of this repository's bundles, for its configs.

    Args:
        name: of the bundle.

    Returns:
        "bundles/<name>" in the repository's root, else ".", which is right inside the bundle.

    Example:
        >>> bundle_root("no_such_bundle")
        '.'
    """
    folder = f"bundles/{name}"
    return folder if os.path.isdir(f"{folder}/configs") else "."


def default_num_workers(device: torch.device | str) -> int:
    """
    Number of loader processes that keep a device busy.

    Args:
        device: that the run trains on.

    Returns:
        The number of cores, at most 8, for a GPU; 0 for a CPU, which has enough to do.

    Example:
        >>> default_num_workers("cpu")
        0
    """
    return min(8, os.cpu_count() or 1) if torch.device(device).type != "cpu" else 0
