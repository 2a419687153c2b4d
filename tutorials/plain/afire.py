# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""AFiRe in plain PyTorch: synthetic lesions, prototypes and restoration, on drawn radiographs."""

import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose, EnsureTyped
from monai.utils import set_determinism

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe, ViTEncoder
from monai_afire.transforms import SynthLesionMaskd

set_determinism(seed=0)
# with files: items = [{"image": "/path/to/a.png"}, ...], and LoadRadiographd("image") as the first transform
items = [{"image": draw_chest_phantom(patient, image_size=64).image} for patient in range(48)]
transform = Compose(
    [EnsureTyped("image", track_meta=False), SynthLesionMaskd("image", num_masks=2)]
)
loader = DataLoader(Dataset(items, transform), batch_size=8, shuffle=True, drop_last=True)

encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=96, num_layers=2, num_heads=3)
network = AFiRe(encoder, num_clusters=16, decoder_dim=64, decoder_layers=1, decoder_heads=2)
loss_function = AFiReLoss()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

losses = []
for epoch in range(4):
    for batch in loader:
        loss = loss_function(network(batch["image"], batch["lesion_image"], batch["lesion_mask"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        network.update_teacher()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: loss {sum(losses[-len(loader) :]) / len(loader):.3f}")
