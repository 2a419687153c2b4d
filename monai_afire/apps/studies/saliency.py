# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Saliency: do maps of what a classifier looks at lie in the annotated boxes?"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from monai.metrics import compute_iou
from monai.utils import convert_to_tensor
from monai.visualize import GradCAM
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.evaluation.localization import pointing_game
from monai_afire.apps.results.pictures.heat_map import overlay_heat_map
from monai_afire.apps.results.pictures.style import TITLE_SIZE
from monai_afire.apps.studies.figures import boxed_pictures
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.regions import box_masks
from monai_afire.apps.studies.study import StudyResult
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
    layer: str = "encoder",
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
        layer: see :func:`grad_cam`.
    """
    cases = _cases(images)
    kinds, boxes = [case.kind for case in cases], [case.boxes for case in cases]
    pictures = images.image[[case.image for case in cases]]
    maps, rows, details = {}, {}, {}
    for name, network in classifiers.items():
        classes = _classes(network, pictures, kinds, class_names, batch_size)
        method = f"{name}: Grad-CAM"
        maps[method] = grad_cam(network, pictures, classes, layer, batch_size)
        summary = localization_summary(localization_scores(maps[method], boxes), kinds)
        details[f"Localization by kind of lesion, {method}"] = summary
        rows[method] = summary.loc["all"]
    figures = {}
    if shown := _spread(kinds, _PICTURES):
        some = {name: heat[shown] for name, heat in maps.items()}
        some_boxes, some_kinds = [boxes[case] for case in shown], [kinds[case] for case in shown]
        figures[_CAPTION] = saliency_figure(pictures[shown], some, some_boxes, some_kinds)
    number = len({case.image for case in cases})
    question = _QUESTION.format(top=_TOP, number=number, total=len(images.image))
    return StudyResult("Where classifiers look", question, pd.DataFrame(rows).T, figures, details)


class _TokenGradCAM(GradCAM):
    """MONAI's Grad-CAM for layers whose output is tokens (B, L, D), too: they are put on their grid."""

    def __init__(self, network: TransferClassifier, layer: str) -> None:
        super().__init__(network, layer, postprocessing=lambda maps: maps)
        self.grid_size = network.encoder.grid_size

    def compute_map(self, x: torch.Tensor, class_idx: int, **kwargs: Any) -> torch.Tensor:  # type: ignore[override]
        """Tokens are weighted by the mean of their gradient over the grid, as the pixels of a feature map are."""
        _, (activation,), (gradient,) = self.nn_module(x, class_idx=class_idx)
        shape = activation.shape[2:]
        if activation.ndim == 3:
            activation, gradient = (part.transpose(1, 2) for part in (activation, gradient))
            shape = self.grid_size
        weights = gradient.flatten(2).mean(-1, keepdim=True)
        return (weights * activation.flatten(2)).sum(1).relu().reshape(len(x), 1, *shape)


def grad_cam(
    classifier: TransferClassifier,
    images: torch.Tensor,
    classes: Sequence[int] | torch.Tensor,
    layer: str = "encoder",
    batch_size: int = 32,
) -> torch.Tensor:
    r"""
    Grad-CAM (Selvaraju et al., 2017) of one class per image, by MONAI's ``GradCAM``: ``(M, H, W)``, at least 0.

    .. math:: \operatorname{ReLU}\Big(\sum_d \alpha_d z_{jd}\Big), \qquad
        \alpha_d = \frac{1}{L} \sum_{j=1}^{L} \frac{\partial\, \text{logit}}{\partial z_{jd}}

    for the tokens :math:`z_j` of a layer, on their grid and then linearly enlarged to the image. For the encoder's own
    tokens, whose mean is classified, this is the class activation map: what each token adds to the logit, up to a
    number that is the same for all. The tokens of a transformer have seen the whole image, so what speaks for a class
    need not stand where its lesion is. The network is copied; a frozen encoder is no obstacle.

    The layer is the name of a module whose output are tokens ``(B, L, D)`` on the encoder's grid, or maps
    ``(B, D, *grid)`` of any: "encoder", "encoder.blocks.3" of a ViT, "encoder.layers.2" of a Swin.
    """
    images = convert_to_tensor(images, track_meta=False)
    classifier.encoder.check_images(images)
    modules = dict(classifier.named_modules())
    if layer not in modules:
        known = ", ".join(name for name in modules if name and name.count(".") < 3)
        raise ValueError(f"the classifier has no layer {layer!r}; it has {known}")
    network = copy.deepcopy(classifier).eval().requires_grad_(False)
    network.freeze_encoder = False  # its tokens get a gradient, its parameters do not
    explain = _TokenGradCAM(network, layer)
    wanted = torch.as_tensor(classes, dtype=torch.long).cpu()
    # MONAI explains one class per pass
    batches = [
        (number, rows.to(images.device))
        for number in wanted.unique().tolist()
        for rows in (wanted == number).nonzero().flatten().split(batch_size)
    ]
    maps = images.new_zeros((len(images), *images.shape[2:]), dtype=torch.float32)
    with torch.enable_grad():
        for number, rows in tqdm(batches, desc="Grad-CAM", unit="batch", leave=False):
            batch = images[rows].to(network.encoder.mean).requires_grad_()
            maps[rows] = explain(batch, class_idx=number)[:, 0].detach().to(maps)
    return maps


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
    rows = []
    for number, image in enumerate(images):
        picture = first_channel(image).clip(0, 1)
        rows.append([picture, *(_overlay(picture, heat[number]) for heat in maps.values())])
    corners = [torch.as_tensor(of_image).tolist() for of_image in boxes]
    columns = ["radiograph", *maps]
    return boxed_pictures(rows, corners, titles, [columns], inches=2.0, title_size=TITLE_SIZE)


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


def _overlay(picture: NDArray, heat: torch.Tensor) -> NDArray:
    """The upper half of a map's heat on its picture."""
    values = heat.detach().float().cpu().numpy()
    low, high = float(values.min()), float(values.max())
    if not low < high:  # nothing is hotter than the rest
        return np.repeat(picture[..., None], 3, axis=-1)
    return overlay_heat_map(picture, values, (low + high) / 2, high)


def _spread(kinds: Sequence[str], number: int) -> list[int]:
    """Cases of all kinds in turn, as many as wanted, in the order of the kinds."""
    names = pd.Series(kinds, dtype=object)
    turns = names.groupby(names).cumcount().sort_values(kind="stable")
    return names[turns.index[:number].sort_values()].sort_values(kind="stable").index.tolist()
