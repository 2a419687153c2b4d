# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Saliency: do maps of what a classifier looks at lie in the annotated boxes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from monai.metrics import compute_iou
from monai.utils import convert_to_tensor
from numpy.typing import NDArray

from monai_afire.apps.evaluation.localization import pointing_game
from monai_afire.apps.results.pictures.grid import image_grid
from monai_afire.apps.results.pictures.heat_map import overlay_heat_map
from monai_afire.apps.studies.figures import framed, in_colors
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.regions import box_masks
from monai_afire.apps.studies.study import NothingToCompareError, StudyResult
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.visualize.figures import first_channel

_QUESTION = (
    "A classifier was fine-tuned with labels of whole images. Does it look at the lesions? Grad-CAM explains the class "
    "of the lesion. Pointing game: is the hottest pixel in a box? IoU: overlap of the boxes with the pixels above half "
    "of the maximum, and with the hottest {top:.0%}. Chance is the score of as many random pixels. {number} of {total} "
    "images have boxes."
)
_TOP = 0.1  # share of the hottest pixels
_PICTURES = 6  # spread over the kinds of lesions
_CAPTION = "Lesions in their boxes, and where the classifiers look: the pixels beyond half of each map's maximum"


class _Case(NamedTuple):
    """A kind of lesion in an image, and its boxes (number, 4)."""

    image: int
    kind: str
    boxes: torch.Tensor


def saliency_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    classifiers: Mapping[str, TransferClassifier],
    class_names: Sequence[str] = (),
    batch_size: int = 32,
) -> StudyResult:
    """
    Localization of lesions by fine-tuned classifiers (AFiRe, Fig. 7; ACE, appendix B.3).

    Each kind of lesion in an image is a case of its own: the map of that class is compared with the boxes of that kind.
    The kind of a box is that of ``StudyImages.box_kinds`` or, if unknown, the image's group. A kind that is no class of
    the classifier is explained by the class that it predicts.

    Args:
        classifiers: fine-tuned networks by the names that the report shows.
        class_names: what the classifiers' outputs stand for; without, the predicted class of every image is explained.
    """
    cases = _cases(images)
    if not cases:
        raise NothingToCompareError("no image has a box")
    kinds, boxes = [case.kind for case in cases], [case.boxes for case in cases]
    pictures = images.image[[case.image for case in cases]]
    maps, rows, details = {}, {}, {}
    for name, network in classifiers.items():
        classes = _classes(network, pictures, kinds, class_names, batch_size)
        method = f"{name}: Grad-CAM"
        maps[method] = grad_cam(network, pictures, classes, batch_size)
        summary = localization_summary(localization_scores(maps[method], boxes), kinds)
        details[f"Localization by kind of lesion, {method}"] = summary
        rows[method] = summary.loc["all"]
    shown = _spread(kinds, _PICTURES)
    some = {name: heat[shown] for name, heat in maps.items()}
    some_boxes, some_kinds = [boxes[case] for case in shown], [kinds[case] for case in shown]
    figures = {_CAPTION: saliency_figure(pictures[shown], some, some_boxes, some_kinds)}
    number = len({case.image for case in cases})
    question = _QUESTION.format(top=_TOP, number=number, total=len(images.image))
    return StudyResult("Where classifiers look", question, pd.DataFrame(rows).T, figures, details)


def grad_cam(
    classifier: TransferClassifier,
    images: torch.Tensor,
    classes: Sequence[int] | torch.Tensor,
    batch_size: int = 32,
) -> torch.Tensor:
    r"""
    Grad-CAM (Selvaraju et al., 2017) of one class per image from the encoder's tokens: ``(M, H, W)``, at least 0.

    .. math:: \operatorname{ReLU}\Big(\sum_d \alpha_d z_{jd}\Big), \qquad
        \alpha_d = \frac{1}{L} \sum_{j=1}^{L} \frac{\partial\, \text{logit}}{\partial z_{jd}}

    for the tokens :math:`z_j`, on their grid and then linearly enlarged to the image. Their mean is classified, so this
    is the class activation map: what each token adds to the logit, up to a number that is the same for all. The tokens
    of a transformer have seen the whole image, so what speaks for a class need not stand where its lesion is.
    """
    encoder, head = classifier.encoder, classifier.classifier
    encoder.check_images(images)
    plain = convert_to_tensor(images, track_meta=False)
    wanted = torch.as_tensor(classes, dtype=torch.long, device=encoder.mean.device)
    maps = []
    with eval_mode(classifier):
        for batch, numbers in zip(plain.split(batch_size), wanted.split(batch_size), strict=True):
            with torch.no_grad():
                tokens = encoder(batch.to(encoder.mean)).to(head.weight.dtype)
            with torch.enable_grad():
                tokens.requires_grad_()
                logits = head(classifier.standardize(tokens.mean(1)))
                of_class = logits.gather(1, numbers[:, None]).sum()
            (gradient,) = torch.autograd.grad(of_class, tokens)
            heat = (gradient.mean(1, keepdim=True) * tokens.detach()).sum(-1).relu()
            grid = heat.unflatten(1, (1, *encoder.grid_size)).float()
            enlarged = F.interpolate(grid, size=encoder.img_size, mode="bilinear")
            maps.append(enlarged[:, 0].to(images.device))
    return torch.cat(maps)


def localization_scores(
    maps: torch.Tensor, boxes: Sequence[torch.Tensor], top: float = _TOP
) -> pd.DataFrame:
    """
    How well heat maps ``(M, H, W)``, larger is hotter, hit boxes, beside what a map of noise does.

    Boxes are row, column, height and width in pixels, ``(number, 4)`` for each image.

    Returns:
        A row per image; NaN for an image without a box:

        * "pointing_game": 1 if the hottest pixel lies in a box, 0 if not; if several are, the share that lies inside,
        * "iou_half": intersection over union of the boxes and the pixels that are hotter than half way from the coldest
          to the hottest; 0 for a map of one heat,
        * "iou_top": the same of the ``top`` of the pixels,
        * "pointing_game_chance", "iou_half_chance" and "iou_top_chance": those of as many pixels at random.
    """
    heat = convert_to_tensor(maps, track_meta=False).float().cpu()
    inside = torch.zeros(heat.shape, dtype=torch.bool)
    for mask, of_image in zip(inside, boxes, strict=True):
        mask[:] = box_masks(of_image, heat.shape[1:]).any(0)
    flat, covered = heat.flatten(1), inside.flatten(1)
    coldest, hottest = flat.aminmax(dim=1, keepdim=True)
    highest = flat.topk(max(1, round(top * flat.shape[1]))).indices
    hot = torch.zeros_like(covered).scatter_(1, highest, True)
    hot &= hottest > coldest  # where all are equal, none is hot
    share = covered.float().mean(1)
    known = torch.where(share > 0, share, torch.nan)
    found = [pointing_game(*pair) for pair in zip(heat.numpy(), inside.numpy(), strict=True)]
    scores = {
        "pointing_game": found,
        "pointing_game_chance": known,
        **_overlap("iou_half", flat > (coldest + hottest) / 2, covered, known),
        **_overlap("iou_top", hot, covered, known),
    }
    return pd.DataFrame(scores, dtype=float)


def localization_summary(table: pd.DataFrame, kinds: Sequence[str]) -> pd.DataFrame:
    """Mean :func:`localization_scores` and number of "images" with boxes for each kind of lesion, and the row "all"."""
    counted = table.assign(kind=list(kinds)).dropna(subset=["pointing_game"])
    by_kind = counted.groupby("kind")
    summary = by_kind.mean().assign(images=by_kind.size())
    summary.loc["all"] = counted.drop(columns="kind").mean()
    summary.loc["all", "images"] = len(counted)
    return summary.astype({"images": int})


def saliency_figure(
    images: torch.Tensor,
    maps: Mapping[str, torch.Tensor],
    boxes: Sequence[torch.Tensor],
    titles: Sequence[str],
) -> Figure:
    """
    Radiographs with the boxes of their lesions, and beside each the heat maps of every method (AFiRe, Fig. 7).

    What is colored is what "iou_half" compares with the box.
    """
    pictures, headings = [], []
    for number, (image, of_image) in enumerate(zip(images, boxes, strict=True)):
        gray = first_channel(image).clip(0, 1)
        inside = box_masks(torch.as_tensor(of_image), gray.shape).any(0)
        shown = [in_colors(gray), *(_overlay(gray, heat[number]) for heat in maps.values())]
        pictures += [framed(picture, inside) for picture in shown]
        headings += [titles[number], *maps]
    return image_grid(pictures, headings, columns=1 + len(maps))


def _cases(images: StudyImages) -> list[_Case]:
    """Every kind of lesion in every image that has boxes."""
    cases = []
    for row, boxes in enumerate(images.known("boxes")):
        if images.box_kinds is not None:
            names = list(images.box_kinds[row])
        else:
            lesion = "lesion" if images.group is None else str(images.group[row])
            names = [lesion] * len(boxes)
        for kind in dict.fromkeys(names):
            own = [number for number, name in enumerate(names) if name == kind]
            cases.append(_Case(row, kind, torch.as_tensor(boxes)[own]))
    return cases


@torch.no_grad()
def _classes(
    network: TransferClassifier,
    pictures: torch.Tensor,
    kinds: Sequence[str],
    class_names: Sequence[str] | None,
    batch_size: int,
) -> torch.Tensor:
    """The class of each kind, or the predicted one of a kind that is none."""
    known = {name: number for number, name in enumerate(class_names or ())}
    classes = torch.tensor([known.get(kind, -1) for kind in kinds], dtype=torch.long)
    unknown = (classes < 0).nonzero().flatten()
    with eval_mode(network):
        for rows in unknown.split(batch_size) if len(unknown) else ():
            classes[rows] = network(pictures[rows].to(network.encoder.mean)).argmax(1).cpu()
    return classes


def _overlap(
    name: str, hot: torch.Tensor, inside: torch.Tensor, share: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Intersection over union (M,) of pixels (M, H W) with the boxes, and that of as many pixels at random."""
    area = hot.float().mean(1)
    iou = compute_iou(hot.float().unsqueeze(1), inside.float().unsqueeze(1))[:, 0]
    return {name: iou, f"{name}_chance": area * share / (area + share - area * share)}


def _overlay(gray: NDArray, heat: torch.Tensor) -> NDArray[np.uint8]:
    """The upper half of a map's heat on its picture."""
    values = heat.detach().float().cpu().numpy()
    low, high = float(values.min()), float(values.max())
    if not low < high:  # nothing is hotter than the rest
        return in_colors(gray)
    return overlay_heat_map(gray, values, (low + high) / 2, high)


def _spread(kinds: Sequence[str], number: int) -> list[int]:
    """Cases of all kinds in turn, as many as wanted, in the order of the kinds."""
    names = pd.Series(kinds, dtype=object)
    turns = names.groupby(names).cumcount().sort_values(kind="stable")
    return names[turns.index[:number].sort_values()].sort_values(kind="stable").index.tolist()
