# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

# %% [markdown]
# # 4. `SynthLesionMaskd` and `GridCropPaird` in an existing MONAI pipeline
#
# A plain MONAI program, without bundles: a `CacheDataset`, a `DataLoader`, an `AutoEncoder` and a training loop in
# PyTorch. Two transforms of this package go into it.

# %%
import matplotlib.pyplot as plt
import torch
from monai.data import CacheDataset, DataLoader
from monai.networks.nets import AutoEncoder
from monai.transforms import Compose, EnsureTyped, RandAdjustContrastd
from monai.utils import set_determinism

from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.transforms import GridCropPaird, SynthLesionMaskd

set_determinism(seed=0)

# %% [markdown]
# The images are drawn. With files, put `LoadRadiographd(keys="image")` first: it reads them into `(1, H, W)` in [0, 1],
# upright and bright = dense.

# %%
items = [{"image": draw_chest_phantom(patient, image_size=96).image} for patient in range(72)]

# %% [markdown]
# ## Lesions
#
# `SynthLesionMaskd` paints soft, irregular opacities into normal radiographs. It is an ordinary random dictionary
# transform, which leaves `image` as it is and adds `lesion_image` and `lesion_mask`; `num_masks=2` asks for two
# variants of each image, with one axis more.

# %%
transform = Compose(
    [
        EnsureTyped(keys="image", track_meta=False),
        RandAdjustContrastd(keys="image", gamma=(0.8, 1.2)),
        # lesion sizes are pixels for a 224 x 224 image and scale with it
        SynthLesionMaskd(keys="image", num_masks=2, num_lesions=(1, 4), lesion_size=(16, 64)),
    ]
)
loader = DataLoader(
    CacheDataset(items[:64], transform, progress=False), batch_size=16, shuffle=True
)
batch = next(iter(loader))
for name in ("image", "lesion_image", "lesion_mask"):
    print(f"{name:<14}{tuple(batch[name].shape)}")


# %%
def show(**rows: torch.Tensor) -> None:
    """Four pictures ``(C, H, W)`` of each of three kinds, a row each."""
    _, axes = plt.subplots(3, 4, figsize=(8, 6.2), layout="compressed")
    for own, (name, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(own, pictures, strict=False):
            axis.imshow(picture[0], cmap="gray", vmin=0, vmax=1)
            axis.set_axis_off()
        own[0].set_title(name, loc="left")
    plt.show()


show(
    image=batch["image"],
    lesion_image=batch["lesion_image"][:, 0],
    lesion_mask=batch["lesion_mask"][:, 0],
)

# %% [markdown]
# ### Train something on them
#
# A network of MONAI is to remove the lesions.

# %%
network = AutoEncoder(
    spatial_dims=2, in_channels=1, out_channels=1, channels=(16, 32, 64), strides=(2, 2, 2)
)
optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
losses = []
for _ in range(15):
    for batch in loader:
        damaged = batch["lesion_image"].flatten(0, 1)
        normal = batch["image"].repeat_interleave(2, dim=0)
        loss = torch.nn.functional.l1_loss(network(damaged), normal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(f"mean absolute error: {losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last")

# %%
network.eval()
held_out = next(iter(DataLoader(CacheDataset(items[64:], transform, progress=False), batch_size=4)))
with torch.no_grad():
    restored = network(held_out["lesion_image"][:, 0])
show(normal=held_out["image"], damaged=held_out["lesion_image"][:, 0], restored=restored)

# %% [markdown]
# Sixty steps of a small network weaken the lesions.
#
# ### Masks as labels of tokens
#
# For a vision transformer, `patch_labels` turns the masks into labels: which tokens does a lesion cover?

# %%
from monai_afire.networks import patch_labels

abnormal = patch_labels(batch["lesion_mask"].flatten(0, 1), patch_size=16)
print(f"{tuple(abnormal.shape)} tokens, {abnormal.float().mean():.0%} of them abnormal")

# %% [markdown]
# ### On the GPU
#
# The lesions of a whole batch can be made where the batch is, without loader workers:

# %%
from monai_afire.transforms import synth_lesion_masks

device = "cuda" if torch.cuda.is_available() else "cpu"
lesion_images, lesion_masks = synth_lesion_masks(batch["image"].as_tensor().to(device), num_masks=9)
print(tuple(lesion_images.shape), tuple(lesion_masks.shape))

# %% [markdown]
# ## Two crops of which you know what corresponds
#
# `GridCropPaird` lays a grid over the image, shifts it at random, and cuts two crops of whole cells. Where the crops
# overlap, their patches show exactly the same pixels, and the offsets say which. Any contrastive method on patches can
# use that.

# %%
grid, cell, crop = 10, 12, 7
crops = Compose(
    [
        EnsureTyped(keys="image", track_meta=False),
        GridCropPaird(keys="image", grid=grid, cell=cell, crops=(crop, crop)),
    ]
)
pair = next(iter(DataLoader(CacheDataset(items[:8], crops, progress=False), batch_size=8)))
for name, values in pair.items():
    print(f"{name:<10}{tuple(values.shape)}")

# %%
from monai_afire.networks import patchify
from monai_afire.transforms import matching_patches

# -1: not in the other crop
matches = matching_patches(pair["offset_1"], pair["offset_2"], crops=(crop, crop))
patches_1, patches_2 = (patchify(pair[name], patch_size=cell) for name in ("image_1", "image_2"))
image, patch = torch.nonzero(matches >= 0, as_tuple=True)
same = torch.equal(patches_1[image, patch], patches_2[image, matches[image, patch]])
print(f"{len(image)} of {matches.numel()} patches lie in both crops; pixels equal: {same}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="compressed")
colors = plt.colormaps["hsv"](torch.arange(crop * crop) / crop**2)
for axis, name in zip(axes, ("image_1", "image_2"), strict=True):
    axis.imshow(pair[name][0, 0], cmap="gray", vmin=0, vmax=1)
    axis.set_title(name)
    axis.set_axis_off()
for first, second in enumerate(matches[0].tolist()):
    if second >= 0:
        for axis, place in zip(axes, (first, second), strict=True):
            row, column = divmod(place, crop)
            corner = (column * cell - 0.5, row * cell - 0.5)
            axis.add_patch(
                plt.Rectangle(corner, cell, cell, color=colors[first], alpha=0.35, linewidth=0)
            )
plt.show()

# %% [markdown]
# Patches of one color show the same place. A consistency loss on them is one line, with any encoder that gives a
# token per patch:
#
# ```python
# loss = (tokens_1[image, patch] - tokens_2[image, matches[image, patch]]).square().mean()
# ```
#
# `LocalConsistencyLoss` (PEAC) and `MatchingLoss` (ACE) of `monai_afire.losses` are what the papers make of it.
