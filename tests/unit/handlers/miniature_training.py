# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A whole pre-training that takes a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedTrainer
from monai.engines.utils import PrepareBatchExtraInput
from monai.transforms import Compose, RandScaleIntensityd
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from monai_afire.handlers import GradientClipping, OptimizerSchedule, TeacherUpdate, Training
from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe, ViTEncoder
from monai_afire.optimizers import weight_decay_groups
from monai_afire.transforms import SynthLesionMaskd
from monai_afire.utils.distributed import world_size


def make_trainer(
    folder: Path,
    seed: int = 0,
    epochs: int = 4,
    num_workers: int = 0,
    resume: bool = False,
    num_items: int = 6,
    batch_size: int = 2,
    **options: Any,
) -> SupervisedTrainer:
    """A whole pre-training in miniature, by all processes of the group; `seed` is that of the initial weights only."""
    torch.manual_seed(seed)
    brightest = [0.3 + 0.5 * i / num_items for i in range(num_items)]  # below 1 when scaled, too
    items = [{"image": torch.linspace(0, value, 256).reshape(1, 16, 16)} for value in brightest]
    transform = Compose(
        [
            RandScaleIntensityd("image", factors=0.2, prob=1.0),
            SynthLesionMaskd("image", num_masks=2, lesion_size=(0.3, 0.6)),
        ]
    )
    dataset = Dataset(items, transform)
    sampler = DistributedSampler(dataset, seed=5) if world_size() > 1 else None
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        shuffle=sampler is None,
        num_workers=num_workers,
    )
    encoder = ViTEncoder(
        img_size=16, patch_size=8, hidden_size=8, num_layers=1, num_heads=2, dropout_rate=0.1
    )
    network = AFiRe(
        encoder, num_clusters=4, head_dim=6, decoder_dim=8, decoder_layers=1, decoder_heads=2
    )
    optimizer = torch.optim.AdamW(weight_decay_groups(network), lr=1e-2)
    handlers: list[Any] = [
        OptimizerSchedule(optimizer, "lr", end=1e-4, warmup_epochs=1),
        GradientClipping(network.parameters(), 1.0),
        TeacherUpdate(network),
    ]
    training = Training(network, None, str(folder), handlers, seed=11, resume=resume, **options)
    # DDP orders gradients anew after the first step of a process, unless it must look for unused parameters; the sum of
    # more than two numbers depends on their order
    model = (
        DistributedDataParallel(network, find_unused_parameters=True)
        if world_size() > 1
        else network
    )
    return SupervisedTrainer(
        device="cpu",
        max_epochs=epochs,
        train_data_loader=loader,
        network=model,
        optimizer=optimizer,
        loss_function=AFiReLoss(),
        prepare_batch=PrepareBatchExtraInput(["lesion_image", "lesion_mask"]),
        train_handlers=[*handlers, training],
        decollate=False,
    )


def final_state(trainer: SupervisedTrainer) -> dict[str, Any]:
    return {"network": trainer.network.state_dict(), "optimizer": trainer.optimizer.state_dict()}


def assert_same(state: Any, expected: Any) -> None:
    torch.testing.assert_close(state, expected, rtol=0, atol=0)
