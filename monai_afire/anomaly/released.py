# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A fitted detector in one small file that needs no configuration: weights in half precision, statistics, settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from monai_afire.anomaly.detector import AnomalyDetector
from monai_afire.anomaly.score_names import SCORE_NAMES
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.vit_encoder import ViTEncoder
from monai_afire.utils.files import atomic_path
from monai_afire.utils.saved_options import OPTIONS_HEADER

__all__ = ["load_detector", "new_detector", "save_detector", "with_student_as_teacher"]

_FORMAT = "monai_afire detector 1"
_HALVED = (
    "network.encoder.",
    "network.head.",
    "network.decoder.",
    "token_memory.references",
    "residual_memory.references",
    "field_of_view.",
)
_TEACHER = {"network.teacher_encoder.": "network.encoder.", "network.teacher_head.": "network.head."}


def new_detector(settings: Mapping[str, Mapping[str, Any]]) -> AnomalyDetector:
    """
    An unfitted detector.

    Args:
        settings: keyword arguments of ``ViTEncoder`` ("encoder"), ``AFiRe`` ("network") and
            :class:`monai_afire.anomaly.AnomalyDetector` ("detector").

    Returns:
        The detector, in evaluation mode.
    """
    network = AFiRe(ViTEncoder(**settings["encoder"]), **settings.get("network", {}))
    return AnomalyDetector(network, **settings.get("detector", {})).eval()


def save_detector(
    detector: AnomalyDetector,
    path: str | os.PathLike,
    settings: Mapping[str, Mapping[str, Any]],
    notes: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """
    Write a fitted detector as safetensors.

    Weights and the normal images' features are stored in half precision, the other statistics as they are, the
    teacher, a moving average of the student, not at all: fit a detector after ``detector.network`` has had its teacher
    replaced (:func:`with_student_as_teacher`), or the scores that need it will differ.

    Args:
        detector: fitted, with thresholds.
        path: the file to write, complete or not at all.
        settings: see :func:`new_detector`.
        notes: further entries of the header, such as "pre-processing" or "licence".
        options: what a bundle takes from the file beside the settings, such as ``{"standardize": True}``.

    Returns:
        The file.
    """
    tensors = {}
    for name, value in detector.state_dict().items():
        if not name.startswith(tuple(_TEACHER)):
            halved = value.is_floating_point() and name.startswith(_HALVED)
            tensors[name] = (value.half() if halved else value).contiguous().cpu().clone()
    header = {
        "format": _FORMAT,
        "settings": json.dumps(settings),
        "scores": json.dumps(SCORE_NAMES),
        OPTIONS_HEADER: json.dumps({**_as_options(settings), **(options or {})}),
        **(notes or {}),
    }
    with atomic_path(Path(path)) as temporary:
        save_file(tensors, temporary, metadata=header)
    return Path(path)


def _as_options(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The settings by the names that they have in the bundle's configs."""
    merged = {name: value for part in settings.values() for name, value in part.items()}
    return {("image_size" if name == "img_size" else name): value for name, value in merged.items()}


def load_detector(path: str | os.PathLike) -> AnomalyDetector:
    """
    Read what :func:`save_detector` has written.

    Args:
        path: the file.

    Returns:
        The detector, in single precision and evaluation mode, the student's weights also in the teacher's place.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is damaged, or no detector of this version.

    Example:
        >>> import tempfile
        >>> import torch
        >>> encoder = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
        >>> network = {"num_clusters": 8, "head_dim": 16, "decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2}
        >>> settings = {"encoder": encoder, "network": network, "detector": {"memory_size": 64}}
        >>> detector = new_detector(settings)
        >>> detector.fit([torch.rand(8, 1, 32, 32)])
        >>> path = save_detector(detector, Path(tempfile.mkdtemp()) / "detector.safetensors", settings)
        >>> image = torch.rand(1, 1, 32, 32)
        >>> read, written = (d(image)["scores"][0, 0] for d in (load_detector(path), detector))
        >>> bool((read - written).abs() < 0.01 * written)
        True
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no detector {path}")
    try:
        with safe_open(path, framework="pt") as content:
            header = content.metadata() or {}
            state = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  not a dictionary
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete safetensors file ({error})") from error
    if header.get("format") != _FORMAT or tuple(json.loads(header.get("scores", "[]"))) != SCORE_NAMES:
        raise ValueError(f"{path} holds no detector of this version: export it anew")
    for teacher, student in _TEACHER.items():
        state |= {name.replace(student, teacher, 1): v for name, v in list(state.items()) if name.startswith(student)}
    detector = new_detector(json.loads(header["settings"]))
    detector.load_state_dict(state)  # copies into buffers and parameters of their own precision
    return detector


def with_student_as_teacher(network: AFiRe) -> AFiRe:
    """
    Replace the teacher by the student it is an average of, in place.

    Example:
        >>> network = AFiRe(ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2), 8, 16, 16, 1, 2)
        >>> with_student_as_teacher(network) is network
        True
    """
    network.teacher_encoder.load_state_dict(network.encoder.state_dict())
    network.teacher_head.load_state_dict(network.head.state_dict())
    return network
