# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Composition and decomposition: is a patch's embedding the mean of its parts' embeddings?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.apps.results.pictures.style import (
    LABEL_SIZE,
    SERIES_COLORS,
    frame,
    legend_below,
    plot_figure,
)
from monai_afire.apps.studies.dot_plot import dot_plot
from monai_afire.apps.studies.features.tokens import check_sources, token_features
from monai_afire.apps.studies.images.boxes import (
    box_masks,
    crop_and_resize,
    random_boxes,
    split_boxes,
)
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.apps.studies.study import StudyResult, StudySettings
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

_ROWS = 256  # queries that are compared at a time


def compositionality(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    parts: Sequence[int] = (2, 4),
    patches_per_image: int = 4,
    side: Sequence[float] = (0.3, 0.6),
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = True,
) -> pd.DataFrame:
    r"""
    Compare a patch's embedding with the mean embedding of its parts (ACE, Fig. 3).

    .. math:: \cos\Big(f(C), \frac{1}{P} \sum_{p=1}^{P} f(C_p)\Big)

    C is a random patch, :math:`C_p` its P parts, f the mean token of what is given to the encoder, each resized to the
    encoder's size. Embeddings of radiographs may all be alike, which makes this cosine large for nothing: so the same
    patch is compared with the parts of another image's patch, too. Only the difference is composition.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of any size: the more pixels, the less a patch is enlarged.
        parts: numbers of parts: 2 (halves, along each axis in turn) or :math:`2^n`, 4 in two dimensions.
        patches_per_image: random patches of each image.
        side: smallest and largest side of a patch as a share of the image's; the paper prints 0.3 to 0.6 for the
            decomposition and no value here.
        seed: of the patches; every encoder sees the same ones.
        batch_size: pictures in a pass of the encoder.
        progress: whether to show a progress bar over the pictures.

    Returns:
        A row per patch and number of parts: "image", "patch", "parts", "similarity", the cosine with the own parts, and
        "other_similarity", the one with those of the next image's patch (NaN for a single image).

    Raises:
        ValueError: for images that the encoder does not take, and for options out of range.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> table = compositionality(encoder, torch.rand(3, 1, 32, 32), parts=[4], progress=False)
        >>> table.shape, float(table["similarity"].max()) <= 1.0001
        ((12, 5), True)
    """
    images = convert_to_tensor(images, track_meta=False)
    check_sources(encoder, images)
    if patches_per_image < 1:
        raise ValueError(f"patches_per_image must be at least 1, got {patches_per_image}")
    patch = torch.arange(patches_per_image).repeat(len(images))
    index = torch.arange(len(images)).repeat_interleave(patches_per_image)
    boxes = random_boxes(len(index), images.shape[2:], side, torch.Generator().manual_seed(seed))
    divisions = [split_boxes(boxes, number, patch % len(encoder.img_size)) for number in parts]
    tables = []
    with tqdm(
        total=len(index) * (1 + sum(parts)), disable=not progress, unit="patch", desc="composition"
    ) as bar:
        wholes = _embed_boxes(encoder, images, index, boxes, batch_size, bar)
        for number, division in zip(parts, divisions, strict=True):
            of_parts = index.repeat_interleave(number)
            embeddings = _embed_boxes(
                encoder, images, of_parts, division.flatten(0, 1), batch_size, bar
            )
            composed = embeddings.unflatten(0, (-1, number)).mean(1)
            others = (
                composed.roll(-patches_per_image, 0)
                if len(images) > 1
                else torch.full_like(composed, torch.nan)
            )
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
    side: Sequence[float] = (0.3, 0.6),
    gallery: int = 32,
    fill: float = 0.0,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = True,
    native: torch.Tensor | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    r"""
    Match images with a random patch C of each by their embeddings f, in two ways.

    * Decomposition (ACE, Fig. 4): the query is what the image X loses without the patch,
      :math:`f(X) - f(X \setminus C)`, the gallery are patches, :math:`f(C_i)`.
    * Retrieval (ACE, Fig. 5): the query is the patch, :math:`f(C)`, the gallery are whole images, :math:`f(X_i)`.

    The match is the one with the highest cosine. The paper's galleries are batches of 32, with one query per batch in
    the retrieval; here the images stand in a random circle and a gallery is the own item and the next 31, so every
    image is a query, and the same chance of 1/32 holds for all.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`, on any device, which the work is done on.
        images: ``(M, C, *S)`` in [0, 1], of the encoder's size.
        side: smallest and largest side of a patch as a share of the image's.
        gallery: how many to match with; all, if there are fewer images.
        fill: intensity in [0, 1] that replaces the patch in X without C.
        seed: of the patches and the circle; every encoder sees the same.
        batch_size: pictures in a pass of the encoder.
        progress: whether to show a progress bar over the pictures.
        native: ``(M, C, *T)``, the same images in more pixels, of which the patches are cut; None for ``images``.

    Returns:
        The tables of decomposition and of retrieval, a row per image: "image", "correct" (1 if the own item is the
        match, 0 if not; if several are equally similar, the share that one of them is), "similarity" with the own item,
        and "chance". "correct" is NaN for a single image.

    Raises:
        ValueError: for images that the encoder does not take, and for options out of range.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> decomposition, retrieval = decomposition_and_retrieval(encoder, torch.rand(5, 1, 32, 32), progress=False)
        >>> decomposition["chance"].tolist(), list(retrieval)
        ([0.2, 0.2, 0.2, 0.2, 0.2], ['image', 'correct', 'similarity', 'chance'])
    """
    images = convert_to_tensor(images, track_meta=False)
    encoder.check_images(images)
    sources = images if native is None else convert_to_tensor(native, track_meta=False)
    check_sources(encoder, sources)
    if not 0 <= fill <= 1:
        raise ValueError(f"fill is an intensity in [0, 1], got {fill}")
    if gallery < 2:
        raise ValueError(f"gallery must be at least 2 to choose from, got {gallery}")
    number, generator = len(images), torch.Generator().manual_seed(seed)
    boxes = random_boxes(number, sources.shape[2:], side, generator)
    scale = torch.tensor(
        [new / old for new, old in zip(encoder.img_size, sources.shape[2:], strict=True)]
    ).repeat(2)
    circle = torch.randperm(number, generator=generator)

    def excised(rows: slice) -> torch.Tensor:
        hidden = box_masks(boxes[rows] * scale, encoder.img_size).unsqueeze(1).to(images.device)
        return images[rows].masked_fill(hidden, fill)

    with tqdm(
        total=3 * number, disable=not progress, unit="picture", desc="decomposition, retrieval"
    ) as bar:
        wholes, without = (
            token_features(encoder, number, pictures, batch_size=batch_size, bar=bar)
            for pictures in (lambda rows: images[rows], excised)
        )
        patches = _embed_boxes(encoder, sources, torch.arange(number), boxes, batch_size, bar)
    return _matches(wholes - without, patches, circle, gallery), _matches(
        patches, wholes, circle, gallery
    )


def composition_summary(
    composition: pd.DataFrame, decomposition: pd.DataFrame, retrieval: pd.DataFrame
) -> dict[str, float]:
    """
    The metrics of one encoder.

    Args:
        composition: of :func:`compositionality`.
        decomposition: the first table of :func:`decomposition_and_retrieval`.
        retrieval: the second one.

    Returns:
        For each number of parts P the means "similarity_P_parts", "other_image_P_parts" and "own_nearer_P_parts", the
        share of patches that are more similar to their own parts than to another image's (a tie counts half; chance is
        0.5); then "decomposition_accuracy" and "retrieval_accuracy" with their "chance".

    Example:
        >>> composition = pd.DataFrame({"parts": [2, 2], "similarity": [0.9, 0.5], "other_similarity": [0.4, 0.6]})
        >>> matches = pd.DataFrame({"correct": [1.0, 0.0], "chance": [0.5, 0.5]})
        >>> composition_summary(composition, matches, matches)["own_nearer_2_parts"]
        0.5
    """
    own, other = composition["similarity"], composition["other_similarity"]
    nearer = ((own > other) + 0.5 * (own == other)).where(other.notna())
    columns = {"similarity": own, "other_image": other, "own_nearer": nearer}
    means = pd.DataFrame(columns).groupby(composition["parts"]).mean()
    return {
        **{
            f"{name}_{parts}_parts": float(row[name])
            for parts, row in means.iterrows()
            for name in columns
        },
        "decomposition_accuracy": float(decomposition["correct"].mean()),
        "retrieval_accuracy": float(retrieval["correct"].mean()),
        "chance": float(retrieval["chance"].mean()),
    }


def _embed_boxes(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    index: torch.Tensor,
    boxes: torch.Tensor,
    batch_size: int,
    bar: tqdm,
) -> torch.Tensor:
    """Embeddings (N, D) of box number j out of image index[j]."""

    def cropped(rows: slice) -> torch.Tensor:
        sources = images[index[rows].to(images.device)].to(encoder.mean)
        return crop_and_resize(sources, boxes[rows], encoder.img_size)

    return token_features(encoder, len(index), cropped, batch_size=batch_size, bar=bar)


def _matches(
    queries: torch.Tensor, targets: torch.Tensor, circle: torch.Tensor, gallery: int
) -> pd.DataFrame:
    """Is target j the most similar to query j among those next in the circle?"""
    number = len(circle)
    size = min(gallery, number)
    order = circle.to(queries.device)
    unit_queries, unit_targets = (
        F.normalize(queries[order], dim=-1),
        F.normalize(targets[order], dim=-1),
    )
    own, correct = [], []
    for rows in torch.arange(number, device=queries.device).split(_ROWS):
        columns = (rows.unsqueeze(1) + torch.arange(size, device=rows.device)) % number
        similarity = (unit_queries[rows] @ unit_targets.T).gather(1, columns)
        best = similarity == similarity.amax(1, keepdim=True)
        own.append(similarity[:, 0].cpu())
        correct.append((best[:, 0] / best.sum(1)).cpu())
    columns = {
        "image": circle,
        "correct": torch.cat(correct) if size > 1 else np.nan,
        "similarity": torch.cat(own),
        "chance": 1 / size,
    }
    return pd.DataFrame(columns).sort_values("image", ignore_index=True)


_SIMILARITIES = {
    "other_similarity": ("parts of another image", SERIES_COLORS[5]),
    "similarity": ("own parts", SERIES_COLORS[0]),
}


def composition_figure(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """
    Histograms of the similarity of a patch with its parts, and with those of another image (ACE, Fig. 3).

    A row per encoder, a column per number of parts; all panels of a column share the range of similarity.

    Args:
        tables: of :func:`monai_afire.apps.studies.compositionality`, by the encoders' names.

    Returns:
        The figure.

    Raises:
        ValueError: without a table.

    Example:
        >>> similarity = np.linspace(0.7, 0.9, 9)
        >>> table = pd.DataFrame({"parts": 2, "similarity": similarity, "other_similarity": similarity - 0.3})
        >>> len(composition_figure({"untrained": table, "trained": table}).axes)
        2
    """
    if not tables:
        raise ValueError("no table to draw: give the table of at least one encoder")
    parts = sorted(set().union(*(table["parts"] for table in tables.values())))
    figure = plot_figure(0.9 + 3.3 * len(parts), 1.0 + 1.25 * len(tables))
    axes = figure.subplots(len(tables), len(parts), squeeze=False, sharex="col")
    for axis, (name, number) in zip(axes.flat, product(tables, parts), strict=True):
        own = tables[name][tables[name]["parts"] == number]
        for column, (label, color) in _SIMILARITIES.items():
            axis.hist(
                own[column].dropna(),
                bins=30,
                histtype="stepfilled",
                alpha=0.5,
                color=color,
                label=label,
            )
        frame(
            axis,
            f"{number} parts" if axis in axes[0] else "",
            "cosine similarity" if axis in axes[-1] else "",
        )
        axis.set_yticks([])
    for axis, name in zip(axes[:, 0], tables, strict=True):
        axis.set_ylabel(
            name, rotation=0, ha="right", va="center", fontsize=LABEL_SIZE, parse_math=False
        )
    legend_below(figure, *axes.flat[0].get_legend_handles_labels())
    return figure


_QUESTION = (
    "Is the embedding of a patch the mean of its parts' embeddings (composition)? Does an image lose a patch's "
    "embedding with the patch (decomposition)? Does a patch find its image (retrieval)? Embeddings are mean tokens of "
    "random patches, cut out of {pixels} pixels and resized to the encoder's input. A similarity of 1 with the own "
    "parts is perfect, but says "
    "nothing unless that with another image's parts is lower. The share of patches nearer to their own parts is 0.5 by "
    "chance; accuracies are those of choosing among {gallery}, chance is {chance:.3f}."
)
_HISTOGRAM_CAPTION = (
    "Similarity of a patch with the mean of its parts, and with that of another image's parts"
)
_ACCURACY_CAPTION = (
    "Accuracy of choosing the patch that was taken out, and of finding a patch's image"
)


@dataclass
class CompositionStudy(StudySettings):
    """
    Composition, decomposition and retrieval of patches (ACE, section 5.1) as a study of the report.

    Args:
        parts: see :func:`monai_afire.apps.studies.compositionality`.
        patches_per_image: see there.
        side: smallest and largest side of a patch as a share of the image's.
        gallery: see :func:`monai_afire.apps.studies.decomposition_and_retrieval`.
        seed: of the patches.
        batch_size: pictures in a pass of an encoder.
        progress: whether to show progress bars.

    Example:
        >>> import torch
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> result = CompositionStudy(progress=False)({"untrained": encoder}, StudyImages(torch.rand(4, 1, 32, 32)))
        >>> float(result.table.loc["untrained", "chance"])
        0.25
    """

    parts: Sequence[int] = (2, 4)
    patches_per_image: int = 4
    side: Sequence[float] = (0.3, 0.6)
    gallery: int = 32

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        compositions, summaries = {}, {}
        options = {"side": self.side, "seed": self.seed, **self.encoding}
        for name, encoder in encoders.items():
            compositions[name] = compositionality(
                encoder, images.detailed, self.parts, self.patches_per_image, **options
            )
            matches = decomposition_and_retrieval(
                encoder, images.image, gallery=self.gallery, native=images.native, **options
            )
            summaries[name] = composition_summary(compositions[name], *matches)
        table = pd.DataFrame.from_dict(summaries, orient="index")
        chance = 1 / min(self.gallery, len(images.image))
        accuracies = table[["decomposition_accuracy", "retrieval_accuracy"]].T.assign(chance=chance)
        figures = {
            _HISTOGRAM_CAPTION: composition_figure(compositions),
            _ACCURACY_CAPTION: dot_plot(
                accuracies, "Choice of the own patch or image", "accuracy", (-0.03, 1.03)
            ),
        }
        pixels = " x ".join(map(str, images.detailed.shape[2:]))
        question = _QUESTION.format(gallery=round(1 / chance), chance=chance, pixels=pixels)
        return StudyResult("Composition and decomposition", question, table, figures)
