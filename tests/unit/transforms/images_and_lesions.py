# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Images and lesions for the tests of transforms."""

from __future__ import annotations

from typing import Any

import torch


def random_image(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def chest(side: int = 96) -> torch.Tensor:
    """Two dark lungs in a bright body in front of dark air, with some noise."""
    rows, columns = torch.meshgrid(
        torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij"
    )
    image = torch.where(columns.abs() < 0.9, 0.7, 0.05)
    for center in (-0.4, 0.4):
        image[((columns - center) / 0.25) ** 2 + (rows / 0.6) ** 2 < 1] = 0.2
    return (image + 0.05 * random_image(side, side)).unsqueeze(0)


def coordinate_image(*size: int) -> torch.Tensor:
    """Image whose channels are the coordinates of the pixels."""
    return torch.stack(
        torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in size), indexing="ij")
    )


def lesion_of(kind: str = "SoftNodule", **changes: Any) -> dict[str, Any]:
    return {"kind": kind, "contrast": 0.3, "size": 0.2, "seed": 5, **changes}
