# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A fitted detector in one small file that needs no configuration: weights in half precision, and statistics."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai_afire.detection.detector import AnomalyDetector
from monai_afire.networks.weights.checkpoint_files import write_safetensors
from monai_afire.networks.weights.description import TASKS, describe
from monai_afire.networks.weights.model_file import ModelFile

__all__ = ["load_detector", "save_detector"]

_HALVED = (
    "network.encoder.",
    "network.head.",
    "network.decoder.",
    "network.teacher_",
    "field_of_view.",
)
_REFERENCES = ".references"  # normal images' features, of each MemoryBank
ADAPT = "adapt a pre-trained network with finetune_anomaly.json first"


def save_detector(
    detector: AnomalyDetector,
    path: str | os.PathLike,
    description: Mapping[str, Any] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """
    Write a fitted detector as safetensors.

    Weights and the normal images' features are stored in half precision, the other statistics as they are.

    Args:
        detector: fitted, with thresholds.
        path: the file to write, complete or not at all.
        description: arguments of ``describe``, such as ``preprocessing``.
        notes: further entries of the header, such as "data" or "license".

    Returns:
        The file.
    """
    tensors = {}
    for name, value in detector.state_dict().items():
        large = name.startswith(_HALVED) or name.endswith(_REFERENCES)
        halved = value.is_floating_point() and large
        tensors[name] = (value.half() if halved else value).contiguous().cpu().clone()
    return write_safetensors(tensors, path, describe(detector, **(description or {})), notes)


def load_detector(path: str | os.PathLike) -> AnomalyDetector:
    """
    Read a detector: what :func:`save_detector` has written, or the ``model.pt`` of a bundle.

    It is in single precision and evaluation mode.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is damaged, or no detector.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> detector = AnomalyDetector(encoder, memory_size=64).eval()
        >>> detector.fit([torch.rand(8, 1, 32, 32)])
        >>> path = save_detector(detector, Path(tempfile.mkdtemp()) / "detector.safetensors")
        >>> load_detector(path)(torch.rand(2, 1, 32, 32))["scores"].shape
        torch.Size([2, 5])
    """
    return ModelFile(path, TASKS["AnomalyDetector"], ADAPT).build()
