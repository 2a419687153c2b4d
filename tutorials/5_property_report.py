# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

# %% [markdown]
# # 5. Reading the property report
#
# What do the features of an encoder know before anything is trained on top of them? The papers show maps, matches and
# atlases for that. Here one overlay makes all of them for any number of encoders, side by side, each with its number
# and with what chance, raw pixels or no encoder at all reach. This tutorial makes such a report and reads it study by
# study.
#
# It is a **miniature**: the small network of [tutorial 1](1_pretrain_and_look.ipynb) and 16 drawn radiographs of 64 x
# 64 pixels. Its numbers say *nothing* about AFiRe: with 16 images most differences are noise, the network has seen
# 256 drawings, and the untrained one is often as good. How to read a number is all that can be learned from them. The
# real thing is
#
# ```bash
# monai-afire run afire inference analysis --weights latest
# ```
#
# after `train.json`, with `--dataset_dir /path/to/images --datalist /path/to/list.json` for your images;
# `docs/encoders.md` says what a list may hold and how to compare other encoders.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt

plt.switch_backend("module://matplotlib_inline.backend_inline")  # the notebook shows figures

# bundles are run from the root of the clone, wherever this notebook was started
root = next(
    folder
    for folder in (Path.cwd(), *Path.cwd().parents)
    if (folder / "bundles/afire/configs").is_dir()
)
os.chdir(root)
output = Path("tutorials/output")

# %% [markdown]
# ## A pre-trained network
#
# That of [tutorial 1](1_pretrain_and_look.ipynb); where it is missing, one of two epochs has to do, which knows next
# to nothing.

# %% tags=["hide-output"]
from typing import Any

from monai.bundle import run

pretrained = output / "pretraining/models/model.pt"
if not pretrained.is_file():
    pretrained = output / "pretraining_briefly/models/model.pt"
    briefly: dict[str, Any] = {
        "epochs": 2,
        "train::run::val_interval": 2,
        "output_dir": str(output / "pretraining_briefly"),
        "items::phantom::folder": str(output / "phantom"),
    }
    run(
        config_file=["bundles/afire/configs/train.json", "tutorials/miniature.json"],
        **briefly,
    )

# %% [markdown]
# ## The report
#
# `ConfigWorkflow` is what `monai-afire run` runs; here it also hands out images and encoders afterwards.
# In a shell the next cell reads
#
# ```bash
# monai-afire run afire inference analysis \
#     --weights tutorials/output/pretraining/models/model.pt --output_dir tutorials/output/report \
#     --items::phantom::folder tutorials/output/phantom_report \
#     --phantom::num_patients "{'test': 16}" --images::max_images 16
# ```

# %% tags=["hide-output"]
from monai.bundle import ConfigWorkflow

overrides: dict[str, Any] = {
    "weights": str(pretrained),
    "output_dir": str(output / "report"),
    "items::phantom::folder": str(output / "phantom_report"),
    "phantom::num_patients": {"test": 16},
    "images::max_images": 16,
}
workflow = ConfigWorkflow(
    workflow_type="inference",
    config_file=[
        "bundles/afire/configs/inference.json",
        "bundles/afire/configs/analysis.json",
    ],
    **overrides,
)
workflow.initialize()
workflow.run()

# %% [markdown]
# `report.html` is one file with all pictures, to look at and to send; `report.json` has the same numbers.

# %%
import json

import pandas as pd

report = json.loads((output / "report/report.json").read_text())
tables = {study["title"]: pd.DataFrame(study["table"]).T.round(3) for study in report["studies"]}
print(*tables, sep="\n")
print("left out:", report["remarks"] or "nothing")

# %% [markdown]
# Studies that need what is not known of the images, e.g. landmarks, are left out, and the report says so. The phantom
# knows everything. `saliency_study` looks into fine-tuned classifiers and runs only if one is named.
#
# ## Maps: what lies together?

# %%
tables["Tokens by position"]

# %% [markdown]
# Tokens of nine positions in all images. **`purity`** is the share of the five nearest neighbors that come from the
# same position; **`chance_purity`** is what features without any meaning reach. The **`silhouette`** is 1 for tight
# groups far apart, 0 where they mix, negative where items lie nearer to another group.
#
# A purity near 1 looks like a success, but see the row `untrained`: a vision transformer adds an embedding of the
# position to each token, so that places differ before anything is learned. Even raw pixels are far above chance, as a
# corner of a radiograph is dark and its middle is not. Of this table only the *distance to the untrained row* may
# count, and it proves little: knowing where one is needs no look at the image.

# %%
tables["Landmarks by their surroundings"]

# %% [markdown]
# The harder question. A window is cut out around each landmark and enlarged to the whole input, so that its place is
# not known; are windows of the same landmark of *different patients* neighbors? Chance is one over the number of
# landmarks, as each is there equally often. An untrained network is a random but smooth projection of the pixels, so
# it keeps what looks alike alike: that, not chance, is the bar for a trained one.

# %%
tables["Images by group"]

# %% [markdown]
# Whole images by their findings. Groups differ in size here, so chance is above one over their number. With 16 images
# of several groups this is a table of noise; it needs hundreds, and even then says little where lesions are small:
# the mean of all tokens is dominated by the anatomy.
#
# **The pictures to these tables are t-SNE maps.** They are for the eye. Sizes of groups and distances between them
# mean nothing in them, and another seed gives another map: believe the purity, which is measured in the features
# themselves.
#
# ## Correspondence: is a landmark found in another patient?

# %%
correspondence = tables["Landmarks across patients and perturbations"]
correspondence[[column for column in correspondence if not column.endswith("removed")]]

# %% [markdown]
# A landmark's feature in one image is searched in another; the mean distance between where it is found and where it
# is, in pixels (of 64 here). A place drawn at random is off by about half of the side.
#
# **`same place`** looks at no image: it copies the coordinates. Across patients it is hard to beat, and that is no
# failure of the encoders: phantoms are well centered, as are many public sets, so a landmark really *is* about where
# it was, while an encoder answers with the center of a cell of 8 pixels (`stride`). An encoder that does as well may
# know positions and nothing else. Two kinds of columns tell the difference:
#
# * **across perturbations** the *same* image is moved, turned and enlarged, so that copying fails by as much as it
#   was moved;
# * **`position_removed`** subtracts the mean feature map of all images, which leaves nothing of a feature that
#   depends on the position alone.

# %%
correspondence[[column for column in correspondence if column.endswith("removed")]]

# %% [markdown]
# Errors near half of the side in this table mean that little else than position was there. With 16 images the mean
# map is a rough one, too: part of it is the image itself.
#
# The functions behind the studies can be called alone. The next cell takes images and encoders from the workflow and
# asks once more across patients, on a finer grid of places and with two reference images.

# %%
from monai_afire.apps.studies.correspondence import (
    correspondence_figure,
    found_landmarks_figure,
    landmark_correspondence,
    same_place_correspondence,
)

images = workflow.parser.get_parsed_content("images")
encoders = workflow.parser.get_parsed_content("study_encoders")
found = {
    name: landmark_correspondence(encoder, images.image, images.landmarks, [0, 8], stride=4)
    for name, encoder in encoders.items()
}
copied = same_place_correspondence(images.landmarks, images.image.shape[2:], [0, 8])
print(
    {
        name: round(float(table["error"].mean()), 1)
        for name, table in {**found, "same place": copied}.items()
    }
)
found_landmarks_figure(images.image, images.landmarks, found, 0, {"patient 1": 1, "patient 2": 2})

# %% [markdown]
# Left the reference with its landmarks; then, for each patient and encoder, the landmarks as they are and as they
# were found. Look for *kinds* of errors: the wrong side of the body (symmetric features), a neighboring rib
# (repeated texture), or all of them near a few cells (features that hardly differ). By landmark:

# %%
correspondence_figure({**found, "same place": copied}, images.landmark_names, "Across patients")

# %% [markdown]
# ## Left and right

# %%
tables["Left and right"]

# %% [markdown]
# Is the landmark most similar to the right hilum the left one? `partner_found` compares the windows as they are,
# `partner_found_mirrored` with one of them mirrored, which asks for less: chance is one over the number of other
# landmarks. The margin is how much more similar (cosine) the partner is than the average landmark; margins of two
# encoders cannot be compared if their features spread differently, shares can. Mirrored pixels of a symmetric drawing
# are alike, so raw pixels do well in the mirror: what they reach there is the bar.
#
# ## Organs without training

# %%
tables["Organs without training"]

# %% [markdown]
# Dense features of all images fall into 16 clusters, without masks; a few reference images then say which clusters
# are which organ. Between two rows lies all that can be had: **`same place`** again copies, **`limit of the
# resolution`** is what cells of 8 x 8 pixels could reach if the masks were known. Thin organs such as clavicles have
# a low limit, so judge by the organ, not by the mean. That clusters of features stay below `same place` on
# well-centered images is usual. There is no Dice of 0.5 "by chance": large organs reach some overlap with any cut.
#
# ## Composition

# %%
tables["Composition and decomposition"]

# %% [markdown]
# Is a patch's embedding the mean of its parts'? `similarity_2_parts` near 1 says *nothing* while
# `other_image_2_parts` is high, too: mean tokens of one encoder point much the same way. `own_nearer_2_parts` is the
# fair figure (chance 0.5), and untrained networks pass it, since averaging of similar pixels is enough. The two
# accuracies choose among 16 images; chance is in the last column. A figure of 1/16 in 16 images is one hit.
#
# ## Restoration (AFiRe alone)

# %%
tables["Restoration with and without mask tokens"]

# %% [markdown]
# Synthetic lesions, restored with mask tokens in their places, and without. A **gain** of 1 is perfect, 0 as bad as
# leaving the lesion, negative worse. In dB (larger is better) compare `psnr_with_mask` with `psnr_lesion`, the lesion
# left as it is, and with `psnr_normal_with_mask`, what the decoder makes of the same patches without a lesion: it
# cannot be expected to do better. That the encoder is told where the lesion is makes this a test of the decoder, not
# of finding lesions.

# %%
from monai_afire.apps.studies.restoration import restoration_figure, restorations

network = workflow.parser.get_parsed_content("network_def")
normal = images.image[[group == "normal" for group in images.group]][:3]
restored = restorations(network, normal, {"amplitude": (0.3, 1.0)})
restoration_figure(restored, network.encoder.patch_size, rows=range(len(normal)))

# %% [markdown]
# ## Prototypes (AFiRe alone)

# %%
tables["Atlas of prototypes"]

# %% [markdown]
# `prototype_information` is the alarm of [tutorial 1](1_pretrain_and_look.ipynb): 0 is a collapse.
# `organ_information` must be compared with its chance, the same prototypes at permuted positions: where nearly every
# position has a cluster of its own, it is high whatever the clusters mean. Only what lies between chance and limit is
# anatomy.
#
# ## What a report can and cannot say
#
# * Compare **rows of one table**, made of the same images: trained with untrained, with raw pixels, with copying.
# * A difference counts if it is there with other seeds of the pre-training and other images, too. The report has one.
# * Phantoms are well centered, symmetric and clean. What holds on them need not hold on patients.
# * What an encoder is worth is decided by what it is used for: fine-tune it ([tutorial
#   3](3_one_percent_of_the_labels.ipynb)).
