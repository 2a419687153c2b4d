# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

# %% [markdown]
# # 2. Your own DICOM folder to an anomaly work-list
#
# Two folders go in: DICOM files of *normal* radiographs, from which the detector learns what is normal in your clinic,
# and the new ones. A list comes out, the most suspicious image first, with a heat map for each, and a list of the
# files that could not be read.
#
# This is a **miniature** of a minute or two with drawn images (see [tutorial 1](1_pretrain_and_look.ipynb)). [The last
# section](#your-own-folders) has the three commands for your own folders. Not for clinical use.

# %%
import os
from pathlib import Path

# bundles are run from the root of the clone, wherever this notebook was started
parents = (Path.cwd(), *Path.cwd().parents)
root = next(each for each in parents if (each / "bundles/afire/configs").is_dir())
os.chdir(root)
output = Path("tutorials/output")
normal_folder, new_folder = output / "dicom/normal", output / "dicom/new"

# %% [markdown]
# ## A DICOM folder
#
# As an archive exports it: a folder per patient, 12 bits stored in 16, some pictures inverted (MONOCHROME1). The new
# ones are 24 patients, of whom 8 have two lesions each. One file was cut in transfer, and one is a report that ended
# up in the wrong place.

# %%
import shutil

import numpy as np
import pydicom
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

from monai_afire.data.phantom import draw_chest_phantom


def write_dicom(path: Path, image: np.ndarray, inverted: bool) -> None:
    """Write a picture (H, W) in [0, 1] as a DICOM file of 12 bits."""
    stored = np.round((1 - image if inverted else image) * 4095).astype("<u2")
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = DigitalXRayImageStorageForPresentation
    dataset.Modality, dataset.PatientID = "DX", path.parent.name
    dataset.WindowCenter, dataset.WindowWidth = 2048, 4096
    dataset.set_pixel_data(stored, "MONOCHROME1" if inverted else "MONOCHROME2", 12)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)


for name in ("dicom", "adapting", "worklist"):  # of an earlier walk
    shutil.rmtree(output / name, ignore_errors=True)
for patient in range(256):
    path = normal_folder / f"patient{patient:04d}/IM-0001.dcm"
    phantom = draw_chest_phantom(1000 + patient, image_size=96)
    write_dicom(path, phantom.image[0], inverted=patient % 5 == 0)

findings = [
    ("consolidation", "effusion"),
    ("cardiomegaly", "effusion"),
    ("consolidation", "consolidation"),
]
truth = {}
for patient in range(24):
    lesions = findings[patient // 3 % 3] if patient % 3 == 0 else ()
    phantom = draw_chest_phantom(5000 + patient, image_size=96, lesions=lesions)
    path = new_folder / f"patient{patient:04d}/IM-0001.dcm"
    write_dicom(path, phantom.image[0], inverted=patient % 5 == 0)
    truth[path.parent.name] = ", ".join(lesions) or "normal"

whole = (new_folder / "patient0001/IM-0001.dcm").read_bytes()
(new_folder / "patient0001/IM-0002.dcm").write_bytes(whole[: len(whole) // 2])
(new_folder / "patient0002/IM-0002.dcm").write_text("Findings: none.")
normal, new = (len(list(folder.rglob("*.dcm"))) for folder in (normal_folder, new_folder))
print(normal, "normal files,", new, "new ones")

# %% [markdown]
# ## A pre-trained network
#
# That of [tutorial 1](1_pretrain_and_look.ipynb), or the same once more where it is missing.

# %% tags=["hide-output"]
from monai.bundle import run

configs = "bundles/afire/configs"
pretrained = output / "pretraining/models/model.pt"
if not pretrained.is_file():
    run(
        config_file=[f"{configs}/train.json", "tutorials/miniature.json"],
        epochs=16,
        output_dir=str(output / "pretraining"),
        **{"items::phantom::folder": str(output / "phantom")},
    )

# %% [markdown]
# ## Adapt it to your normal images
#
# The same once more on the normal folder, without labels. On a tenth of the patients, held out, soft nodules are
# painted, and the detector that tells these best is kept, with its statistics of normal images and its threshold.

# %% tags=["hide-output"]
run(
    config_file=[f"{configs}/{name}.json" for name in ("train", "finetune_anomaly")]
    + ["tutorials/miniature.json"],
    dataset_dir=str(normal_folder),
    weights=str(pretrained),
    epochs=12,
    output_dir=str(output / "adapting"),
)

# %% [markdown]
# ## Judge the new images
#
# A file that cannot be read does not stop it; the exit code is then 2.

# %% tags=["hide-output"]
try:
    run(
        config_file=f"{configs}/inference.json",
        dataset_dir=str(new_folder),
        weights=str(output / "adapting/models/model.pt"),
        output_dir=str(output / "worklist"),
    )
except SystemExit as end:
    print("exit code", end.code)

# %% [markdown]
# ## The work-list
#
# `worklist.csv` has the most suspicious image first: its score, whether it is above the threshold, which 95 % of the
# held-out normal images are below, how many per cent of those have a lower score, and where the heat is strongest. The
# last column is what only we know, who have drawn the patients.

# %%
import pandas as pd

worklist = pd.read_csv(output / "worklist/worklist.csv")
worklist = worklist[["rank", "score", "decision", "percentile", "hottest", "image"]]
worklist["truth"] = [truth[Path(image).parent.name] for image in worklist["image"]]
worklist["image"] = ["/".join(Path(image).parts[-2:]) for image in worklist["image"]]
worklist.round(2)

# %%
first = worklist.head(8)["truth"] != "normal"
print(f"{first.sum()} of the first 8 of {len(worklist)} have lesions; by chance it would be 2.7")

# %% [markdown]
# 24 patients are few. [The evaluation of the full bundle](../bundles/afire/docs/README.md#performance) has the figures,
# also of real radiographs, on which a few hundred images are *not* enough for a detector.
#
# ## Heat maps
#
# Red is where the image is unlike normal ones at the same place. The first four of the list:

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, 2, figsize=(12, 7), layout="compressed")
for axis, (_, row) in zip(axes.flat, worklist.head(4).iterrows(), strict=True):
    axis.imshow(plt.imread(output / "worklist/overlays" / f"{row['image']}.jpg"))
    axis.set_title(f"{Path(row['image']).parent}: {row['truth']}", fontsize=9)
    axis.set_axis_off()
plt.show()

# %% [markdown]
# ## What could not be read

# %%
rejected = pd.read_csv(output / "worklist/rejected.csv")
for _, row in rejected.iterrows():
    print(f"{'/'.join(Path(row['image']).parts[-2:])}\n    {row['reason']}")

# %% [markdown]
# ## Your own folders
#
# The same at full scale, in a shell:
#
# ```bash
# # 1. pre-train on normal radiographs, as many as there are
# monai-afire run afire train --dataset_dir /path/to/normal
# # 2. adapt, and fit statistics and threshold, on normal radiographs of the hospital that is to use it
# monai-afire run afire train finetune_anomaly --weights latest --dataset_dir /path/to/normal
# # 3. judge new ones
# monai-afire run afire inference --weights latest --dataset_dir /path/to/new
# ```
#
# Without the first two steps and `--weights`, the third uses the released detector for adults. This is the first
# and the last of its list on 60 real radiographs, half of them with pneumonia (images: NIH Clinical Center,
# ChestX-ray14):
#
# ![six radiographs beside their heat maps](../bundles/afire/docs/worklist.jpg)
#
# Before you use it for anything, measure it on labeled images with `evaluate.json`. Compare its AUC with those of
# `darkness` and `sharpness` in the report.
