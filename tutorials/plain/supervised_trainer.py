# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe by MONAI's SupervisedTrainer: preparation of batches, teacher, schedules and clipping as handlers."""

import torch
from ignite.engine import Events
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedTrainer
from monai.handlers import StatsHandler
from monai.transforms import Compose, EnsureTyped
from monai.utils import set_determinism

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.engines import PrepareBatchLesions
from monai_afire.handlers import (
    AttributeSchedule,
    GradientClipping,
    OptimizerSchedule,
    TeacherUpdate,
)
from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe, ViTEncoder

set_determinism(seed=0)
EPOCHS = 4
items = [{"image": draw_chest_phantom(patient, image_size=64).image} for patient in range(48)]
data = Dataset(items, Compose([EnsureTyped("image", track_meta=False)]))
encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=96, num_layers=2, num_heads=3)
network = AFiRe(encoder, num_clusters=16, decoder_dim=64, decoder_layers=1, decoder_heads=2)
loss_function = AFiReLoss()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
losses: list[float] = []
trainer = SupervisedTrainer(
    device=torch.device("cpu"),
    max_epochs=EPOCHS,
    train_data_loader=DataLoader(data, batch_size=8, shuffle=True, drop_last=True),
    prepare_batch=PrepareBatchLesions({"num_masks": 2}),  # lesions of whole batches, on the device
    network=network,
    optimizer=optimizer,
    loss_function=lambda outputs, label: loss_function(outputs),  # there is no label
    decollate=False,  # the network returns a dictionary of named tensors
    train_handlers=[
        OptimizerSchedule(optimizer, "lr", EPOCHS, start=1e-3, end=1e-5, warmup_epochs=1),
        AttributeSchedule(network, "teacher_decay", EPOCHS, start=0.99, end=1.0),
        GradientClipping(network.parameters(), max_norm=3.0),
        TeacherUpdate(network),  # the moving average (EMA), after each step of the optimizer
        StatsHandler(tag_name="loss", output_transform=lambda output: output["loss"].item()),
    ],
)
trainer.add_event_handler(
    Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output["loss"].item())
)
trainer.run()
