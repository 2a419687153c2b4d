# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Token maps and image scores of a detector, by name, and which of them a network can give."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from monai_afire.networks.nets.afire import AFiRe

__all__ = ["MAP_NAMES", "SCORE_NAMES", "check_names", "possible_maps", "possible_scores"]

MAP_NAMES = (
    "restoration",
    "masked_restoration",
    "prototype_distance",
    "token_density",
    "token_neighbors",
    "residual_neighbors",
)
SCORE_NAMES = (*MAP_NAMES, "restoration_mean", "token_mean_density", "focal", "fused")

_OF_AN_ENCODER = ("token_density", "token_neighbors")


def possible_maps(network: nn.Module) -> tuple[str, ...]:
    """
    Token maps that a network can give: all of a pre-trained AFiRe network, two of an encoder alone.

    Example:
        >>> possible_maps(nn.Identity())
        ('token_density', 'token_neighbors')
    """
    return MAP_NAMES if isinstance(network, AFiRe) else _OF_AN_ENCODER


def possible_scores(maps: Sequence[str]) -> tuple[str, ...]:
    """
    Image scores that follow from token maps, in the order of ``SCORE_NAMES``.

    Example:
        >>> possible_scores(("token_density", "token_neighbors"))
        ('token_density', 'token_neighbors', 'token_mean_density', 'focal', 'fused')
    """
    needed = {name: name for name in MAP_NAMES} | {"restoration_mean": "restoration"}
    return tuple(name for name in SCORE_NAMES if needed.get(name, maps[0]) in maps)


def check_names(argument: str, names: Sequence[str], possible: Sequence[str], known: Sequence[str]) -> None:
    """
    Refuse a fusion of nothing, or of what there is not.

    Raises:
        ValueError: which says what is possible.

    Example:
        >>> check_names("fusion", ["token_density"], MAP_NAMES, MAP_NAMES)
    """
    if names and set(names) <= set(possible):
        return
    without = " of an encoder alone, which has neither decoder nor prototypes" if set(names) <= set(known) else ""
    raise ValueError(f"{argument} must name some of {tuple(possible)}{without}, got {tuple(names)}")
