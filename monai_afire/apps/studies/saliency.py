# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Saliency: do maps of what a classifier or an encoder looks at lie in the annotated boxes?"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from monai.metrics import compute_iou
from monai.networks.blocks.selfattention import SABlock
from monai.utils import convert_to_tensor
from monai.visualize import GradCAM
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.evaluation.localization import pointing_game
from monai_afire.apps.results.pictures.heat_map import MARK_COLOR, overlay_heat_map
from monai_afire.apps.results.pictures.style import LABEL_SIZE, TITLE_SIZE, plot_figure
from monai_afire.apps.studies.features.tokens import image_features
from monai_afire.apps.studies.images.boxes import box_masks
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.apps.studies.study import StudyResult, StudySettings
from monai_afire.networks.blocks.feature_pyramid import resize_features
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.visualize.figures import first_channel

LOCALIZATION_SCORES = tuple(
    f"{score}{chance}"
    for score in ("pointing_game", "iou_half", "iou_top")
    for chance in ("", "_chance")
)
"""The metrics of :func:`localization_scores`."""


class _TokenGradCAM(GradCAM):
    """MONAI's Grad-CAM for layers whose output is tokens (B, L, D), too: they are put on their grid."""

    def __init__(self, network: TransferClassifier, layer: str) -> None:
        super().__init__(network, layer, postprocessing=lambda maps: maps)
        self.grid_size = network.encoder.grid_size

    def compute_map(  # type: ignore[override]
        self,
        x: torch.Tensor,
        class_idx: Any = None,
        retain_graph: bool = False,
        layer_idx: int = -1,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Tokens are weighted by the mean of their gradient over the grid, as the pixels of a feature map are."""
        _, activations, gradients = self.nn_module(
            x, class_idx=class_idx, retain_graph=retain_graph, **kwargs
        )
        activation, gradient = activations[layer_idx], gradients[layer_idx]
        if activation.ndim == 3:
            activation, gradient = (part.transpose(1, 2) for part in (activation, gradient))
        shape = self.grid_size if activation.ndim == 3 else activation.shape[2:]
        weights = gradient.flatten(2).mean(-1, keepdim=True)
        return (weights * activation.flatten(2)).sum(1).relu().reshape(len(x), 1, *shape)


def grad_cam(
    classifier: TransferClassifier,
    images: torch.Tensor,
    classes: Sequence[int] | torch.Tensor,
    layer: str = "encoder",
    batch_size: int = 32,
    progress: bool = True,
) -> torch.Tensor:
    r"""
    Grad-CAM (Selvaraju et al., 2017) of one class per image, by MONAI's ``GradCAM``.

    .. math:: \operatorname{ReLU}\Big(\sum_d \alpha_d z_{jd}\Big), \qquad
        \alpha_d = \frac{1}{L} \sum_{j=1}^{L} \frac{\partial\, \text{logit}}{\partial z_{jd}}

    for the tokens :math:`z_j` of a layer, on their grid and then linearly enlarged to the image. For the encoder's own
    tokens, whose mean is classified, this is the class activation map: what each token adds to the logit, up to a
    number that is the same for all. The tokens of a transformer have seen the whole image, so what speaks for a class
    need not stand where its lesion is. The network is copied, so hooks, modes and gradients of yours stay as they are;
    a frozen encoder is no obstacle.

    Args:
        classifier: fine-tuned, on a ViT, a Swin or any other encoder, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        classes: M indices of the classes to explain.
        layer: name of the module whose output is explained: "encoder" for its tokens, "encoder.blocks.3" for those of
            a block of a ViT, "encoder.layers.2" for the feature map of a stage of a Swin: tokens ``(B, L, D)`` on the
            encoder's grid, or maps ``(B, D, *grid)`` of any.
        batch_size: images in a pass.
        progress: whether to show a progress bar over the images.

    Returns:
        ``(M, *S)`` at least 0, on the images' device. A map may be 0 everywhere: nothing speaks for the class.

    Raises:
        ValueError: for images that the encoder does not take, another number of classes, a class or a layer that does
            not exist.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> grad_cam(TransferClassifier(encoder, 3), torch.rand(2, 1, 32, 32), [0, 2], progress=False).shape
        torch.Size([2, 32, 32])
    """
    images = convert_to_tensor(images, track_meta=False)
    classifier.encoder.check_images(images)
    wanted = _checked_classes(classes, len(images), classifier.classifier.out_features)
    if layer not in dict(classifier.named_modules()):
        known = ", ".join(
            name for name, _ in classifier.named_modules() if name.count(".") < 3 and name
        )
        raise ValueError(f"the classifier has no layer {layer!r}; it has {known}")
    network = copy.deepcopy(classifier).eval().requires_grad_(False)
    network.freeze_encoder = False  # its tokens get a gradient, its parameters do not
    explain = _TokenGradCAM(network, layer)
    maps = torch.zeros(len(images), *images.shape[2:], device=images.device)
    with (
        tqdm(total=len(images), disable=not progress, unit="image", desc="Grad-CAM") as bar,
        torch.enable_grad(),
    ):
        for number in wanted.unique().tolist():
            # MONAI explains one class per pass
            for rows in (wanted == number).nonzero().flatten().split(batch_size):
                batch = images[rows.to(images.device)].to(network.encoder.mean).requires_grad_()
                maps[rows.to(maps.device)] = (
                    explain(batch, class_idx=number)[:, 0].detach().to(maps)
                )
                bar.update(len(rows))
    return maps


def attention_rollout(
    encoder: RadiographEncoder, images: torch.Tensor, batch_size: int = 32, progress: bool = True
) -> torch.Tensor:
    r"""
    Attention roll-out (Abnar and Zuidema, 2020): how much of each patch the mean token holds, by attention alone.

    .. math:: R = \prod_{l} \frac{1}{2} (A_l + I), \qquad r_j = \frac{1}{L} \sum_i R_{ij}

    with :math:`A_l` the attention weights of block l, averaged over its heads, the last block leftmost. The result
    does not depend on a class, and on the classifier only by what fine-tuning made of the encoder.

    Args:
        encoder: of global attention in every block, as ViTs have it, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        batch_size: images in a pass; all attention weights of a batch are held at a time.
        progress: whether to show a progress bar over the images.

    Returns:
        ``(M, *S)``, r linearly enlarged to the images, on their device. The L numbers before that sum to 1.

    Raises:
        ValueError: for images that the encoder does not take, and an encoder without global attention (a Swin).

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> attention_rollout(encoder, torch.rand(2, 1, 32, 32), progress=False).shape
        torch.Size([2, 32, 32])
    """
    attentions = [module for module in encoder.modules() if isinstance(module, SABlock)]
    if not attentions:
        raise ValueError(
            f"{type(encoder).__name__} has no block of global attention to roll out: use grad_cam"
        )

    def rolled_out(_: torch.Tensor) -> torch.Tensor:
        return _rolled_out(
            [attention.att_mat for attention in attentions], math.prod(encoder.grid_size)
        )

    with _attention_saved(attentions):
        share = image_features(encoder, images, batch_size, progress, rolled_out)
    grid = share.unflatten(1, encoder.grid_size).unsqueeze(1)
    return resize_features(grid, images.shape[2:])[:, 0].to(images.device)


def localization_scores(
    maps: torch.Tensor, boxes: Sequence[torch.Tensor], top: float = 0.1
) -> pd.DataFrame:
    """
    How well heat maps hit boxes, beside what a map of noise does.

    Args:
        maps: ``(M, H, W)``, one per image, larger is hotter, in any range.
        boxes: for each image ``(number, 4)``: row, column, height, width in pixels.
        top: share of the hottest pixels for "iou_top".

    Returns:
        A row per image; NaN for an image without a box:

        * "pointing_game": 1 if the hottest pixel lies in a box, 0 if not; if several are, the share that lies inside;
          "pointing_game_chance" is the share of the image that boxes cover,
        * "iou_half": intersection over union of the boxes and the pixels that are hotter than half way from the coldest
          to the hottest; 0 for a map of one heat,
        * "iou_top": the same of the ``top`` of the pixels,
        * "iou_half_chance" and "iou_top_chance": that of as many pixels at random, from the expected shares.

    Raises:
        ValueError: for other shapes, a top that is no share, or maps that are not finite.

    Example:
        >>> heat = torch.zeros(1, 4, 4)
        >>> heat[0, :2, :2] = torch.tensor([[0.9, 0.8], [0.7, 0.2]])
        >>> localization_scores(heat, [torch.tensor([[0.0, 0.0, 2.0, 2.0]])]).round(4).iloc[0].tolist()[:3]
        [1.0, 0.25, 0.75]
    """
    heat = convert_to_tensor(maps, track_meta=False).float()
    if heat.ndim != 3 or len(boxes) != len(heat) or not 0 < top < 1:
        given = f"{tuple(heat.shape)}, {len(boxes)} boxes, {top}"
        raise ValueError(f"expected maps (M, H, W), M boxes, 0 < top < 1, got {given}")
    if not heat.isfinite().all():
        raise ValueError(
            "maps have values that are NaN or infinite: exploded or wrongly loaded weights"
        )
    lesions = [
        box_masks(torch.as_tensor(one).float().reshape(-1, 4), heat.shape[1:]).any(0)
        for one in boxes
    ]
    inside = torch.stack(lesions) if lesions else torch.zeros(heat.shape, dtype=torch.bool)
    flat = heat.flatten(1).cpu()
    coldest, hottest = flat.aminmax(dim=1, keepdim=True)
    number = max(1, round(top * flat.shape[1]))
    hot = torch.zeros_like(flat, dtype=torch.bool).scatter_(1, flat.topk(number).indices, True)
    hot &= hottest > coldest  # where all are equal, none is hot
    share = inside.flatten(1).float().mean(1)
    known = torch.where(share > 0, share, torch.nan)
    found = [
        pointing_game(one, mask)
        for one, mask in zip(heat.cpu().numpy(), inside.numpy(), strict=True)
    ]
    scores = {
        "pointing_game": found,
        "pointing_game_chance": known,
        **_overlap("iou_half", flat > (coldest + hottest) / 2, inside.flatten(1), known),
        **_overlap("iou_top", hot, inside.flatten(1), known),
    }
    return pd.DataFrame(
        {name: np.asarray(scores[name], dtype=float) for name in LOCALIZATION_SCORES}
    )


def localization_summary(table: pd.DataFrame, kinds: Sequence[str]) -> pd.DataFrame:
    """
    Mean scores for each kind of lesion.

    Args:
        table: of :func:`localization_scores`; rows without a box do not count.
        kinds: the kind of each row.

    Returns:
        A row per kind, in alphabetical order, and the row "all"; the columns of the table, and "images", how many
        count.

    Raises:
        ValueError: for another number of kinds.

    Example:
        >>> scores = localization_scores(torch.rand(2, 8, 8), [torch.tensor([[0.0, 0.0, 4.0, 8.0]])] * 2)
        >>> localization_summary(scores, ["mass", "nodule"])["pointing_game_chance"].to_dict()
        {'mass': 0.5, 'nodule': 0.5, 'all': 0.5}
    """
    if len(kinds) != len(table):
        raise ValueError(f"{len(kinds)} kinds for {len(table)} rows: name the kind of each")
    counted = table.assign(kind=list(kinds)).dropna(subset=["pointing_game"])
    columns = list(LOCALIZATION_SCORES)
    by_kind = counted.groupby("kind")[columns]
    summary = by_kind.mean().assign(images=by_kind.size())
    summary.loc["all"] = counted[columns].mean()
    summary.loc["all", "images"] = len(counted)
    return summary.astype({"images": int})


def _checked_classes(
    classes: Sequence[int] | torch.Tensor, number: int, num_classes: int
) -> torch.Tensor:
    wanted = torch.as_tensor(classes, dtype=torch.long).cpu()
    if wanted.shape != (number,) or (
        number and not (wanted.min() >= 0 and wanted.max() < num_classes)
    ):
        known = f"0 to {num_classes - 1}, for each of the {number} images"
        raise ValueError(f"classes must be {known}, got {wanted.tolist()}")
    return wanted


@contextmanager
def _attention_saved(attentions: Sequence[SABlock]) -> Iterator[None]:
    """Let blocks keep their attention weights for a while."""
    before = [attention.save_attn for attention in attentions]
    try:
        for attention in attentions:
            attention.save_attn = True
        yield
    finally:
        for attention, saved in zip(attentions, before, strict=True):
            attention.save_attn = saved
            attention.att_mat = torch.Tensor()


def _rolled_out(weights: Sequence[torch.Tensor], num_patches: int) -> torch.Tensor:
    """The share (B, L) of each patch in the mean token, from attention weights (B, heads, ., .), first block first."""
    share = weights[0].new_zeros(len(weights[0]), 1, weights[0].shape[-1]).float()
    share[..., -num_patches:] = (
        1 / num_patches
    )  # a class token comes first, and the mean is without it
    for attention in reversed(weights):
        # a row vector from the left: no product of two matrices is needed
        share = (share @ attention.float().mean(1) + share) / 2
    return share[:, 0, -num_patches:]


def _overlap(
    name: str, hot: torch.Tensor, inside: torch.Tensor, share: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Intersection over union (M,) of pixels (M, H W) with the boxes, and that of as many pixels at random."""
    area = hot.float().mean(1)
    iou = compute_iou(hot.float().unsqueeze(1), inside.float().unsqueeze(1))[:, 0]
    return {name: iou, f"{name}_chance": area * share / (area + share - area * share)}


def saliency_figure(
    images: torch.Tensor,
    maps: Mapping[str, torch.Tensor],
    boxes: Sequence[torch.Tensor],
    titles: Sequence[str],
) -> Figure:
    """
    Radiographs with the boxes of their lesions, and beside each the heat maps of every method (AFiRe, Fig. 7).

    A map has its strongest color at its own maximum and none up to half way there: what is colored is what
    "iou_half" compares with the box.

    Args:
        images: ``(M, C, H, W)`` in [0, 1], a row each.
        maps: ``(M, H, W)`` by the name of the method, a column each.
        boxes: for each image ``(number, 4)``: row, column, height, width in pixels.
        titles: one per image, at its left.

    Returns:
        The figure.

    Raises:
        ValueError: without an image, or for other numbers of maps, boxes or titles.

    Example:
        >>> maps = {"Grad-CAM": torch.rand(2, 16, 16)}
        >>> len(saliency_figure(torch.rand(2, 1, 16, 16), maps, [torch.empty(0, 4)] * 2, ["a", "b"]).axes)
        4
    """
    numbers = {len(images), len(boxes), len(titles), *(len(heat) for heat in maps.values())}
    if numbers - {len(images)} or not len(images):
        raise ValueError(
            f"give one of each per image, for at least one, got numbers of {sorted(numbers)}"
        )
    figure = plot_figure(0.9 + 2.0 * (1 + len(maps)), 0.4 + 2.0 * len(images), pictures=True)
    axes = figure.subplots(len(images), 1 + len(maps), squeeze=False)
    for number, row in enumerate(axes):
        picture = first_channel(images[number]).clip(0, 1)
        pictures = [picture, *(_overlay(picture, heat[number]) for heat in maps.values())]
        for axis, shown in zip(row, pictures, strict=True):
            axis.imshow(shown, cmap="gray", vmin=0, vmax=1)
            for top, left, height, width in torch.as_tensor(boxes[number]).reshape(-1, 4).tolist():
                corner = (left - 0.5, top - 0.5)  # pixel i is drawn from i - 0.5 on
                axis.add_patch(
                    Rectangle(
                        corner, width, height, fill=False, edgecolor=MARK_COLOR, linewidth=1.2
                    )
                )
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(titles[number], fontsize=LABEL_SIZE, parse_math=False)
    for axis, name in zip(axes[0], ["radiograph", *maps], strict=True):
        axis.set_title(name, fontsize=TITLE_SIZE, parse_math=False)
    return figure


def _overlay(picture: NDArray, heat: torch.Tensor) -> NDArray:
    values = heat.detach().float().cpu().numpy()
    low, high = float(values.min()), float(values.max())
    if not low < high:  # nothing is hotter than the rest
        return np.repeat(picture[..., None], 3, axis=-1)
    return overlay_heat_map(picture, values, (low + high) / 2, high)


_QUESTION = (
    "A classifier was fine-tuned with labels of whole images. Does it look at the lesions? Grad-CAM explains the class "
    "of the lesion; attention roll-out, of vision transformers only, knows no class. Pointing game: is the hottest "
    "pixel in a box? IoU: overlap of the boxes with the pixels above half of the maximum, and with the hottest "
    "{top:.0%}. Chance is the score of as many random pixels. {number} of {total} images have boxes."
)


_CAPTION = "Lesions in their boxes, and where the classifiers look: the pixels beyond half of each map's maximum"


@dataclass
class SaliencyStudy(StudySettings):
    """
    Localization of lesions by fine-tuned classifiers (AFiRe, Fig. 7; ACE, appendix B.3) as a study of the report.

    Each kind of lesion in an image is a case of its own: the map of that class is compared with the boxes of that kind.
    The kind of a box is that of ``StudyImages.box_kinds`` or, if unknown, the image's group. A kind that is no class of
    the classifier is explained by the class that it predicts.

    Args:
        classifiers: fine-tuned networks by the names that the report shows. The study does not use the encoders
            that it is called with.
        class_names: what the classifiers' outputs stand for; None explains the predicted class of every image.
        layer: see :func:`monai_afire.apps.studies.grad_cam`.
        top: see :func:`monai_afire.apps.studies.localization_scores`.
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

    needs = ("boxes",)
    classifiers: Mapping[str, TransferClassifier]
    class_names: Sequence[str] | None = None
    layer: str = "encoder"
    top: float = 0.1
    num_pictures: int = 6

    def __post_init__(self) -> None:
        if not self.classifiers:
            raise ValueError(
                "no classifier to look into: leave this study out, or give a fine-tuned network"
            )
        for name, network in self.classifiers.items():
            outputs = network.classifier.out_features
            if self.class_names is not None and len(self.class_names) != outputs:
                names = len(self.class_names)
                raise ValueError(
                    f"{names} class_names for the {outputs} outputs of {name!r}: name each"
                )

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        rows, kinds, boxes = _cases(images)
        pictures = images.image[torch.as_tensor(rows, dtype=torch.long)]
        maps = {}
        for name, network in self.classifiers.items():
            for method, heat in self._maps(network, pictures, kinds).items():
                maps[f"{name}: {method}"] = heat
        scores = {name: localization_scores(heat, boxes, self.top) for name, heat in maps.items()}
        details = {
            f"Localization by kind of lesion, {name}": localization_summary(table, kinds)
            for name, table in scores.items()
        }
        table = pd.DataFrame(
            [detail.loc["all"] for detail in details.values()], index=pd.Index(list(maps))
        )
        question = _QUESTION.format(top=self.top, number=len(set(rows)), total=len(images.image))
        figures, shown = {}, _spread(kinds, self.num_pictures)
        if shown:
            some = {name: heat[shown] for name, heat in maps.items()}
            titles, their_boxes = [kinds[case] for case in shown], [boxes[case] for case in shown]
            figures[_CAPTION] = saliency_figure(pictures[shown], some, their_boxes, titles)
        return StudyResult("Where classifiers look", question, table, figures, details)

    def _maps(
        self, network: TransferClassifier, pictures: torch.Tensor, kinds: Sequence[str]
    ) -> dict[str, torch.Tensor]:
        classes = self._classes(network, pictures, kinds)
        maps = {
            "Grad-CAM": grad_cam(
                network, pictures, classes, self.layer, self.batch_size, self.progress
            )
        }
        if any(isinstance(module, SABlock) for module in network.encoder.modules()):
            maps["roll-out"] = attention_rollout(
                network.encoder, pictures, self.batch_size, self.progress
            )
        return maps

    def _classes(
        self, network: TransferClassifier, pictures: torch.Tensor, kinds: Sequence[str]
    ) -> torch.Tensor:
        """The class of each kind, or the predicted one of a kind that is none."""
        names = list(self.class_names or [])
        classes = torch.tensor(
            [names.index(kind) if kind in names else -1 for kind in kinds], dtype=torch.long
        )
        unknown = (classes < 0).nonzero().flatten()
        if len(unknown):
            with eval_mode(network), torch.no_grad():
                for rows in tqdm(
                    unknown.split(self.batch_size), desc="prediction", disable=not self.progress
                ):
                    classes[rows] = network(pictures[rows].to(network.encoder.mean)).argmax(1).cpu()
        return classes


def _cases(images: StudyImages) -> tuple[list[int], list[str], list[torch.Tensor]]:
    """Image, kind and boxes of every kind of lesion in every image that has boxes."""
    cases = []
    for row, of_image in enumerate(images.boxes or ()):
        lesion = "lesion" if images.group is None else str(images.group[row])
        names = (
            [lesion] * len(of_image)
            if images.box_kinds is None
            else [str(name) for name in images.box_kinds[row]]
        )
        for kind in dict.fromkeys(names):
            own = [number for number, name in enumerate(names) if name == kind]
            cases.append((row, kind, torch.as_tensor(of_image)[own]))
    return (
        [row for row, _, _ in cases],
        [kind for _, kind, _ in cases],
        [boxes for _, _, boxes in cases],
    )


def _spread(kinds: Sequence[str], number: int) -> list[int]:
    """Cases of all kinds in turn, as many as wanted, in the order of the kinds."""
    table = pd.DataFrame({"kind": pd.Series(kinds, dtype=object)})
    turns = table.assign(turn=table.groupby("kind").cumcount()).sort_values("turn", kind="stable")
    return turns.head(number).reset_index().sort_values(["kind", "index"])["index"].tolist()
