# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""PEAC in plain PyTorch: two crops of one grid, one of them distorted, on drawn radiographs."""

import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose, CopyItemsd, EnsureTyped
from monai.utils import set_determinism

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.losses import PEACLoss
from monai_afire.networks import PEAC, ViTEncoder
from monai_afire.transforms import GridCropPaird, RandAppearanceDistortiond, RandPatchShuffled

set_determinism(seed=0)
KEYS = ("image_1", "image_2", "distorted", "distorted_order", "shuffled", "offset_1", "offset_2")
# with files: items = [{"image": "/path/to/a.png"}, ...], and LoadRadiographd("image") as the first transform
items = [{"image": draw_chest_phantom(patient, image_size=96).image} for patient in range(48)]
transform = Compose(
    [
        EnsureTyped("image", track_meta=False),
        GridCropPaird("image", grid=12, cell=8, crops=(8, 8)),
        CopyItemsd("image_1", names="distorted"),
        RandPatchShuffled("distorted", patch_size=8, prob=0.5),
        RandAppearanceDistortiond("distorted", skip_key="shuffled"),
    ]
)
loader = DataLoader(Dataset(items, transform), batch_size=8, shuffle=True, drop_last=True)

encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=96, num_layers=2, num_heads=3)
network = PEAC(encoder, expander_dim=64, expander_hidden_dim=128)
loss_function = PEACLoss()
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
