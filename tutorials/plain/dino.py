# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DINO in plain PyTorch: what a teacher makes of large crops, a student predicts from small ones."""

import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose, EnsureTyped
from monai.utils import set_determinism

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.losses import DINOLoss
from monai_afire.networks import DINO, ViTEncoder
from monai_afire.transforms import RandMultiCropd

set_determinism(seed=0)
# with files: items = [{"image": "/path/to/a.png"}, ...], and LoadRadiographd("image") as the first transform
items = [{"image": draw_chest_phantom(patient, image_size=96).image} for patient in range(48)]
transform = Compose(
    [
        EnsureTyped("image", track_meta=False),
        RandMultiCropd("image", global_size=64, local_size=32, num_local=4),
    ]
)
loader = DataLoader(Dataset(items, transform), batch_size=8, shuffle=True, drop_last=True)

encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=96, num_layers=2, num_heads=3)
network = DINO(encoder, num_prototypes=64, head_dim=64, bottleneck_dim=32)
loss_function = DINOLoss()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

losses = []
for epoch in range(4):
    for batch in loader:
        loss = loss_function(network(batch["global_crops"], batch["local_crops"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        network.update_teacher()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: loss {sum(losses[-len(loader) :]) / len(loader):.3f}")
