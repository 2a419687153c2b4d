# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE in plain PyTorch: a patch of a large crop is composed of patches of a small one, on drawn radiographs."""

import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose, EnsureTyped
from monai.utils import set_determinism

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.losses import ACELoss
from monai_afire.networks import ACE, ViTEncoder
from monai_afire.transforms import GridCropPaird

set_determinism(seed=0)
KEYS = ("image_1", "image_2", "offset_1", "offset_2")
# with files: items = [{"image": "/path/to/a.png"}, ...], and LoadRadiographd("image") as the first transform
items = [{"image": draw_chest_phantom(patient, image_size=144).image} for patient in range(48)]
transform = Compose(
    [
        EnsureTyped("image", track_meta=False),
        # crops of 8 x 8 and of 16 x 16 cells, both resized to 64 pixels
        GridCropPaird("image", grid=18, cell=8, crops=(8, 16), out_size=64, jitter=False, align=2),
    ]
)
loader = DataLoader(Dataset(items, transform), batch_size=8, shuffle=True, drop_last=True)

encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=96, num_layers=2, num_heads=3)
network, loss_function = ACE(encoder), ACELoss()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

losses = []
for epoch in range(4):
    for batch in loader:
        loss = loss_function(network(*(batch[key] for key in KEYS)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        network.update_teacher()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: loss {sum(losses[-len(loader) :]) / len(loader):.3f}")
