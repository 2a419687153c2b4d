# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

# %% [markdown]
# # 5. Reading the property report
#
# What do the features of an encoder know before anything is trained on top of them? One overlay runs the studies of the
# papers for any number of encoders, side by side, beside what chance, raw pixels or no encoder at all reach. This
# tutorial makes such a report and reads it study by study.
#
# It is a **miniature**: the small network of [tutorial 1](1_pretrain_and_look.ipynb) and 16 drawn radiographs of 64 x
# 64 pixels. Its numbers say *nothing* about AFiRe; how to read them is all that can be learned here. For your images
# and other encoders see "Property studies" in `docs/encoders.md`.

# %%
import json
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from monai.bundle import ConfigWorkflow, run

plt.switch_backend("module://matplotlib_inline.backend_inline")  # the notebook shows figures

# bundles are run from the root of the clone, wherever this notebook was started
parents = (Path.cwd(), *Path.cwd().parents)
root = next(each for each in parents if (each / "bundles/afire/configs").is_dir())
os.chdir(root)
output = Path("tutorials/output")

# %% [markdown]
# ## A pre-trained network
#
# That of [tutorial 1](1_pretrain_and_look.ipynb), or the same once more where it is missing.

# %% tags=["hide-output"]
pretrained = output / "pretraining/models/model.pt"
if not pretrained.is_file():
    run(
        config_file=["bundles/afire/configs/train.json", "tutorials/miniature.json"],
        epochs=16,
        output_dir=str(output / "pretraining"),
        **{"items::phantom::folder": str(output / "phantom")},
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
#     --phantom::num_patients "{'test': 16}"
# ```

# %% tags=["hide-output"]
overrides: dict[str, Any] = {
    "weights": str(pretrained),
    "output_dir": str(output / "report"),
    "items::phantom::folder": str(output / "phantom_report"),
    "phantom::num_patients": {"test": 16},
}
configs = [f"bundles/afire/configs/{name}.json" for name in ("inference", "analysis")]
workflow = ConfigWorkflow(workflow_type="inference", config_file=configs, **overrides)
workflow.initialize()
workflow.run()

# %% [markdown]
# `report.html` is one file with all pictures; `report.json` has the same numbers.

# %%
report = json.loads((output / "report/report.json").read_text())
tables = {study["title"]: pd.DataFrame(study["table"]).T.round(3) for study in report["studies"]}
print(*tables, sep="\n")
print("left out:", report["remarks"] or "nothing")

# %% [markdown]
# Studies that need what is not known of the images, e.g. landmarks, are left out, and the report says so.
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
# position to each token. Even raw pixels are far above chance, as a corner of a radiograph is dark and its middle is
# not. Only the *distance to the untrained row* may count, and it proves little.

# %%
tables["Landmarks by their surroundings"]

# %% [markdown]
# The harder question: are windows around the same landmark of *different patients* neighbors, when each is enlarged to
# the whole input, so that its place is not known? An untrained network keeps what looks alike alike: that, not chance,
# is the bar for a trained one.

# %%
tables["Images by group"]

# %% [markdown]
# Whole images by their findings. With 16 images this is a table of noise; it needs hundreds, and even then says little
# where lesions are small.
#
# **The pictures to these tables are t-SNE maps**, for the eye: sizes of groups and distances between them mean nothing.
#
# ## Correspondence: is a landmark found in another patient?

# %%
correspondence = tables["Landmarks across patients and perturbations"]
correspondence[[column for column in correspondence if not column.endswith("removed")]]

# %% [markdown]
# A landmark's feature in one image is searched in another; the error is the mean distance in pixels (of 64 here). A
# place drawn at random is off by about half of the side.
#
# **`same place`** looks at no image: it copies the coordinates. Across patients it is hard to beat: phantoms are well
# centered, as are many public sets, while an encoder answers with the center of a cell of 8 pixels (`stride`). An
# encoder that does as well may know positions and nothing else. Two kinds of columns tell the difference:
#
# * **across perturbations** the *same* image is moved, turned and enlarged, so that copying fails;
# * **`position_removed`** subtracts the mean feature map of all images, which leaves nothing of a feature that
#   depends on the position alone. Errors near half of the side mean that little else was there.

# %%
correspondence[[column for column in correspondence if column.endswith("removed")]]

# %% [markdown]
# The functions behind the studies can be called alone, here on a finer grid of places.

# %%
from monai_afire.apps.studies.correspondence import found_landmarks_figure, landmark_correspondence

images = workflow.parser.get_parsed_content("images")
encoders = workflow.parser.get_parsed_content("study_encoders")
found = {
    name: landmark_correspondence(encoder, images.image, images.landmarks, [0], stride=4)
    for name, encoder in encoders.items()
}
print({name: round(table["error"].mean(), 1) for name, table in found.items()})
found_landmarks_figure(images.image, images.landmarks, found, 0, {"patient 1": 1, "patient 2": 2})

# %% [markdown]
# Left the reference with its landmarks; then, for each patient and encoder, the landmarks as they are and as they
# were found. Look for *kinds* of errors: the wrong side of the body (symmetric features), a neighboring rib
# (repeated texture), or all of them near a few cells (features that hardly differ).
#
# ## Left and right

# %%
tables["Left and right"]

# %% [markdown]
# Is the landmark most similar to the right hilum the left one? `partner_found` compares the windows as they are,
# `partner_found_mirrored` with one of them mirrored; chance is one over the number of other landmarks. Mirrored pixels
# of a symmetric drawing are alike, so raw pixels do well in the mirror: what they reach there is the bar.
#
# ## Organs without training

# %%
tables["Organs without training"]

# %% [markdown]
# Dense features of all images fall into 16 clusters, without masks; a few reference images then say which clusters
# are which organ. **`same place`** again copies, **`limit of the resolution`** is what cells of 8 x 8 pixels could
# reach if the masks were known. Judge by the organ, not by the mean: thin ones have a low limit.
#
# ## Composition

# %%
tables["Composition and decomposition"]

# %% [markdown]
# Is a patch's embedding the mean of its parts'? `similarity_2_parts` near 1 says *nothing* while
# `other_image_2_parts` is high, too. `own_nearer_2_parts` is the fair figure (chance 0.5), and untrained networks pass
# it, since averaging of similar pixels is enough. The two accuracies choose among 16 images; chance is in the last
# column.
#
# ## Restoration (AFiRe alone)

# %%
tables["Restoration with and without mask tokens"]

# %% [markdown]
# Synthetic lesions, restored with mask tokens in their places, and without. A **gain** of 1 is perfect, 0 as bad as
# leaving the lesion, negative worse. In dB (larger is better) compare `psnr_with_mask` with `psnr_lesion`, the lesion
# left as it is, and with `psnr_normal_with_mask`, what the decoder makes of the same patches without a lesion. As the
# encoder is told where the lesion is, this is a test of the decoder, not of finding lesions.
#
# ## Prototypes (AFiRe alone)

# %%
tables["Atlas of prototypes"]

# %% [markdown]
# `prototype_information` is the alarm of [tutorial 1](1_pretrain_and_look.ipynb): 0 is a collapse.
# `organ_information` must be compared with its chance, the same prototypes at permuted positions: only what lies
# between chance and limit is anatomy.
#
# ## What a report can and cannot say
#
# * Compare **rows of one table**: trained with untrained, with raw pixels, with copying.
# * A difference counts if it is there with other seeds of the pre-training and other images, too. The report has one.
# * Phantoms are well centered, symmetric and clean. What holds on them need not hold on patients.
# * What an encoder is worth is decided by what it is used for: fine-tune it ([tutorial
#   3](3_one_percent_of_the_labels.ipynb)).
