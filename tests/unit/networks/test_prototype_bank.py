# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The running prototypes against Eq. 7 in loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive import afire

from monai_afire.networks.blocks.prototype_bank import PrototypeBank


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shape", [(4, 3, 5), (1, 2, 2)])
def test_updates_equal_the_reference(shape: tuple[int, ...], momentum: float) -> None:
    rng = np.random.default_rng(0)
    bank = PrototypeBank(shape[1], shape[2], momentum).double()
    expected = None
    for _ in range(4):
        q = rng.dirichlet(np.ones(shape[2]), size=shape[:2])
        bank.update(torch.tensor(q, requires_grad=True))
        expected = afire.prototype_update(expected, q, momentum)
        np.testing.assert_allclose(bank.prototypes.numpy(), expected, rtol=0, atol=1e-9)


def test_state_dict_carries_on() -> None:
    bank, other = PrototypeBank(2, 3, 0.5), PrototypeBank(2, 3, 0.5)
    q = torch.softmax(torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(1)), -1)
    bank.update(q)
    other.load_state_dict(bank.state_dict(), strict=True)
    for each in (bank, other):
        each.update(q.flip(-1))
    assert torch.equal(bank.prototypes, other.prototypes)
    torch.testing.assert_close(other.prototypes, (q.mean(0) + q.flip(-1).mean(0)) / 2)


def test_half_precision_q_keeps_a_float32_bank() -> None:
    bank = PrototypeBank(2, 3)
    q = torch.softmax(torch.randn(64, 2, 3), -1).half()
    bank.update(q)
    assert bank.prototypes.dtype == torch.float32
    torch.testing.assert_close(bank.prototypes, q.double().mean(0).float())


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum"):
        PrototypeBank(2, 3, 1.0)
    with pytest.raises(ValueError, match="q must"):
        PrototypeBank(2, 3).update(torch.zeros(4, 3, 2))
