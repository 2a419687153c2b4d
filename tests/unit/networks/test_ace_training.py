# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE learns; in MONAI's trainer it does the same as by hand."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedTrainer
from monai.engines.utils import PrepareBatchExtraInput
from monai.utils import set_determinism

from monai_afire.handlers.teacher import TeacherUpdate
from monai_afire.losses.ace import ACELoss
from monai_afire.metrics.ace import ace_metrics
from monai_afire.networks.nets.ace import ACE
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.transforms import GridCropPaird


def small_ace(width: int = 8, num_layers: int = 1, teacher_decay: float = 0.996) -> ACE:
    torch.manual_seed(0)
    encoder = ViTEncoder(
        img_size=16, patch_size=4, hidden_size=width, num_layers=num_layers, num_heads=2
    )
    return ACE(encoder, teacher_decay=teacher_decay)


def crop_pairs(images: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Crops of blurred noise and their offsets, in the order of the network's arguments."""
    noise = torch.rand(images, 1, 12, 12, generator=torch.Generator().manual_seed(seed))
    crop = GridCropPaird("image", 10, 4, (4, 8), 16, jitter=False, align=2).set_random_state(seed)
    pairs = [crop({"image": image}) for image in F.interpolate(noise, (40, 40), mode="bilinear")]
    keys = ("image_1", "image_2", "offset_1", "offset_2")
    return [{key: torch.as_tensor(pair[key]) for key in keys} for pair in pairs]


def batch(seed: int) -> list[torch.Tensor]:
    return [
        torch.stack(values)
        for values in zip(*(pair.values() for pair in crop_pairs(4, seed)), strict=True)
    ]


def test_monais_trainer_takes_the_steps() -> None:
    """With the keys of the transform as extra inputs and the loss on the dictionary, as a bundle has it."""
    network, loss = small_ace(teacher_decay=0.5), ACELoss()
    by_hand = copy.deepcopy(network)

    def optimizer(of: ACE) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for p in of.parameters() if p.requires_grad], lr=0.01)

    data = [{"image": pair["image_1"], **pair} for seed in range(3) for pair in crop_pairs(4, seed)]
    trainer = SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=DataLoader(Dataset(data), batch_size=4),
        network=network,
        optimizer=optimizer(network),
        loss_function=loss,
        prepare_batch=PrepareBatchExtraInput(["image_2", "offset_1", "offset_2"]),
        train_handlers=[TeacherUpdate(network)],
        decollate=False,
    )
    trainer.run()
    steps = optimizer(by_hand)
    for seed in range(3):
        steps.zero_grad()
        value = ACELoss()(by_hand(*batch(seed)))
        value.backward()
        steps.step()
        by_hand.update_teacher()
    assert (
        trainer.state.output["loss"].item()
        == loss.terms["total"].item()
        == pytest.approx(value.item(), rel=1e-5)
    )
    for name, expected in by_hand.state_dict().items():
        torch.testing.assert_close(
            network.state_dict()[name], expected, rtol=1e-5, atol=1e-7, msg=name
        )


@pytest.mark.slow
def test_training_learns_to_match() -> None:
    """On four fixed pairs of crops of random images both accuracies rise far above chance, and the loss falls."""
    set_determinism(0)
    try:
        pairs = [list(pair.values()) for pair in crop_pairs(4)]
        crops = [torch.stack(values) for values in zip(*pairs, strict=True)]
        network, loss = small_ace(width=32, num_layers=2, teacher_decay=0.99), ACELoss()
        optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=3e-3)
        first = loss(network(*crops)).item()
        for _ in range(300):
            optimizer.zero_grad()
            loss(network(*crops)).backward()
            optimizer.step()
            network.update_teacher()
        metrics = ace_metrics(network.eval()(*crops))
    finally:
        set_determinism(None)
    assert loss.terms["total"].item() < 0.3 * first
    assert metrics["composition_accuracy"] > 0.6  # chance is 1/16
    assert metrics["decomposition_accuracy"] > 0.2
    assert metrics["global_information"] > 0.01
