# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

# %% [markdown]
# # 2. Your own DICOM folder to an anomaly work-list
#
# Two folders go in: DICOM files of *normal* radiographs, from which the detector learns what is normal in your clinic,
# and the new ones. A list comes out, the most suspicious image first, with a heat map for each, and a list of the
# files that could not be read.
#
# The folders are made here from the drawn phantom, because patients' images do not come with the package. Everything
# is a **miniature** of a minute or two (see [tutorial 1](1_pretrain_and_look.ipynb)). [The last
# section](#your-own-folders) has the three commands for your own folders. Not for clinical use.

# %%
import os
from pathlib import Path

# bundles are run from the root of the clone, wherever this notebook was started
root = next(
    folder
    for folder in (Path.cwd(), *Path.cwd().parents)
    if (folder / "bundles/afire/configs").is_dir()
)
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
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian, generate_uid

from monai_afire.data.phantom import draw_chest_phantom


def write_dicom(path: Path, image: np.ndarray, inverted: bool) -> None:
    """Write a picture (H, W) in [0, 1] as a DICOM file of 12 bits."""
    stored = np.round((1 - image if inverted else image) * 4095).astype("<u2")
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID, dataset.SOPInstanceUID = (
        DigitalXRayImageStorageForPresentation,
        generate_uid(),
    )
    dataset.Modality, dataset.PatientID = "DX", path.parent.name
    dataset.Rows, dataset.Columns = image.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = (
        1,
        "MONOCHROME1" if inverted else "MONOCHROME2",
    )
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = (
        16,
        12,
        11,
        0,
    )
    dataset.WindowCenter, dataset.WindowWidth = 2048, 4096
    dataset.set_pixel_data(stored, dataset.PhotometricInterpretation, 12)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)


for name in ("dicom", "adapting", "worklist"):  # of an earlier walk
    shutil.rmtree(output / name, ignore_errors=True)
for patient in range(256):
    phantom = draw_chest_phantom(1000 + patient, image_size=96)
    write_dicom(
        normal_folder / f"patient{patient:04d}/IM-0001.dcm",
        phantom.image[0],
        inverted=patient % 5 == 0,
    )

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
print(
    len(list(normal_folder.rglob("*.dcm"))),
    "normal files,",
    len(list(new_folder.rglob("*.dcm"))),
    "new ones",
)

# %% [markdown]
# ## A pre-trained network
#
# That of [tutorial 1](1_pretrain_and_look.ipynb), or the same once more where it is missing. At full scale this is the
# long step, on all normal radiographs that you have.

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
# The same tasks once more on the normal folder. A tenth of the patients is held out; on them soft nodules are painted,
# and the detector that tells painted from normal best is kept, with its statistics of normal images and its threshold.
# No label is needed.

# %% tags=["hide-output"]
run(
    config_file=[
        f"{configs}/train.json",
        f"{configs}/finetune_anomaly.json",
        "tutorials/miniature.json",
    ],
    dataset_dir=str(normal_folder),
    weights=str(pretrained),
    epochs=12,
    output_dir=str(output / "adapting"),
)

# %% [markdown]
# ## Judge the new images
#
# A file that cannot be read does not stop it. The command's exit code is then 2, so that a script can tell.

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
# held-out normal images are below, how many per cent of those have a lower score, and where in the picture the heat is
# strongest. Study, series and instance are named where the files name them. The last column is what only we know, who
# have drawn the patients. `scores.csv` has all scores, in the order of the files.

# %%
import pandas as pd

worklist = pd.read_csv(output / "worklist/worklist.csv")
worklist = worklist[["rank", "score", "decision", "percentile", "hottest", "image"]]
worklist["truth"] = [truth[Path(image).parent.name] for image in worklist["image"]]
worklist["image"] = [
    Path(image).relative_to(new_folder.resolve()).as_posix() for image in worklist["image"]
]
worklist.round(2)

# %%
first = worklist.head(8)["truth"] != "normal"
print(
    f"{first.sum()} of the 8 patients with lesions are among the first 8 of {len(worklist)}; by chance it would be 2.7"
)

# %% [markdown]
# How far that goes is a matter of network, images and luck: 24 patients are few. [The evaluation of the full
# bundle](../bundles/afire/docs/README.md#performance) has the figures, with intervals, baselines that see no
# lesion,
# and real radiographs, on which a few hundred images are *not* enough for a detector.
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
# With `saved=["overlays", "dicom", "maps", "embeddings"]` there are the same pictures as DICOM Secondary Captures in
# the study of their source, the maps in the geometry of the files, for a viewer, and the features, too.
#
# ## What could not be read

# %%
rejected = pd.read_csv(output / "worklist/rejected.csv")
rejected["image"] = [
    Path(image).relative_to(new_folder.resolve()).as_posix() for image in rejected["image"]
]
for _, row in rejected.iterrows():
    print(f"{row['image']}\n    {row['reason']}")

# %% [markdown]
# ## Your own folders
#
# The same at full scale, in a shell. DICOM, PNG, JPEG, TIFF and NIfTI may be mixed, folders nested.
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
# Without `--dataset_dir` the first two take the phantom, to try it out. The list is
# `worklist.csv` in the folder that the run prints.
#
# Before you use it for anything, measure it on labeled images with `evaluate.json`. Compare its AUC with those of
# `darkness` and `sharpness` in the report.
