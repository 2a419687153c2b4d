# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
r"""LeJEPA (Balestriero and LeCun, arXiv 2511.08544): views agree, and features are an isotropic Gaussian.

.. math::
    \mathcal L = (1 - \lambda) \frac1V \sum_v \lVert z_v - \bar z \rVert^2 / D + \lambda\, \mathrm{SIGReg}(z), \qquad
    \mathrm{SIGReg} = \frac1A \sum_a N \int \lvert \hat\varphi_a(t) - e^{-t^2/2} \rvert^2 e^{-t^2/2} dt

The penalty compares the features along random directions a with a standard normal distribution by their empirical
characteristic functions (Epps and Pulley 1983). There is no teacher, no negative and no schedule.
"""

from __future__ import annotations

import torch

POINTS, LARGEST = 17, 3.0  # of t; the integrand is even, so half of it is enough
DIRECTIONS, WEIGHT = 256, 0.05


def epps_pulley(samples: torch.Tensor) -> torch.Tensor:
    """
    Distance of the columns of samples ``(N, A)`` from a standard normal distribution, ``(A,)``.

    Example:
        >>> collapsed, normal = torch.zeros(512, 1), torch.randn(512, 1, generator=torch.Generator().manual_seed(0))
        >>> bool(epps_pulley(collapsed) > 50 * epps_pulley(normal))
        True
    """
    points = torch.linspace(0, LARGEST, POINTS)
    normal = torch.exp(-points.square() / 2)
    angles = samples.unsqueeze(-1) * points
    difference = (angles.cos().mean(0) - normal).square() + angles.sin().mean(0).square()
    return 2 * len(samples) * torch.trapezoid(difference * normal, points, dim=-1)


def gaussian_penalty(features: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mean distance of features ``(N, D)`` from a standard normal distribution along random directions."""
    directions = torch.randn(features.shape[1], DIRECTIONS, generator=generator)
    return epps_pulley(features @ (directions / directions.norm(dim=0))).mean()


def lejepa_loss(views: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The loss of the projected features ``(V, N, D)`` of V views of N images."""
    agreement = (views - views.mean(0)).square().mean()
    penalty = torch.stack([gaussian_penalty(view, generator) for view in views]).mean()
    return (1 - WEIGHT) * agreement + WEIGHT * penalty
