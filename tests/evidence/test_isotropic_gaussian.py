# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The penalty of LeJEPA against integrals, and what its minimum is."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad

from tests.evidence.isotropic_gaussian import epps_pulley, gaussian_penalty, lejepa_loss


def statistic(samples: list[float]) -> float:
    """The integral by adaptive quadrature, over the same range."""

    def integrand(t: float) -> float:
        real = sum(math.cos(t * x) for x in samples) / len(samples) - math.exp(-t * t / 2)
        imaginary = sum(math.sin(t * x) for x in samples) / len(samples)
        return (real**2 + imaginary**2) * math.exp(-t * t / 2)

    return len(samples) * quad(integrand, -3, 3)[0]


@pytest.mark.parametrize("samples", [[0.0], [1.5], [-1.0, 0.5, 2.0], [3.0, 3.0]])
def test_epps_pulley_is_the_integral(samples: list[float]) -> None:
    found = epps_pulley(torch.tensor(samples)[:, None])
    assert found.item() == pytest.approx(statistic(samples), rel=0.02)


def test_penalty_of_normal_samples_has_its_expected_value() -> None:
    expected = quad(lambda t: (1 - math.exp(-t * t)) * math.exp(-t * t / 2), -3, 3)[0]
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(2000, 400, generator=generator)
    assert epps_pulley(draws).mean().item() == pytest.approx(expected, rel=0.1)


def test_gradient_steps_make_correlated_features_isotropic() -> None:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(128, 2, generator=generator)
    features = (base @ torch.tensor([[1.5, 0.7], [0.0, 0.4]])).requires_grad_()
    before = torch.cov(features.detach().T) - torch.eye(2)
    optimizer = torch.optim.Adam([features], 0.03)
    for _ in range(200):
        optimizer.zero_grad()
        gaussian_penalty(features, generator).backward()
        optimizer.step()
    after = torch.cov(features.detach().T) - torch.eye(2)
    assert after.norm() < 0.3 * before.norm()


def test_views_that_disagree_cost_more() -> None:
    generator = torch.Generator().manual_seed(0)
    view = torch.randn(128, 8, generator=generator)
    other = torch.randn(128, 8, generator=generator)
    alike, unlike = (
        lejepa_loss(torch.stack([view, second]), torch.Generator().manual_seed(1)).item()
        for second in (view, other)
    )
    # two independent standard normal views lie half a variance from their mean
    assert unlike - alike == pytest.approx(0.95 * 0.5, abs=0.15)
