# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The AFiRe network: who sees what, how often, and what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from naive import afire
from torch import nn

from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe, patchify
from unit.tiny_networks import tiny_vit

B, N, L, K = 3, 2, 4, 6


def tiny_afire(dtype: torch.dtype = torch.float32, **changes: Any) -> AFiRe:
    torch.manual_seed(0)
    return AFiRe(tiny_vit(img_size=16), K, 12, 24, 1, 2, **changes).to(dtype)


def batch(
    seed: int = 0, images: int = B, variants: int = N, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, lesion images and maps; the lesion covers one random patch."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(images, 1, 16, 16, generator=generator)
    mask = torch.zeros(images, variants, 1, 16, 16)
    for i, n in np.ndindex(images, variants):
        corner = torch.randint(0, 2, (2,), generator=generator) * 8
        box = tuple(slice(int(c) + 1, int(c) + 7) for c in corner)
        mask[i, n, 0][box] = 0.5
    lesion_image = (image.unsqueeze(1) + mask).clamp(0, 1)
    return image.to(dtype), lesion_image.to(dtype), mask.to(dtype)


def count_calls(*modules: nn.Module) -> list[list[torch.Size]]:
    """Shapes of the first argument of every call of each module."""
    shapes: list[list[torch.Size]] = [[] for _ in modules]
    for module, seen in zip(modules, shapes, strict=True):
        module.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0].shape))
    return shapes


def test_lesion_images_without_an_axis_of_variants_are_one_variant() -> None:
    network = tiny_afire().eval()
    image, lesion_image, mask = batch(0, 3, 1)
    expected = network(image, lesion_image, mask)
    outputs = network(image, lesion_image[:, 0], mask[:, 0])
    assert all(torch.equal(outputs[name], expected[name]) for name in expected)


def test_pass_equals_one_assembled_by_hand() -> None:
    network = tiny_afire(torch.float64, student_temperature=0.2, teacher_temperature=0.05)
    image, lesion_image, mask = batch(dtype=torch.float64)
    outputs = network(image, lesion_image, mask)
    target = (patchify(image, 8) - network.encoder.mean) / network.encoder.std
    torch.testing.assert_close(outputs["target"], target.reshape(B, 1, L, 64))
    for i, n in np.ndindex(B, N):
        tokens = network.encoder(lesion_image[i, n].unsqueeze(0))
        expected = afire.softmax(network.head(tokens)[0].detach().numpy(), 0.2)
        np.testing.assert_allclose(outputs["q"][i, n].detach().numpy(), expected, rtol=0, atol=1e-9)
        abnormal = torch.tensor(afire.patch_labels(mask[i, n].unsqueeze(0).numpy(), 8))
        assert torch.equal(outputs["abnormal"][i, n], abnormal[0])
        restored = network.decoder(tokens, abnormal)[0]
        torch.testing.assert_close(outputs["restored"][i, n], restored, rtol=0, atol=1e-9)
    logits = network.teacher_head(network.teacher_encoder(image)).flatten(0, 1)
    q = afire.sinkhorn_knopp(logits.detach().numpy(), 0.05, 3).reshape(B, L, K)
    expected = afire.prototype_update(None, q, 0.9)
    np.testing.assert_allclose(outputs["prototypes"].numpy(), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(network.bank.prototypes.numpy(), expected, rtol=0, atol=1e-9)
    corrupted = network.eval()(image, lesion_image, mask)["corrupted"]
    assert torch.equal((corrupted != outputs["target"]).any(-1), outputs["abnormal"])


def test_teacher_sees_each_normal_image_once() -> None:
    network = tiny_afire()
    teacher, head, student = count_calls(
        network.teacher_encoder, network.teacher_head, network.encoder
    )
    network(*batch(0, B, 7))
    assert teacher == [(B, 1, 16, 16)]
    assert head == [(B, L, 24)]
    assert student == [(B * 7, 1, 16, 16)]


def test_teacher_and_bank_get_no_gradient_and_the_student_does() -> None:
    network = tiny_afire()
    outputs = network(*batch())
    assert not outputs["prototypes"].requires_grad
    AFiReLoss()(outputs).backward()
    for name, parameter in network.named_parameters():
        if name.startswith("teacher_"):
            assert not parameter.requires_grad
            assert parameter.grad is None
        elif parameter.requires_grad:
            assert parameter.grad is not None, name  # one without would stop distributed training
            assert torch.isfinite(parameter.grad).all()


def test_evaluation_leaves_the_bank_and_needs_no_teacher() -> None:
    network = tiny_afire()
    network(*batch(1))
    before = {name: value.clone() for name, value in network.bank.state_dict().items()}
    network.eval()
    (teacher,) = count_calls(network.teacher_encoder)
    outputs = network(*batch(2))
    assert teacher == []
    torch.testing.assert_close(dict(network.bank.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(outputs["prototypes"], before["prototypes"])
    network.train()
    network(*batch(2))
    assert network.bank.num_updates == 2


def test_switches_leave_work_out() -> None:
    network = tiny_afire(contrast=False)
    teacher, head, teacher_head = count_calls(
        network.teacher_encoder, network.head, network.teacher_head
    )
    assert sorted(network(*batch())) == ["abnormal", "restored", "target"]
    assert teacher == head == teacher_head == []
    assert network.bank.num_updates == 0
    network = tiny_afire(restore=False)
    (decoder,) = count_calls(network.decoder)
    for mode in (True, False):
        assert sorted(network.train(mode)(*batch())) == ["abnormal", "prototypes", "q"]
    assert decoder == []


def test_without_mask_tokens_abnormal_patches_are_seen() -> None:
    network = tiny_afire(torch.float64, use_mask_tokens=False)
    image, lesion_image, mask = batch(dtype=torch.float64)
    restored = network(image, lesion_image, mask)["restored"]
    expected = network.decoder(network.encoder(lesion_image.flatten(0, 1)))
    torch.testing.assert_close(restored.flatten(0, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_without_prototypes_each_image_has_the_teachers_assignment(training: bool) -> None:
    network = tiny_afire(torch.float64, use_prototypes=False).train(training)
    image, lesion_image, mask = batch(dtype=torch.float64)
    outputs = network(image, lesion_image, mask)
    logits = network.teacher_head(network.teacher_encoder(image)).flatten(0, 1)
    expected = afire.sinkhorn_knopp(logits.detach().numpy(), 0.04, 3).reshape(B, L, K)
    np.testing.assert_allclose(outputs["prototypes"].numpy(), expected, rtol=0, atol=1e-9)
    assert torch.isfinite(AFiReLoss()(outputs))
    assert network.bank.num_updates == int(training)


def test_features_instead_of_probabilities() -> None:
    network = tiny_afire(contrast_space="features")
    (head,) = count_calls(network.head)
    image, lesion_image, mask = batch()
    outputs = network(image, lesion_image, mask)
    assert head == []
    tokens = network.encoder(lesion_image.flatten(0, 1))
    expected = tokens / torch.linalg.vector_norm(tokens, dim=-1, keepdim=True)
    torch.testing.assert_close(outputs["q"].flatten(0, 1), expected)
    tokens = network.teacher_encoder(image)
    expected = tokens / torch.linalg.vector_norm(tokens, dim=-1, keepdim=True)
    torch.testing.assert_close(outputs["prototypes"], expected.mean(0))
    AFiReLoss(similarity="cosine")(outputs).backward()


def test_prototypes_of_a_pass_survive_the_next_pass() -> None:
    network = tiny_afire()
    loss = AFiReLoss()
    first = network(*batch(1))
    kept = first["prototypes"].clone()
    loss_of_first = loss(first)
    network(*batch(2))
    assert torch.equal(first["prototypes"], kept)
    loss_of_first.backward()  # fails if the bank changed a tensor that the graph saved
    assert not torch.equal(network.bank.prototypes, kept)


def test_restoring_an_image_alone() -> None:
    network = tiny_afire().eval()
    image, lesion_image, _ = batch()
    restored = network(image)
    assert restored.shape == image.shape
    assert restored.min() >= 0
    assert restored.max() <= 1
    patches = (
        network.decoder(network.encoder(image)) * network.encoder.std.item()
        + network.encoder.mean.item()
    )
    torch.testing.assert_close(patchify(restored, 8), patches.clamp(0, 1))
    assert torch.equal(network(image, lesion_image), restored)


def test_autocast_training_pass_is_finite_and_near() -> None:
    exact, loss = tiny_afire(), AFiReLoss()
    loss(exact(*batch()))
    expected = {name: term.item() for name, term in loss.terms.items()}
    network = tiny_afire()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = network(*batch())
        total = loss(outputs)
    total.backward()
    assert outputs["q"].dtype == outputs["prototypes"].dtype == torch.float32
    found = {name: term.item() for name, term in loss.terms.items()}
    assert found == pytest.approx(expected, rel=0.05)
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def test_unknown_contrast_space_is_refused() -> None:
    with pytest.raises(ValueError, match="contrast_space"):
        tiny_afire(contrast_space="logits")


@pytest.mark.parametrize("mode", [None, True])
def test_dropout_does_not_blur_the_teacher(mode: bool | None) -> None:
    network = AFiRe(tiny_vit(img_size=16, dropout_rate=0.5), K, 12, 24, 1, 2, use_prototypes=False)
    if mode:
        network.train()
    first, second = network(*batch()), network(*batch())
    torch.testing.assert_close(first["prototypes"], second["prototypes"])
    assert not torch.equal(first["q"], second["q"])
