# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from monai_afire.utils.formatting import json_safe


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.bool_(True), True),
        (torch.tensor([[1.0, math.nan]]), [[1.0, None]]),
        ({1: (np.array([0.5, -math.inf]), "text", None)}, {"1": [[0.5, None], "text", None]}),
    ],
)
def test_values_survive_strict_json(value: Any, expected: Any) -> None:
    safe = json_safe(value)
    assert safe == expected
    assert type(safe) is type(expected)
    json.dumps(safe, allow_nan=False)
