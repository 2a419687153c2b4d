# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of prototypes for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.prototypes.figures import atlas_figure, cluster_figure
from monai_afire.analysis.prototypes.measures import (
    atlas_scores,
    cluster_patches,
    largest_clusters,
    organ_shares,
    patch_windows,
    prototype_atlas,
)
from monai_afire.analysis.study import StudyResult
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["PrototypeStudy"]

_QUESTION = (
    "What does each of AFiRe's prototypes stand for? A prototype is a probability vector over clusters for one "
    "position. prototype_information: what the cluster tells about the position; 0 is a collapse, 1 the most. "
    "prototype_entropy: 1 means that every prototype is uniform and says nothing. organ_information, where masks are "
    "known: the share of what there is to know about the organ that the cluster tells, to be compared with that of the "
    "same prototypes at permuted positions (chance), which is high where nearly every position has a cluster of its "
    "own, and with that of an atlas with a cluster for each position (limit)."
)


class PrototypeStudy:
    """
    An atlas of the prototypes of AFiRe networks as a study of the report.

    Args:
        networks: AFiRe networks by the names that the report shows. The encoders that the study is called with are not
            looked at.
        num_clusters: clusters whose patches are shown: those that dominate most positions.
        num_patches: patches of each.
        context: patches around each, on every side.
        batch_size: images in a pass.
        progress: whether to show progress bars.

    Raises:
        ValueError: without a network, or for one that contrasts features.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> result = PrototypeStudy({"afire": network}, progress=False)({}, StudyImages(torch.rand(2, 1, 32, 32)))
        >>> float(result.table.loc["afire", "prototype_entropy"]) > 0.999  # not trained: all are uniform
        True
    """

    needs: Sequence[str] = ()

    def __init__(
        self,
        networks: Mapping[str, AFiRe],
        num_clusters: int = 8,
        num_patches: int = 8,
        context: int = 1,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        if not networks:
            raise ValueError("no network with prototypes: leave this study out, or give an AFiRe network")
        for name, network in networks.items():
            if network.contrast_space != "probabilities":
                raise ValueError(f"{name!r} contrasts features, it has no clusters: leave it out of this study")
        self.networks = dict(networks)
        self.num_clusters = num_clusters
        self.num_patches = num_patches
        self.context = context
        self.batch_size = batch_size
        self.progress = progress

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`."""
        summaries, details = {}, {}
        figures: dict[str, Figure] = {}
        for name, network in self.networks.items():
            prototypes, encoder = network.bank.prototypes, network.encoder
            shares = None if images.masks is None else organ_shares(images.masks, encoder.patch_size)
            atlas = prototype_atlas(prototypes, encoder.grid_size)
            summaries[name] = atlas_scores(prototypes, shares)
            details[f"Dominating cluster of each position, {name}"] = atlas
            figures[f"Clusters and entropy of the positions beside the mean image, {name}"] = atlas_figure(
                images.image.mean(0), atlas, name
            )
            clusters = largest_clusters(prototypes, self.num_clusters)
            patches = cluster_patches(network, images.image, clusters, self.num_patches, self.batch_size, self.progress)
            windows = patch_windows(images.image, patches, encoder.patch_size, self.context)
            figures[f"Patches (framed) that the largest clusters get most strongly, with their probability, {name}"] = (
                cluster_figure(windows, patches, self.context, name)
            )
        table = pd.DataFrame.from_dict(summaries, orient="index")
        return StudyResult("Atlas of prototypes", _QUESTION, table, figures, details)
