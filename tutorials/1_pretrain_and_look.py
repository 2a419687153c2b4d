# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

# %% [markdown]
# # 1. Pre-train and look
#
# AFiRe learns from normal, unlabeled radiographs: it removes synthetic lesions from them, and each token of the vision
# transformer learns what is normal at its place of the chest. This tutorial pre-trains a network and looks at what
# tells whether it learns.
#
# It is a **miniature** of a minute or two on one CPU core: 256 drawn radiographs ("chest phantoms") of 64 x 64 pixels
# and a small network. The overlay `miniature.json` beside this notebook is all that makes it small; without it,
# `monai-afire run afire train --dataset_dir /path/to/images` trains on your images.

# %%
import os
import shutil
from pathlib import Path

# bundles are run from the root of the clone, wherever this notebook was started
parents = (Path.cwd(), *Path.cwd().parents)
root = next(each for each in parents if (each / "bundles/afire/configs").is_dir())
os.chdir(root)

# %% [markdown]
# ## The images
#
# Four phantoms, drawn from ellipsoids and tubes by the law of X-ray attenuation. The lesions of the last two are known.

# %%
import matplotlib.pyplot as plt

from monai_afire.data.phantom import draw_chest_phantom

phantoms = [
    draw_chest_phantom(seed, image_size=128, lesions=kinds)
    for seed, kinds in enumerate([(), (), ("nodule",), ("effusion",)])
]
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="compressed")
for axis, phantom in zip(axes, phantoms, strict=True):
    axis.imshow(phantom.image[0], cmap="gray", vmin=0, vmax=1)
    if phantom.lesions:
        axis.contour(phantom.lesion_mask[0], levels=[0.5], colors="tab:red", linewidths=1)
    axis.set_title(", ".join(lesion.kind for lesion in phantom.lesions) or "normal")
    axis.set_axis_off()
plt.show()

# %% [markdown]
# ## Pre-train
#
# `monai.bundle.run` takes a list of config files, of which each overrides the one before, and single values. In a shell
# the next cell reads
#
# ```bash
# monai-afire run afire train tutorials/miniature.json --epochs 16 --train::run::val_interval 2 \
#     --output_dir tutorials/output/pretraining \
#     --items::phantom::folder tutorials/output/phantom
# ```

# %% tags=["hide-output"]
from typing import Any

from monai.bundle import run

output = Path("tutorials/output")
# of an earlier walk: each run needs a folder of its own
shutil.rmtree(output / "pretraining", ignore_errors=True)
overrides: dict[str, Any] = {
    "epochs": 16,
    "train::run::val_interval": 2,
    "output_dir": str(output / "pretraining"),
    "items::phantom::folder": str(output / "phantom"),
}
run(config_file=["bundles/afire/configs/train.json", "tutorials/miniature.json"], **overrides)

# %% [markdown]
# ## The picture
#
# Held-out radiographs: as they are, with synthetic lesions, the masks of these, and what the network restores. A good
# sign is that lesions vanish while ribs and heart stay where they belong. Blur is no bad sign: the exact course of a
# rib that is hidden cannot be known.

# %%
figure, axis = plt.subplots(figsize=(8, 8), layout="compressed")
axis.imshow(plt.imread(output / "pretraining/restoration.png"), cmap="gray")
axis.set_axis_off()
plt.show()

# %% [markdown]
# ## The curves
#
# Everything that TensorBoard would show (`tensorboard --logdir tutorials/output/pretraining`) is in the event file.

# %%
import pandas as pd
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

(file,) = (output / "pretraining").glob("events.*")
events = EventAccumulator(str(file)).Reload()
rows = [
    (name, event.step, event.value)
    for name in events.Tags()["scalars"]
    for event in events.Scalars(name)
]
curves = pd.DataFrame(rows, columns=["name", "step", "value"])
curves.groupby("name")["value"].agg(["first", "last"]).round(4)

# %%
groups = {
    "losses": ["train/structure", "train/category", "train/restoration"],
    "what tells": ["validation/restoration_gain", "train/prototype_information"],
    "what does not": ["validation/position_accuracy"],
}
figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="compressed")
for axis, (title, names) in zip(axes, groups.items(), strict=True):
    for name in names:
        curve = curves.set_index("name").loc[[name]]
        steps = curve["step"] / curve["step"].max()  # figures are logged by step or by epoch
        axis.plot(steps, curve["value"], marker="." if len(curve) < 20 else None, label=name)
    axis.set(title=title, xlabel="share of the run")
    axis.legend()
axes[2].set_ylim(0, 1.05)
plt.show()

# %% [markdown]
# What to make of them:
#
# * **`restoration_gain`** is the share of a lesion's damage that the decoder repairs on held-out images: 1 perfect, 0
#   as bad as leaving the lesion, negative worse. It should rise above 0 and go on rising. Here it is not at its end:
#   the default run reaches about 0.6.
# * **`prototype_information`** is the alarm: near 0 every place of the chest has the same prototype, and the contrast
#   has collapsed. It should rise, too.
# * **Losses that fall** prove nothing alone. They fall in a collapse as well.
# * **`position_accuracy`**, the share of normal tokens nearest to the prototype of their own place, is near 1 from the
#   start, as the position embedding differs by place. It is *no* evidence of learning.
#
# What pre-training is worth is decided by what it is used for: [tutorial 2](2_dicom_folder_to_worklist.ipynb) looks for
# anomalies, [tutorial 3](3_one_percent_of_the_labels.ipynb) classifies with few labels.
#
# ## What is left on the disk

# %%
for path in sorted(path for path in (output / "pretraining").rglob("*") if path.is_file()):
    print(f"{path.stat().st_size / 1e6:7.2f} MB  {path}")

# %% [markdown]
# `model.pt` holds the weights alone and is what the next steps take; `checkpoint.pt` everything to go on with
# (`resume=True`).
