# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of restoration for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.restoration.figures import restoration_figure
from monai_afire.analysis.restoration.measures import restoration_summary, restorations
from monai_afire.analysis.study import StudyResult
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["RestorationStudy"]

_QUESTION = (
    "Does the decoder take synthetic lesions out of {number} images, and do mask tokens in the place of the lesions' "
    "tokens help? Inside of lesions: a gain of 1 is a perfect restoration, 0 as bad as the lesion, negative worse; the "
    "peak signal-to-noise ratio (dB) is to be compared with that of the lesion itself, psnr_lesion. psnr_normal is "
    "that of images without lesions in the same patches, psnr_outside that of all other patches."
)


class RestorationStudy:
    """
    Restorations with and without mask tokens (AFiRe, Fig. 9 and 10) as a study of the report.

    Args:
        networks: AFiRe networks by the names that the report shows. The encoders that the study is called with are not
            looked at.
        lesion_options: see :func:`monai_afire.analysis.restorations`.
        normal_group: lesions are added to the images of this group only; to all where groups are unknown or none has
            this name.
        num_pictures: images in each figure.
        seed: of the lesions.
        batch_size: images in a pass.
        progress: whether to show progress bars.

    Raises:
        ValueError: without a network.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> result = RestorationStudy({"afire": network}, progress=False)({}, StudyImages(torch.rand(2, 1, 32, 32)))
        >>> result.table.shape
        (1, 8)
    """

    needs: Sequence[str] = ()

    def __init__(
        self,
        networks: Mapping[str, AFiRe],
        lesion_options: Mapping[str, Any] | None = None,
        normal_group: str = "normal",
        num_pictures: int = 4,
        seed: int = 0,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        if not networks:
            raise ValueError("no network to restore with: leave this study out, or give an AFiRe network")
        self.networks = dict(networks)
        self.lesion_options = lesion_options
        self.normal_group = normal_group
        self.num_pictures = num_pictures
        self.seed = seed
        self.batch_size = batch_size
        self.progress = progress

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`."""
        group = images.group or []
        normal = [row for row, name in enumerate(group) if name == self.normal_group] or range(len(images.image))
        pictures = images.image[list(normal)]
        summaries, figures = {}, {}
        for name, network in self.networks.items():
            found = restorations(network, pictures, self.lesion_options, self.seed, self.batch_size, self.progress)
            patch = network.encoder.patch_size
            summaries[name] = restoration_summary(found, patch)
            rows = range(min(self.num_pictures, len(pictures)))
            for lesions, what in ((True, "images with lesions"), (False, "normal images, the same tokens hidden")):
                caption = f"Restoration of {what}, {name}"
                figures[caption] = restoration_figure(found, patch, rows, name, lesions)
        table = pd.DataFrame.from_dict(summaries, orient="index")
        return StudyResult(
            "Restoration with and without mask tokens", _QUESTION.format(number=len(pictures)), table, figures
        )
