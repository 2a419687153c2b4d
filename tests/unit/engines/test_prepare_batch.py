# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lesions made on the training device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ignite.engine import Engine

from monai_afire.engines import PrepareBatchKeys, PrepareBatchLesions
from monai_afire.handlers import EpochSeed
from monai_afire.transforms import CutPasted, SynthLesionMask, SynthLesionMaskd, synth_lesion_masks

IMAGE = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))


def test_lesions_are_those_of_the_batched_function() -> None:
    settings: dict[str, Any] = {"num_masks": 3, "num_lesions": (2, 2)}
    batch = {"image": IMAGE.clone()}
    image, label, extra, _ = PrepareBatchLesions(settings, seed=5)(batch, "cpu")
    expected = synth_lesion_masks(IMAGE, generator=torch.Generator().manual_seed(5), **settings)
    assert torch.equal(image, IMAGE)
    assert label is None
    torch.testing.assert_close(extra, expected, rtol=0, atol=0)
    # the batch has them too, for previews
    assert batch["lesion_image"] is extra[0]
    assert batch["lesion_mask"] is extra[1]


def test_epoch_seed_governs_the_lesions() -> None:
    prepare, masks = PrepareBatchLesions(), []
    engine = Engine(lambda engine, batch: masks.append(prepare({"image": IMAGE}, "cpu")[2][1]))
    EpochSeed(0, generators=[prepare]).attach(engine)  # type: ignore[list-item]
    for _ in range(2):
        engine.run([0, 1], max_epochs=2)
        engine.state.max_epochs = None
    assert len(masks) == 8
    assert all(torch.equal(a, b) for a, b in zip(masks[:4], masks[4:], strict=True))
    assert not torch.equal(masks[0], masks[2])


def test_images_out_of_range_are_refused_on_the_cpu() -> None:
    with pytest.raises(ValueError, match="image"):
        PrepareBatchLesions()({"image": IMAGE - 0.5}, "cpu")


def test_inputs_come_in_the_order_of_their_keys() -> None:
    batch = {"b": torch.tensor([2.0]), "a": torch.tensor([1.0]), "label": torch.tensor([9])}
    first, label, others, keywords = PrepareBatchKeys(["a", "b", "a"])(
        batch, "cpu", non_blocking=True
    )
    assert (first, others) == (batch["a"], (batch["b"], batch["a"]))
    assert (label, keywords) == (None, {})


def test_other_lesions_cannot_be_made_on_the_device() -> None:
    with pytest.raises(TypeError, match="CutPasted"):
        PrepareBatchLesions(CutPasted("image"))  # type: ignore[arg-type]


def test_a_transform_says_which_lesions() -> None:
    options: dict[str, Any] = {"num_masks": 3, "num_lesions": (2, 2), "lesion_size": (20, 30)}
    options |= {"gamma": 0.4, "amplitude": (0.2, 0.3)}
    by_options, *others = (
        PrepareBatchLesions(lesions, seed=5)({"image": IMAGE.clone()}, "cpu")[2]
        for lesions in (options, SynthLesionMaskd("image", **options), SynthLesionMask(**options))
    )
    for lesions in others:
        torch.testing.assert_close(lesions, by_options, rtol=0, atol=0)
