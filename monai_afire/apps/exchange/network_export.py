# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole networks for other runtimes: ONNX and torch.export, compared with the network itself."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monai_afire.networks.weights.description import HEADER
from monai_afire.networks.weights.model_file import ModelFile
from monai_afire.utils.files import atomic_path
from monai_afire.utils.formatting import json_safe
from monai_afire.utils.precision import full_matmul_precision

__all__ = ["export_network"]

logger = logging.getLogger(__name__)

Outputs = dict[str, torch.Tensor]
Run = Callable[[torch.Tensor], Outputs]


def export_network(
    network: nn.Module,
    path: str | os.PathLike,
    image_shape: Sequence[int],
    metadata: Mapping[str, Any] | None = None,
    tolerance: float = 1e-3,
    model_file: ModelFile | None = None,
) -> None:
    """
    Write a network as a graph that runs without this package, and check that it computes the same.

    MONAI's ``onnx_export`` fixes the batch size and compares nothing. Here the first axis is dynamic, and the graph is
    run with three random images beside the network (ONNX by onnxruntime). A graph that differs is not kept. The input
    is called "image", the outputs by their names if the network returns a dictionary, else "pred".

    Args:
        network: takes images ``(B, C, *S)`` in [0, 1], returns a tensor or a dictionary of tensors. Left as it is.
        path: ``*.onnx``, or ``*.pt2`` for ``torch.export.load``; written complete or not at all.
        image_shape: ``(C, *S)`` of one image.
        metadata: what a reader of the file should know, e.g. names of classes; values are stored as JSON, in the ONNX
            model's ``metadata_props`` or the extra file "metadata.json" of the archive.
        tolerance: largest difference allowed, as a share of the largest value of that output.
        model_file: the network's file, whose description becomes the entry "description" of the metadata.

    Raises:
        ImportError: when the packages for ONNX are missing.
        ValueError: for another kind of file.
        RuntimeError: when the graph differs from the network by more than the tolerance.
    """
    kind = Path(path).suffix
    if kind not in _WRITERS:
        raise ValueError(f"expected a path that ends in {' or '.join(_WRITERS)}, got {path}")
    stored = dict(metadata or {})
    if model_file is not None:
        stored[HEADER] = asdict(model_file.description)
    texts = {name: json.dumps(json_safe(value)) for name, value in stored.items()}
    # the oneDNN and TF32 products of training would differ from any other runtime's
    with full_matmul_precision(), torch.no_grad():
        network = copy.deepcopy(network).cpu().eval()
        images = torch.rand(3, *image_shape, generator=torch.Generator().manual_seed(0))
        expected = _named(network(images))
        batch = torch.export.Dim("batch")
        # of two images: one would be taken for a constant
        program = torch.export.export(network, (images[:2],), dynamic_shapes=({0: batch},))
        with atomic_path(path) as temporary:
            run = _WRITERS[kind](program, temporary, list(expected), texts)
            _refuse_different(run(images), expected, tolerance)
    logger.info(f"wrote {path}, whose outputs are those of the network")


def _refuse_different(found: Outputs, expected: Outputs, tolerance: float) -> None:
    """Refuse a graph that does not compute the same; NaN is different, too."""
    for name, values in expected.items():
        allowed = tolerance * float(values.abs().max())
        try:
            torch.testing.assert_close(found[name], values, rtol=0, atol=allowed)
        except AssertionError as error:
            raise RuntimeError(
                f"{name} of the exported graph differs from the network's, so nothing was written: {error}. "
                "Untrained outputs can be rounding errors alone"
            ) from error


def _named(outputs: torch.Tensor | Outputs) -> Outputs:
    return outputs if isinstance(outputs, dict) else {"pred": outputs}


def _write_archive(
    program: torch.export.ExportedProgram, path: Path, names: list[str], texts: Mapping[str, str]
) -> Run:
    metadata = json.dumps({name: json.loads(text) for name, text in texts.items()})
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={"metadata.json": metadata})
    with path.open("rb") as file:
        module = torch.export.load(file).module()
    return lambda images: _named(module(images))


def _write_onnx(
    program: torch.export.ExportedProgram, path: Path, names: list[str], texts: Mapping[str, str]
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
        output_names=names,
        custom_translation_table={torch.ops.aten._cdist_forward.default: _euclidean_distances},
    )
    converted.model.metadata_props.update(texts)
    converted.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(images: torch.Tensor) -> Outputs:
        found = session.run(names, {"image": images.numpy()})
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
