# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The running prototypes against Eq. 7 in loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.networks.blocks.prototype_bank import PrototypeBank


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("shape", [(4, 3, 5), (1, 2, 2), (2, 1, 3)])
def test_updates_equal_the_reference(shape: tuple[int, ...], momentum: float) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        bank = PrototypeBank(shape[1], shape[2], momentum).double()
        expected = None
        for step in range(4):
            q = rng.dirichlet(np.ones(shape[2]), size=shape[:2])
            bank.update(torch.tensor(q))
            expected = afire.prototype_update(expected, q, momentum)
            np.testing.assert_allclose(bank.prototypes.numpy(), expected, rtol=0, atol=1e-9)
            assert bank.num_updates == step + 1


def test_rows_are_probabilities_at_all_times() -> None:
    bank = PrototypeBank(3, 4)
    generator = torch.Generator().manual_seed(0)
    torch.testing.assert_close(bank.prototypes, torch.full((3, 4), 0.25))
    for _ in range(50):
        bank.update(torch.softmax(torch.randn(2, 3, 4, generator=generator) * 5, -1))
        assert (bank.prototypes >= 0).all()
        torch.testing.assert_close(bank.prototypes.sum(-1), torch.ones(3))


def test_state_dict_carries_on() -> None:
    bank, other = PrototypeBank(2, 3, 0.5), PrototypeBank(2, 3, 0.5)
    q = torch.softmax(torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(1)), -1)
    bank.update(q)
    other.load_state_dict(bank.state_dict(), strict=True)
    for each in (bank, other):
        each.update(q.flip(-1))
    assert torch.equal(bank.prototypes, other.prototypes)
    torch.testing.assert_close(other.prototypes, (q.mean(0) + q.flip(-1).mean(0)) / 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_q_keeps_a_float32_bank(dtype: torch.dtype) -> None:
    bank = PrototypeBank(2, 3)
    q = torch.softmax(torch.randn(64, 2, 3, generator=torch.Generator().manual_seed(2)), -1).to(
        dtype
    )
    bank.update(q)
    assert bank.prototypes.dtype == torch.float32
    torch.testing.assert_close(bank.prototypes, q.double().mean(0).float())


def test_bank_is_no_parameter_and_keeps_no_graph() -> None:
    bank = PrototypeBank(2, 3)
    bank.update(torch.rand(1, 2, 3, requires_grad=True))
    assert not list(bank.parameters())
    assert not bank.prototypes.requires_grad
    assert sorted(bank.state_dict()) == ["num_updates", "prototypes"]


def test_wrong_input_is_refused() -> None:
    for momentum in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="momentum"):
            PrototypeBank(2, 3, momentum)
    for shape in ((2, 3), (4, 3, 2), (4, 2, 4)):
        with pytest.raises(ValueError, match=r"\(L, K\) = \(2, 3\)"):
            PrototypeBank(2, 3).update(torch.zeros(shape))
