# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels that are present, absent, uncertain or missing, as reports of radiologists give them, or exclusive classes."""

from __future__ import annotations

import torch

LABEL_KINDS = ("multilabel", "multiclass")


_UNCERTAIN = -1
_COUNTS_AS = {"ignore": float("nan"), "ones": 1.0, "zeros": 0.0}


def check_uncertain_policy(uncertain: str) -> None:
    """Refuse an unknown policy for uncertain labels before a run depends on it."""
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


def check_label_kind(
    label_kind: str, num_classes: int | None = None, uncertain: str = "ignore"
) -> None:
    """Refuse an unknown kind of labels, or settings that it cannot have, before a run depends on it."""
    check_uncertain_policy(uncertain)
    if label_kind not in LABEL_KINDS:
        raise ValueError(f"label_kind must be one of {list(LABEL_KINDS)}, got {label_kind!r}")
    if label_kind == "multilabel":
        return
    if uncertain != "ignore":
        raise ValueError(
            "label_kind 'multiclass' knows no uncertain class: set uncertain to 'ignore'"
        )
    if num_classes is not None and num_classes < 2:
        needed = f"label_kind 'multiclass' needs two classes or more, got {num_classes}"
        raise ValueError(f"{needed}: give num_classes, or take 'multilabel' for one finding")


def class_probabilities(logits: torch.Tensor, label_kind: str = "multilabel") -> torch.Tensor:
    """Probabilities of the classes, in float64, where large logits keep their order."""
    check_label_kind(label_kind)
    values = logits.detach().cpu().double()
    return values.softmax(-1) if label_kind == "multiclass" else values.sigmoid()


def _check_values(labels: torch.Tensor) -> None:
    wrong = ~((labels == 1) | (labels == 0) | (labels == _UNCERTAIN) | labels.isnan())
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        first = f"the first of them {labels[place].item():g} at {place}"
        known = "1 (present), 0 (absent), -1 (uncertain) and NaN (missing)"
        wrong_ones = f"{int(wrong.sum())} of {labels.numel()} labels are none of {known}, {first}"
        raise ValueError(
            f"{wrong_ones}: check the datalist, and that labels and predictions are not exchanged"
        )
