# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Images per second of a detector: in the package, compiled, and as a graph of torch.export and of ONNX."""

from __future__ import annotations

import argparse
import importlib
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from monai_afire.apps.exchange import export_network
from monai_afire.detection import AnomalyDetector
from tests.benchmarks.gpu_suite.results import Deadline, Results
from tests.benchmarks.pretraining_step import BundleCase
from tests.benchmarks.timing import take_turns

__all__ = ["measure_inference"]

Call = Callable[[torch.Tensor], Any]

ANY_DIFFERENCE = math.inf  # outputs of a network that is not trained may consist of rounding errors


def measure_inference(
    options: argparse.Namespace,
    results: Results,
    device: torch.device,
    deadline: Deadline,
    needed: Mapping[str, float],
) -> None:
    """
    A row of each way for which there is time; a way that fails is a row that says so.

    Args:
        options: `size` and `ways` of the suite.
        results: get the section "inference".
        device: where to run.
        deadline: nothing is begun that would not end before it.
        needed: seconds that must be left for something "eager", and for something "compiled".
    """
    case = BundleCase("afire", options.size, device, 2)
    images, side = 2 if options.size == "tiny" else 256, case["image_size"]
    pictures = torch.rand(images, 1, side, side, device=device)
    detector = (
        AnomalyDetector(case["network"], memory_size=64 if options.size == "tiny" else 1024)
        .to(device)
        .eval()
    )
    detector.fit(torch.rand(16, 1, side, side, device=device).split(8))
    ways: dict[str, tuple[str, bool, Callable[[], Call]]] = {
        "float32": ("eager", False, lambda: detector),
        "bfloat16": ("eager", True, lambda: detector),
        "bfloat16, compiled": ("compiled", True, lambda: torch.compile(detector)),
        "float32, torch.export": ("exported", False, lambda: exported(detector, side, device)),
        "float32, ONNX": ("exported", False, lambda: onnx_session(detector, side, device)),
    }
    for name, (way, bf16, make) in ways.items():
        if way == "compiled" and way not in options.ways:
            continue
        if deadline.left < needed["eager" if way == "eager" else "compiled"]:
            results.add("inference", name, "no time left")
            continue
        try:
            rate = images_per_second(make(), pictures, bf16, device)
        except Exception as error:
            # a runtime that is not installed, or an operator that it lacks, is a result
            results.add(
                "inference", name, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            )
            continue
        results.add("inference", name, {"images/s": round(rate, 1), "batch": images})


def images_per_second(
    call: Call, pictures: torch.Tensor, bf16: bool, device: torch.device
) -> float:
    """Of the median of three calls, after one that is not counted."""
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        seconds = take_turns({"": lambda: call(pictures)}, 3, device)[""]
    return len(pictures) / sorted(seconds)[1]


def exported(detector: torch.nn.Module, side: int, device: torch.device) -> Call:
    """The graph that ``export`` of the bundle writes for PyTorch, on the device."""
    from torch.export.passes import move_to_device_pass

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.pt2"
        export_network(detector, path, (1, side, side), tolerance=ANY_DIFFERENCE)
        with path.open("rb") as file:
            return move_to_device_pass(torch.export.load(file), device).module()


def onnx_session(detector: torch.nn.Module, side: int, device: torch.device) -> Call:
    """
    The same for ONNX; images and results travel through the memory of the host.

    Raises:
        ImportError: without the packages, or without the provider of the device.
    """
    onnxruntime = importlib.import_module("onnxruntime")
    provider = "CUDAExecutionProvider" if device.type == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise ImportError(f"this onnxruntime has no {provider}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.onnx"
        export_network(detector, path, (1, side, side), tolerance=ANY_DIFFERENCE)
        session = onnxruntime.InferenceSession(str(path), providers=[provider])
    return lambda pictures: session.run(None, {"image": pictures.cpu().numpy()})
