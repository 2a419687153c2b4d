# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels that are present, absent, uncertain or missing, as reports of radiologists give them."""

from __future__ import annotations

import torch

__all__ = ["UNCERTAIN_POLICIES", "check_uncertain_policy", "resolve_uncertain"]

_UNCERTAIN = -1
_COUNTS_AS = {"ignore": float("nan"), "ones": 1.0, "zeros": 0.0}
UNCERTAIN_POLICIES = tuple(_COUNTS_AS)


def check_uncertain_policy(uncertain: str) -> None:
    """
    Refuse an unknown policy for uncertain labels before a run depends on it.

    Args:
        uncertain: see :func:`resolve_uncertain`.

    Raises:
        ValueError: when it is none of "ignore", "ones" and "zeros".

    Example:
        >>> check_uncertain_policy("ones")
    """
    if uncertain not in _COUNTS_AS:
        raise ValueError(f"uncertain must be one of {list(_COUNTS_AS)}, got {uncertain!r}")


def resolve_uncertain(labels: torch.Tensor, uncertain: str = "ignore") -> torch.Tensor:
    """
    Turn uncertain labels into missing, present or absent ones.

    The policies are U-Ignore, U-Ones and U-Zeros of Irvin et al., CheXpert, AAAI 2019.

    Args:
        labels: of any shape: 1 present, 0 absent, -1 uncertain, NaN missing. Values are checked on a CPU only; a GPU
            would have to stop for it.
        uncertain: "ignore" makes -1 missing, "ones" present, "zeros" absent.

    Returns:
        New tensor of the same shape with 1, 0 and NaN, of the labels' type if that has NaN, else float32.

    Raises:
        ValueError: for another policy or (on a CPU) another label.

    Example:
        >>> resolve_uncertain(torch.tensor([1.0, 0.0, -1.0, torch.nan]), "ones")
        tensor([1., 0., 1., nan])
    """
    check_uncertain_policy(uncertain)
    labels = labels if labels.is_floating_point() else labels.float()
    if labels.device.type == "cpu":
        _check_values(labels)
    return torch.where(labels == _UNCERTAIN, _COUNTS_AS[uncertain], labels)


def _check_values(labels: torch.Tensor) -> None:
    wrong = ~((labels == 1) | (labels == 0) | (labels == _UNCERTAIN) | labels.isnan())
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(
            f"{int(wrong.sum())} of {labels.numel()} labels are none of 1 (present), 0 (absent), -1 (uncertain) and "
            f"NaN (missing), the first of them {labels[place].item():g} at {place}: check the datalist, and that "
            "labels and predictions are not exchanged"
        )
