# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of saliency for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from monai.networks.blocks.selfattention import SABlock
from tqdm.auto import tqdm

from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.analysis.saliency.figures import saliency_figure
from monai_afire.analysis.saliency.measures import (
    LOCALIZATION_SCORES,
    attention_rollout,
    grad_cam,
    localization_scores,
    localization_summary,
)
from monai_afire.analysis.study import StudyResult
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.eval_mode import eval_mode

__all__ = ["SaliencyStudy"]

_QUESTION = (
    "Does a classifier that was fine-tuned with labels of whole images look at the lesions? Grad-CAM explains the "
    "class of the lesion, attention roll-out (vision transformers only) knows no class. Pointing game: does the "
    "hottest pixel lie in a box; IoU: overlap of the boxes with the pixels beyond half of the maximum, and with the "
    "hottest {top:.0%}. Beside each score that of chance: as many pixels at random. {number} of {total} images have "
    "boxes."
)


class SaliencyStudy:
    """
    Localisation of lesions by fine-tuned classifiers (AFiRe, Fig. 7; ACE, appendix B.3) as a study of the report.

    Each kind of lesion in an image is a case of its own: the map of that class is compared with the boxes of that kind.
    The kind of a box is that of ``StudyImages.box_kinds`` or, if unknown, the image's group. A kind that is no class of
    the classifier is explained by the class that it predicts.

    Args:
        classifiers: fine-tuned networks by the names that the report shows. The encoders that the study is called with
            are not looked at.
        class_names: what the classifiers' outputs stand for; None explains the predicted class of every image.
        layer: see :func:`monai_afire.analysis.grad_cam`.
        top: see :func:`monai_afire.analysis.localization_scores`.
        num_pictures: cases in the figure, spread over the kinds.
        batch_size: images in a pass.
        progress: whether to show progress bars.

    Raises:
        ValueError: without a classifier, or when one has other classes than are named.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> study = SaliencyStudy({"afire": TransferClassifier(encoder, 2)}, ["mass", "nodule"], progress=False)
        >>> boxes = [torch.tensor([[4.0, 4.0, 8.0, 8.0]]), torch.empty(0, 4)]
        >>> images = StudyImages(torch.rand(2, 1, 32, 32), group=["mass", "normal"], boxes=boxes)
        >>> study({}, images).table.index.tolist()
        ['afire: Grad-CAM', 'afire: roll-out']
    """

    needs: Sequence[str] = ("boxes",)

    def __init__(
        self,
        classifiers: Mapping[str, TransferClassifier],
        class_names: Sequence[str] | None = None,
        layer: str = "encoder",
        top: float = 0.1,
        num_pictures: int = 6,
        batch_size: int = 32,
        progress: bool = True,
    ) -> None:
        if not classifiers:
            raise ValueError("no classifier to look into: leave this study out, or give a fine-tuned network")
        for name, network in classifiers.items():
            outputs = network.classifier.out_features
            if class_names is not None and len(class_names) != outputs:
                raise ValueError(f"{len(class_names)} class_names for the {outputs} outputs of {name!r}: name each")
        self.classifiers = dict(classifiers)
        self.class_names = None if class_names is None else list(class_names)
        self.layer = layer
        self.top = top
        self.num_pictures = num_pictures
        self.batch_size = batch_size
        self.progress = progress

    def __call__(self, encoders: Mapping[str, RadiographEncoder], images: StudyImages) -> StudyResult:
        """Make the study, see :class:`monai_afire.analysis.Study`."""
        rows, kinds, boxes = _cases(images)
        pictures = images.image[torch.as_tensor(rows, dtype=torch.long)]
        maps = {
            f"{name}: {method}": heat
            for name, network in self.classifiers.items()
            for method, heat in self._maps(network, pictures, kinds).items()
        }
        details = {
            f"Localisation by kind of lesion, {name}": localization_summary(
                localization_scores(heat, boxes, self.top), kinds
            )
            for name, heat in maps.items()
        }
        overall = [detail.loc["all", [*LOCALIZATION_SCORES, "images"]] for detail in details.values()]
        table = pd.DataFrame(overall, index=pd.Index(list(maps)))
        number = len(set(rows))
        question = _QUESTION.format(top=self.top, number=number, total=len(images.image))
        shown = _spread(kinds, self.num_pictures)
        caption = "Lesions in their boxes, and where the classifiers look: the pixels beyond half of each map's maximum"
        figures = {}
        if shown:
            some = {name: heat[shown] for name, heat in maps.items()}
            titles, their_boxes = [kinds[case] for case in shown], [boxes[case] for case in shown]
            figures[caption] = saliency_figure(pictures[shown], some, their_boxes, titles)
        return StudyResult("Where classifiers look", question, table, figures, details)

    def _maps(
        self, network: TransferClassifier, pictures: torch.Tensor, kinds: Sequence[str]
    ) -> dict[str, torch.Tensor]:
        classes = self._classes(network, pictures, kinds)
        maps = {"Grad-CAM": grad_cam(network, pictures, classes, self.layer, self.batch_size, self.progress)}
        if any(isinstance(module, SABlock) for module in network.encoder.modules()):
            maps["roll-out"] = attention_rollout(network.encoder, pictures, self.batch_size, self.progress)
        return maps

    def _classes(self, network: TransferClassifier, pictures: torch.Tensor, kinds: Sequence[str]) -> torch.Tensor:
        """The class of each kind, or the predicted one of a kind that is none."""
        names = self.class_names or []
        classes = torch.tensor([names.index(kind) if kind in names else -1 for kind in kinds], dtype=torch.long)
        unknown = (classes < 0).nonzero().flatten()
        if len(unknown):
            with eval_mode(network), torch.no_grad():
                for rows in tqdm(unknown.split(self.batch_size), desc="prediction", disable=not self.progress):
                    classes[rows] = network(pictures[rows].to(network.encoder.mean)).argmax(1).cpu()
        return classes


def _cases(images: StudyImages) -> tuple[list[int], list[str], list[torch.Tensor]]:
    """Image, kind and boxes of every kind of lesion in every image that has boxes."""
    rows: list[int] = []
    kinds: list[str] = []
    boxes: list[torch.Tensor] = []
    for row, of_image in enumerate(images.boxes or ()):
        if images.box_kinds is not None:
            names = [str(name) for name in images.box_kinds[row]]
        else:
            names = ["lesion" if images.group is None else str(images.group[row])] * len(of_image)
        for kind in dict.fromkeys(names):
            rows.append(row)
            kinds.append(kind)
            boxes.append(torch.as_tensor(of_image)[[number for number, name in enumerate(names) if name == kind]])
    return rows, kinds, boxes


def _spread(kinds: Sequence[str], number: int) -> list[int]:
    """Cases of all kinds in turn, as many as wanted, in the order of the kinds."""
    turn = pd.Series(list(kinds), dtype=object).groupby(list(kinds)).cumcount() if kinds else pd.Series(dtype=int)
    cases = turn.sort_values(kind="stable").index[:number]
    return sorted(cases, key=lambda case: (kinds[case], case))
