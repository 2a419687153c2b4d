# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of pairs of images that show the same, for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from monai_afire.analysis.correspondence.pairs import LandmarkPair, pair_correspondence, read_landmark_pairs
from monai_afire.analysis.correspondence.study import SAME_PLACE
from monai_afire.analysis.features.dense import finest_stride
from monai_afire.analysis.features.raw_pixels import with_raw_pixels
from monai_afire.analysis.images.reading import disease_set
from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.study import NothingToCompareError, StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["PairStudy"]

_QUESTION = (
    "Is a place of the first image of a pair found in the second by the most similar feature, with nothing trained? "
    "There are {pairs} pairs with {landmarks} places known in both. Errors are distances from the true place in pixels "
    "of images of {size} pixels, and as a fraction of the longest side; the lower, the better. Copying the coordinates "
    "('{same_place}') is the baseline that needs no encoder: it is as good as the two images lie alike."
)


class PairStudy:
    """
    Landmark correspondence within pairs of images, as in FIRE, as a study of the report.

    Args:
        items: of a datalist, with "image_2" and "landmarks_2", see
            :func:`monai_afire.analysis.read_landmark_pairs`; without any pair among them the study is left out.
        transform: loads and resizes "image"; metadata must be kept.
        stride: pixels between two places that are compared; where it does not divide an encoder's patch, the next
            smaller that does.
        progress: whether to show progress bars.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> item = {"image": torch.rand(1, 32, 32), "image_2": torch.rand(1, 32, 32)}
        >>> item |= {"landmarks": [[8.0, 9.0]], "landmarks_2": [[9.0, 9.0]]}
        >>> study, images = PairStudy([item], dict, progress=False), StudyImages(torch.rand(2, 1, 8, 8))
        >>> result = study({"untrained": encoder}, images)
        >>> list(result.table.index), float(result.table.loc["same place", "error"])
        (['untrained', 'raw pixels', 'same place'], 1.0)
    """

    needs: Sequence[str] = ()

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        transform: Callable[[dict[str, Any]], Mapping[str, Any]],
        stride: int = 8,
        progress: bool = True,
    ) -> None:
        self.items = [item for item in items if item.get("image_2") is not None]
        self.transform = transform
        self.stride = stride
        self.progress = progress

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`; the report's own images are not looked at."""
        if not self.items:
            raise NothingToCompareError("no item has an image_2, the second image of a pair")
        pairs = read_landmark_pairs(self.items, self.transform)
        tables: dict[str, pd.DataFrame] = {}
        for name, encoder in with_raw_pixels(encoders).items():
            stride = finest_stride(encoder, self.stride)
            tables[name] = pair_correspondence(encoder, pairs, stride, self.progress)
        any_table = next(iter(tables.values()))
        tables[SAME_PLACE] = any_table.assign(error=any_table["error_same_place"])
        longest = max(pairs[0].images.shape[2:])
        metrics = {
            name: {
                "error": (mean := table["error"].mean()),
                "median_error": table["error"].median(),
                "error_fraction": mean / longest,
            }
            for name, table in tables.items()
        }
        table = pd.DataFrame.from_dict(metrics, orient="index")
        details = self._by_group(tables)
        return StudyResult("Places in pairs of images", self._question(pairs, any_table), table, details=details)

    def _question(self, pairs: Sequence[LandmarkPair], table: pd.DataFrame) -> str:
        size = " x ".join(str(side) for side in pairs[0].images.shape[2:])
        return _QUESTION.format(pairs=len(pairs), landmarks=len(table), size=size, same_place=SAME_PLACE)

    def _by_group(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Mean error of each group of pairs, if there are several."""
        groups = [str(disease_set(item)) for item in self.items]
        if len(set(groups)) < 2:
            return {}
        of_groups = {name: table.groupby(table["pair"].map(groups.__getitem__)) for name, table in tables.items()}
        means = {name: grouped["error"].mean() for name, grouped in of_groups.items()}
        return {"Mean error in pixels by group": pd.DataFrame(means).rename_axis(None)}
