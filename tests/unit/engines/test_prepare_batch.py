# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lesions made on the training device."""

from __future__ import annotations

import pytest
import torch

from monai_afire.engines import PrepareInputs, PrepareLesionBatch
from monai_afire.handlers import EpochSeed
from monai_afire.transforms import CutPasted, SynthLesionMask, SynthLesionMaskd, synth_lesion_masks

IMAGE = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))


def test_lesions_are_those_of_the_batched_function() -> None:
    prepare = PrepareLesionBatch({"num_masks": 3, "num_lesions": (2, 2)}, seed=5)
    batch = {"image": IMAGE.clone()}
    image, label, extra, keywords = prepare(batch, "cpu")
    expected = synth_lesion_masks(
        IMAGE, num_masks=3, num_lesions=(2, 2), generator=torch.Generator().manual_seed(5)
    )
    assert torch.equal(image, IMAGE)
    assert label is None
    assert keywords == {}
    for value, reference in zip(extra, expected, strict=True):
        assert torch.equal(value, reference)
    # the batch has them too, for previews
    assert torch.equal(batch["lesion_image"], extra[0])
    assert torch.equal(batch["lesion_mask"], extra[1])
    assert (extra[0] != IMAGE.unsqueeze(1)).any(dim=(2, 3, 4)).all()


def test_epoch_seed_governs_the_lesions() -> None:
    from ignite.engine import Engine

    prepare, masks = PrepareLesionBatch(), []
    engine = Engine(lambda engine, batch: masks.append(prepare({"image": IMAGE}, "cpu")[2][1]))
    EpochSeed(0, generators=[prepare]).attach(engine)  # type: ignore[list-item]
    engine.run([0, 1], max_epochs=2)
    engine.state.max_epochs = None
    engine.run([0, 1], max_epochs=2)
    assert len(masks) == 8
    assert all(torch.equal(a, b) for a, b in zip(masks[:4], masks[4:], strict=True))
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("bad", [IMAGE * 255, IMAGE - 0.5, IMAGE * float("nan")])
def test_images_out_of_range_are_refused_on_the_cpu(bad: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]|NaN|nan|finite"):
        PrepareLesionBatch()({"image": bad}, "cpu")


def test_inputs_come_in_the_order_of_their_keys() -> None:
    batch = {"b": torch.tensor([2.0]), "a": torch.tensor([1.0]), "label": torch.tensor([9])}
    first, label, others, keywords = PrepareInputs(["a", "b", "a"])(batch, "cpu", non_blocking=True)
    assert (first, others) == (batch["a"], (batch["b"], batch["a"]))
    assert label is None
    assert keywords == {}
    assert PrepareInputs(["a"])(batch)[2] == ()
    with pytest.raises(KeyError, match="absent"):
        PrepareInputs(["a", "absent"])(batch)


def test_other_lesions_cannot_be_made_on_the_device() -> None:
    with pytest.raises(TypeError, match="CutPasted"):
        PrepareLesionBatch(CutPasted("image"))  # type: ignore[arg-type]


def test_a_transform_says_which_lesions() -> None:
    options = {
        "num_masks": 3,
        "num_lesions": (2, 2),
        "lesion_size": (20, 30),
        "gamma": 0.4,
        "amplitude": (0.2, 0.3),
    }
    for transform in (SynthLesionMaskd("image", **options), SynthLesionMask(**options)):  # type: ignore[arg-type]
        _, _, lesions, _ = PrepareLesionBatch(transform, seed=5)({"image": IMAGE.clone()}, "cpu")
        expected = PrepareLesionBatch(options, seed=5)({"image": IMAGE.clone()}, "cpu")[2]
        assert all(torch.equal(one, other) for one, other in zip(lesions, expected, strict=True))
