# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Composition and decomposition: is a patch's embedding the mean of its parts' embeddings?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from monai.utils import convert_to_tensor

from monai_afire.apps.results.pictures import style
from monai_afire.apps.studies.features import image_features, token_features
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.regions import (
    box_masks,
    crop_and_resize,
    random_boxes,
    split_boxes,
)
from monai_afire.apps.studies.study import StudyResult, metrics_table
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

_PARTS = (2, 4)  # halves and quarters of a patch
_PATCHES = 4  # of an image
_SIDE = (0.3, 0.6)  # of a patch, of the image's; the paper prints none for the composition
_GALLERY = 32  # how many to match with

_QUESTION = (
    "Is the embedding of a patch the mean of its parts' embeddings (composition)? Does an image lose a patch's "
    "embedding with the patch (decomposition)? Does a patch find its image (retrieval)? Embeddings are mean tokens of "
    "random patches, cut out of {pixels} pixels and resized to the encoder's input. A similarity of 1 with the own "
    "parts is perfect, but says nothing unless that with another image's parts is lower. The share of patches nearer "
    "to their own parts is 0.5 by chance; accuracies are those of choosing among {gallery}, chance is {chance:.3f}."
)
_HISTOGRAM_CAPTION = (
    "Similarity of a patch with the mean of its parts, and with that of another image's parts"
)
_SIMILARITIES = {
    "other_similarity": ("parts of another image", style.SERIES_COLORS[5]),
    "similarity": ("own parts", style.SERIES_COLORS[0]),
}


def composition_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """Composition, decomposition and retrieval of patches (ACE, section 5.1)."""
    compositions, summaries = {}, {}
    for name, encoder in encoders.items():
        composition = compositionality(encoder, images.detailed, seed=seed, batch_size=batch_size)
        matches = decomposition_and_retrieval(
            encoder, images.image, images.native, seed=seed, batch_size=batch_size
        )
        compositions[name] = composition
        summaries[name] = composition_summary(composition, *matches)
    table = metrics_table(summaries)
    figures = {_HISTOGRAM_CAPTION: composition_figure(compositions)}
    pixels = " x ".join(map(str, images.detailed.shape[2:]))
    number = min(_GALLERY, len(images.image))
    question = _QUESTION.format(gallery=number, chance=1 / number, pixels=pixels)
    return StudyResult("Composition and decomposition", question, table, figures)


def compositionality(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    side: Sequence[float] = _SIDE,
    seed: int = 0,
    batch_size: int = 32,
) -> pd.DataFrame:
    r"""
    Compare a patch's embedding with the mean embedding of its parts (ACE, Fig. 3).

    .. math:: \cos\Big(f(C), \frac{1}{P} \sum_{p=1}^{P} f(C_p)\Big)

    C is a random patch of images ``(M, C, H, W)`` of any size, :math:`C_p` its 2 or 4 parts (halves along each axis in
    turn), f the mean token of what is given to the encoder, each resized to the encoder's size. Embeddings of
    radiographs may all be alike, which makes this cosine large for nothing: so the same patch is compared with the
    parts of another image's patch, too. Only the difference is composition.

    Returns:
        A row per patch and number of parts: "image", "patch", "parts", "similarity", the cosine with the own parts, and
        "other_similarity", the one with those of the next image's patch (NaN for a single image).
    """
    images = convert_to_tensor(images, track_meta=False)
    patch = torch.arange(_PATCHES).repeat(len(images))
    index = torch.arange(len(images)).repeat_interleave(_PATCHES)
    boxes = random_boxes(len(index), images.shape[2:], side, torch.Generator().manual_seed(seed))
    wholes = _embed_boxes(encoder, images, index, boxes, batch_size)
    tables = []
    for number in _PARTS:
        divided = split_boxes(boxes, number, patch % 2).flatten(0, 1)
        of_parts = index.repeat_interleave(number)
        embeddings = _embed_boxes(encoder, images, of_parts, divided, batch_size)
        composed = embeddings.unflatten(0, (-1, number)).mean(1)
        others = composed.roll(-_PATCHES, 0)
        if len(images) == 1:
            others = torch.full_like(composed, torch.nan)
        columns = {
            "image": index,
            "patch": patch,
            "parts": number,
            "similarity": F.cosine_similarity(wholes, composed, dim=-1).cpu(),
            "other_similarity": F.cosine_similarity(wholes, others, dim=-1).cpu(),
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def decomposition_and_retrieval(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    native: torch.Tensor | None = None,
    side: Sequence[float] = _SIDE,
    gallery: int = _GALLERY,
    seed: int = 0,
    batch_size: int = 32,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    r"""
    Match images with a random patch C of each by their embeddings f, in two ways.

    * Decomposition (ACE, Fig. 4): the query is what the image X loses without the patch,
      :math:`f(X) - f(X \setminus C)`, the gallery are patches, :math:`f(C_i)`. The patch is black in what is left.
    * Retrieval (ACE, Fig. 5): the query is the patch, :math:`f(C)`, the gallery are whole images, :math:`f(X_i)`.

    The match is the one with the highest cosine. The paper's galleries are batches of 32, with one query per batch in
    the retrieval; here the images stand in a random circle and a gallery is the own item and the next 31, so every
    image is a query, and the same chance of 1/32 holds for all. Images ``(M, C, H, W)`` have the encoder's size; the
    patches are cut out of ``native`` ones with more pixels, if there are.

    Returns:
        The tables of decomposition and of retrieval, a row per image: "image", "correct" (1 if the own item is the
        match, 0 if not; if several are equally similar, the share that one of them is), "similarity" with the own item,
        and "chance". "correct" is NaN for a single image.
    """
    images = convert_to_tensor(images, track_meta=False)
    sources = images if native is None else convert_to_tensor(native, track_meta=False)
    number, generator = len(images), torch.Generator().manual_seed(seed)
    boxes = random_boxes(number, sources.shape[2:], side, generator)
    sizes = zip(encoder.img_size, sources.shape[2:], strict=True)
    scale = torch.tensor([new / old for new, old in sizes]).repeat(2)
    circle = torch.randperm(number, generator=generator)
    hidden = box_masks(boxes * scale, encoder.img_size).unsqueeze(1).to(images.device)
    wholes = image_features(encoder, images, batch_size)
    without = image_features(encoder, images.masked_fill(hidden, 0.0), batch_size)
    patches = _embed_boxes(encoder, sources, torch.arange(number), boxes, batch_size).cpu()
    decomposition = _matches(wholes - without, patches, circle, gallery)
    return decomposition, _matches(patches, wholes, circle, gallery)


def composition_summary(
    composition: pd.DataFrame, decomposition: pd.DataFrame, retrieval: pd.DataFrame
) -> dict[str, float]:
    """
    The metrics of one encoder from its table of :func:`compositionality` and those of the matches.

    "own_nearer_P_parts" is the share of patches that are more similar to their own P parts than to another image's; a
    tie counts half, chance is 0.5.
    """
    own, other = composition["similarity"], composition["other_similarity"]
    nearer = ((own > other) + 0.5 * (own == other)).where(other.notna())
    columns = {"similarity": own, "other_image": other, "own_nearer": nearer}
    means = pd.DataFrame(columns).groupby(composition["parts"]).mean()
    return {
        **{
            f"{name}_{parts}_parts": row[name]
            for parts, row in means.iterrows()
            for name in columns
        },
        "decomposition_accuracy": float(decomposition["correct"].mean()),
        "retrieval_accuracy": float(retrieval["correct"].mean()),
        "chance": float(retrieval["chance"].mean()),
    }


def composition_figure(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Histograms of the similarities (ACE, Fig. 3): a row per encoder, a column per number of parts."""
    figure = style.plot_figure(0.9 + 3.3 * len(_PARTS), 1.0 + 1.25 * len(tables))
    axes = figure.subplots(len(tables), len(_PARTS), squeeze=False, sharex="col")
    bars = {"bins": 30, "histtype": "stepfilled", "alpha": 0.5}
    for axis, (name, number) in zip(axes.flat, product(tables, _PARTS), strict=True):
        own = tables[name][tables[name]["parts"] == number]
        for column, (label, color) in _SIMILARITIES.items():
            axis.hist(own[column].dropna(), color=color, label=label, **bars)
        title = f"{number} parts" if axis in axes[0] else ""
        style.frame(axis, title, "cosine similarity" if axis in axes[-1] else "")
        axis.set_yticks([])
    place = {"rotation": 0, "ha": "right", "va": "center"}
    for axis, name in zip(axes[:, 0], tables, strict=True):
        axis.set_ylabel(name, fontsize=style.LABEL_SIZE, parse_math=False, **place)
    style.legend_below(figure, *axes.flat[0].get_legend_handles_labels())
    return figure


def _embed_boxes(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    index: torch.Tensor,
    boxes: torch.Tensor,
    batch_size: int,
) -> torch.Tensor:
    """Embeddings (N, D) of box number j out of image index[j]."""

    def cropped(rows: slice) -> torch.Tensor:
        sources = images[index[rows].to(images.device)].to(encoder.mean)
        return crop_and_resize(sources, boxes[rows], encoder.img_size)

    return token_features(encoder, len(index), cropped, batch_size=batch_size)


def _matches(
    queries: torch.Tensor, targets: torch.Tensor, circle: torch.Tensor, gallery: int
) -> pd.DataFrame:
    """Is target j the most similar to query j among those next in the circle?"""
    number = len(circle)
    size = min(gallery, number)
    unit_queries, unit_targets = (F.normalize(part[circle], dim=-1) for part in (queries, targets))
    columns = (torch.arange(number).unsqueeze(1) + torch.arange(size)) % number
    similarity = (unit_queries @ unit_targets.T).gather(1, columns)
    best = similarity == similarity.amax(1, keepdim=True)
    table = {
        "image": circle,
        "correct": best[:, 0] / best.sum(1) if size > 1 else np.nan,
        "similarity": similarity[:, 0],
        "chance": 1 / size,
    }
    return pd.DataFrame(table).sort_values("image", ignore_index=True)
