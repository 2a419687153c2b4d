# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole networks for other runtimes: ONNX and torch.export, compared with the network itself."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from monai_afire.networks.weights.description import HEADER
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.utils.files import atomic_path
from monai_afire.utils.formatting import json_safe
from monai_afire.utils.precision import full_matmul_precision

__all__ = ["export_network"]

logger = logging.getLogger(__name__)

TRACED_BATCH = 2  # 1 would be taken for a constant
CHECKED_BATCHES = (1, 3)
OUTPUT_NAME = "pred"  # of a network that returns one tensor

Outputs = dict[str, torch.Tensor]
Program = torch.export.ExportedProgram
Run = Callable[[torch.Tensor], Outputs]


def export_network(
    network: nn.Module,
    path: str | os.PathLike,
    image_shape: Sequence[int],
    metadata: Mapping[str, Any] | None = None,
    tolerance: float = 1e-3,
    model_file: ModelFile | None = None,
) -> dict[str, float]:
    """
    Write a network as a graph that runs without this package, and check that it computes the same.

    MONAI's ``onnx_export`` fixes the batch size and compares nothing. Here the first axis is dynamic, and the graph is
    run with one and with three random images beside the network (ONNX by onnxruntime). A graph that differs is not
    kept. The input is called "image", the outputs by their names if the network returns a dictionary, else "pred".

    Args:
        network: takes images ``(B, C, *S)`` in [0, 1], returns a tensor or a dictionary of tensors. Left as it is.
        path: ``*.onnx``, or ``*.pt2`` for ``torch.export.load``; written complete or not at all.
        image_shape: ``(C, *S)`` of one image.
        metadata: what a reader of the file should know, e.g. names of classes; values are stored as JSON, in the ONNX
            model's ``metadata_props`` or the extra file "metadata.json" of the archive.
        tolerance: largest difference allowed, as a share of the largest value of that output.
        model_file: the network's file, whose description becomes the entry "description" of the metadata.

    Returns:
        For each output its largest difference from the network's, as a share of its largest value.

    Raises:
        ImportError: when the packages for ONNX are missing.
        ValueError: for another kind of file.
        RuntimeError: when the graph differs from the network by more than the tolerance.

    Example:
        >>> import tempfile
        >>> from monai_afire.networks import TransferClassifier, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> path = Path(tempfile.mkdtemp()) / "classifier.pt2"
        >>> differences = export_network(TransferClassifier(encoder, num_classes=2), path, (1, 32, 32))
        >>> list(differences), torch.export.load(path).module()(torch.rand(5, 1, 32, 32)).shape
        (['pred'], torch.Size([5, 2]))
    """
    kind = Path(path).suffix
    if kind not in _WRITERS:
        raise ValueError(f"expected a path that ends in {' or '.join(_WRITERS)}, got {path}")
    stored = dict(metadata or {})
    if model_file is not None:
        stored[HEADER] = model_file.description.as_data()
    # the oneDNN and TF32 products of training would differ from any other runtime's
    with full_matmul_precision(), torch.no_grad():
        logger.info(f"exporting to {path}, and comparing the graph with the network")
        network = copy.deepcopy(network).cpu().eval()
        images = torch.rand(TRACED_BATCH, *image_shape)
        names = list(_named(network(images)))  # says first what is wrong with the network
        program = torch.export.export(
            network, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
        with atomic_path(path) as temporary:
            run = _WRITERS[kind](program, temporary, names, stored)
            differences = _differences(network, run, image_shape)
            _refuse_different(differences, tolerance)
    largest = max(differences.values())
    logger.info(
        f"wrote {path}: differs from the network by at most {largest:.1e} of an output's largest value"
    )
    return differences


def _refuse_different(differences: Mapping[str, float], tolerance: float) -> None:
    """Refuse a graph that does not compute the same; NaN is different, too."""
    different = {name: value for name, value in differences.items() if not value <= tolerance}
    if different:
        found = f"the exported graph differs from the network by {different}, more than {tolerance}"
        raise RuntimeError(
            f"{found}; nothing was written. Untrained outputs can be rounding errors alone"
        )


def _named(outputs: torch.Tensor | Outputs) -> Outputs:
    return outputs if isinstance(outputs, dict) else {OUTPUT_NAME: outputs}


def _differences(network: nn.Module, run: Run, image_shape: Sequence[int]) -> dict[str, float]:
    """The largest difference of each output over batches of several sizes, as a share of its largest value."""
    generator = torch.Generator().manual_seed(0)
    differences: dict[str, float] = {}
    for batch in CHECKED_BATCHES:
        images = torch.rand(batch, *image_shape, generator=generator)
        exported = run(images)
        for name, expected in _named(network(images)).items():
            if exported[name].shape != expected.shape:
                raise RuntimeError(
                    f"{name} of the exported graph has a fixed batch size, as the network's forward has"
                )
            difference = (exported[name] - expected).abs().max() / expected.abs().max().clamp_min(
                1e-30
            )
            # keeps a NaN
            differences[name] = float(np.maximum(differences.get(name, 0.0), float(difference)))
    return differences


def _write_archive(
    program: Program, path: Path, names: Sequence[str], metadata: Mapping[str, Any]
) -> Run:
    with path.open("wb") as file:
        torch.export.save(
            program, file, extra_files={"metadata.json": json.dumps(json_safe(metadata))}
        )
    with path.open("rb") as file:
        module = torch.export.load(file).module()
    return lambda images: _named(module(images))


def _write_onnx(
    program: Program, path: Path, names: Sequence[str], metadata: Mapping[str, Any]
) -> Run:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  what torch.onnx needs
    except ImportError as error:
        raise ImportError(
            f"{error}; ONNX needs more packages: pip install 'monai-afire[export]'"
        ) from error
    converted: Any = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        input_names=["image"],
        output_names=list(names),
        custom_translation_table={torch.ops.aten._cdist_forward.default: _euclidean_distances},
    )
    converted.model.metadata_props.update(
        {name: json.dumps(json_safe(value)) for name, value in metadata.items()}
    )
    converted.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(images: torch.Tensor) -> Outputs:
        found = session.run(list(names), {"image": images.numpy()})
        return dict(zip(names, map(torch.from_numpy, found), strict=True))

    return run


def _euclidean_distances(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    """``torch.cdist`` with p = 2, for which torch.onnx has no translation."""
    from onnxscript import opset20

    op: Any = opset20  # takes lists for constants, its annotations do not say so
    if p != 2:
        raise ValueError(f"only Euclidean distances can be exported, got p = {p}")
    difference = op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3]))
    return op.Sqrt(op.ReduceSumSquare(difference, [-1], keepdims=0))


_WRITERS: dict[str, Callable[..., Run]] = {".onnx": _write_onnx, ".pt2": _write_archive}
