# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Weights in half precision and in pieces, for a way out that takes small files only.

    python -m tests.benchmarks.gpu_suite.weight_pieces folder model.safetensors    # joins what `train` has written
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

__all__ = ["join_pieces", "write_pieces"]


def write_pieces(
    weights: Path, folder: Path, prefixes: Sequence[str] = ("",), megabytes: float = 15
) -> list[Path]:
    """
    Cut a state dict's file into safetensors files of limited size.

    Args:
        weights: file of ``torch.save``.
        folder: of the pieces, "weights_0.safetensors" and so on.
        prefixes: of the entries that are kept.
        megabytes: limit of a piece; a tensor that is larger has a piece of its own.

    Returns:
        The pieces. Floating-point numbers are in float16, all others as they were.
    """
    state = torch.load(weights, map_location="cpu", weights_only=True)
    pieces: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in state.items():
        if not name.startswith(tuple(prefixes)):
            continue
        tensor = (tensor.half() if tensor.is_floating_point() else tensor).contiguous().clone()
        if size and size + tensor.nbytes > megabytes * 1e6:
            pieces.append({})
            size = 0
        pieces[-1][name] = tensor
        size += tensor.nbytes
    paths = [folder / f"weights_{number}.safetensors" for number in range(len(pieces))]
    for path, piece in zip(paths, pieces, strict=True):
        save_file(piece, path)
    return paths


def join_pieces(folder: Path) -> dict[str, torch.Tensor]:
    """The state dict of the pieces in a folder, in float32."""
    state: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("weights_*.safetensors")):
        state |= load_file(path)
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }


def main() -> None:
    """Join pieces into one file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    save_file(join_pieces(options.folder), options.output)


if __name__ == "__main__":
    main()
