# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Restorations of AFiRe with and without mask tokens: their metrics, their figure and their study for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.apps.results.pictures.heat_map import MARK_COLOR
from monai_afire.apps.studies.images.study_images import StudyImages
from monai_afire.apps.studies.study import StudyResult, StudySettings
from monai_afire.metrics.pretraining import restoration_gain
from monai_afire.networks.blocks.patches import patch_labels, patchify, unpatchify
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.transforms import synth_lesion_masks
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.visualize.figures import first_channel, picture_grid

_QUESTION = (
    "Does the decoder remove synthetic lesions from {number} images, and do mask tokens instead of the lesions' "
    "tokens help? Gain inside of lesions: 1 is a perfect restoration, 0 as bad as the lesion, negative worse. Compare "
    "the peak signal-to-noise ratios (dB) with psnr_lesion, that of the lesion itself. psnr_normal is that of images "
    "without lesions in the same patches, psnr_outside that of all other patches."
)
_COLUMNS = ("normal", "with lesions", "mask tokens", "with mask tokens", "without")
_NORMAL_COLUMNS = ("normal", "mask tokens", "with mask tokens", "without")
_LESION_RESTORED = ("with_mask", "without_mask")
_NORMAL_RESTORED = ("normal_with_mask", "normal_without_mask")


@dataclass(frozen=True)
class Restorations:
    """
    Images, their lesions and what the decoder makes of them; all ``(M, C, *S)`` in [0, 1] but for ``hidden``.

    Args:
        normal: the images.
        lesion: the same with synthetic lesions.
        hidden: ``(M, L)`` bool, the tokens that a lesion covers.
        with_mask: lesion images restored, those tokens hidden behind mask tokens.
        without_mask: lesion images restored from all tokens.
        normal_with_mask: the images themselves restored, the same tokens hidden.
        normal_without_mask: the images themselves restored from all tokens.
    """

    normal: torch.Tensor
    lesion: torch.Tensor
    hidden: torch.Tensor
    with_mask: torch.Tensor
    without_mask: torch.Tensor
    normal_with_mask: torch.Tensor
    normal_without_mask: torch.Tensor


def restorations(
    network: AFiRe,
    images: torch.Tensor,
    lesion_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = True,
) -> Restorations:
    """
    Restore images with synthetic lesions and without, with mask tokens and without (AFiRe, Fig. 9 and 10).

    Args:
        network: pre-trained, on any device, which the work is done on.
        images: normal radiographs ``(M, C, *S)`` in [0, 1], of the encoder's size.
        lesion_options: of :func:`monai_afire.transforms.synth_lesion_masks`: "num_lesions", "lesion_size",
            "amplitude", ..., best those of the pre-training; None for its defaults. There is one variant per image.
        seed: of the lesions; every network sees the same ones, whatever the batch size.
        batch_size: images in a pass; each is encoded with and without lesions.
        progress: whether to show a progress bar over the images.

    Returns:
        Images, lesions and restorations, on the images' device.

    Raises:
        ValueError: for images that the encoder does not take, or beyond [0, 1].

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> found = restorations(network, torch.rand(2, 1, 32, 32), progress=False)
        >>> found.with_mask.shape, found.hidden.shape
        (torch.Size([2, 1, 32, 32]), torch.Size([2, 16]))
    """
    images = convert_to_tensor(images, track_meta=False)
    network.encoder.check_images(images)
    options = {
        **(lesion_options or {}),
        "num_masks": 1,
        "generator": torch.Generator().manual_seed(seed),
    }
    device = network.encoder.mean.device
    chunks = []
    with (
        tqdm(total=len(images), disable=not progress, unit="image", desc="restoration") as bar,
        eval_mode(network),
        torch.no_grad(),
    ):
        for batch in images.split(batch_size):
            lesion, maps = (part.to(device) for part in synth_lesion_masks(batch.cpu(), **options))
            chunk = _restored(
                network, batch.to(device), lesion, patch_labels(maps, network.encoder.patch_size)
            )
            chunks.append([part.to(images.device) for part in chunk])
            bar.update(len(batch))
    parts = zip(*chunks, strict=True)
    return Restorations(*(torch.cat(part) for part in parts))


def restoration_scores(found: Restorations, patch_size: Sequence[int]) -> pd.DataFrame:
    r"""
    How well lesions are removed from each image, compared with the image without them.

    The peak signal-to-noise ratio is that inside of patches that a lesion covers,
    :math:`-10 \log_{10} \operatorname{mean}((y - x)^2)` dB for intensities in [0, 1]; larger is better.

    Args:
        found: of :func:`restorations`.
        patch_size: pixels per token along each axis.

    Returns:
        A row per image; NaN where no patch counts, as in lesions that change nothing (white on white):

        * "gain_with_mask", "gain_without_mask": :func:`monai_afire.metrics.restoration_gain` inside of lesions: 1 is
          perfect, 0 as bad as the lesion,
        * "psnr_lesion": that of the image with lesions, to compare with; "psnr_with_mask", "psnr_without_mask",
        * "psnr_normal_with_mask", "psnr_normal_without_mask": of the images without lesions, in the same patches,
        * "psnr_outside": of the lesion image restored with mask tokens, in all other patches.

    Example:
        >>> normal, hidden = torch.zeros(1, 1, 4, 4), torch.tensor([[True, False, False, False]])
        >>> found = Restorations(normal, normal + 0.2, hidden, *[normal + 0.1] * 4)
        >>> restoration_scores(found, (2, 2)).round(2).iloc[0].tolist()
        [0.75, 0.75, 13.98, 20.0, 20.0, 20.0, 20.0, 20.0]
    """
    patches = _patches(found, patch_size)
    changed = (patches["lesion"] != patches["normal"]).any(-1) & found.hidden
    counted = found.hidden & changed.any(1, keepdim=True)

    def gain(name: str) -> list[float]:
        rows = zip(patches[name], patches["normal"], patches["lesion"], counted, strict=True)
        return [
            float(restoration_gain(*row)) if bool(row[3].any()) else float("nan") for row in rows
        ]

    def psnr(name: str, tokens: torch.Tensor) -> list[float]:
        error = (patches[name] - patches["normal"]).square().mean(-1)
        mean = (error * tokens).sum(1) / tokens.sum(1)  # 0 / 0 is NaN where no patch counts
        return (-10 * mean.log10()).tolist()

    columns = {
        **{f"gain_{name}": gain(name) for name in _LESION_RESTORED},
        **{f"psnr_{name}": psnr(name, counted) for name in ("lesion", *_LESION_RESTORED)},
        **{f"psnr_{name}": psnr(name, found.hidden) for name in _NORMAL_RESTORED},
        "psnr_outside": psnr("with_mask", ~found.hidden),
    }
    return pd.DataFrame(columns)


def restoration_summary(found: Restorations, patch_size: Sequence[int]) -> dict[str, float]:
    """
    The metrics of one network.

    Args:
        found: of :func:`restorations`.
        patch_size: pixels per token along each axis.

    Returns:
        The means of :func:`restoration_scores`, but for the gains, which are those of the pixels of all lesions
        together: an image whose lesion is hardly visible has a gain of any size.

    Example:
        >>> normal, hidden = torch.zeros(1, 1, 4, 4), torch.tensor([[True, False, False, False]])
        >>> found = Restorations(normal, normal + 0.2, hidden, normal, *[normal + 0.1] * 3)
        >>> round(restoration_summary(found, (2, 2))["gain_without_mask"], 2)
        0.75
    """
    patches = _patches(found, patch_size)
    summary = {
        str(name): float(value)
        for name, value in restoration_scores(found, patch_size).mean().items()
    }
    for name in _LESION_RESTORED:
        if not np.isnan(summary[f"gain_{name}"]):
            gain = restoration_gain(
                patches[name], patches["normal"], patches["lesion"], found.hidden
            )
            summary[f"gain_{name}"] = float(gain)
    return summary


def restoration_figure(
    found: Restorations,
    patch_size: Sequence[int],
    rows: Sequence[int],
    title: str = "",
    lesions: bool = True,
) -> Figure:
    """
    Images, where tokens are hidden, and their restorations with mask tokens and without (AFiRe, Fig. 9 and 10).

    Args:
        found: of :func:`monai_afire.apps.studies.restorations`.
        patch_size: pixels per token along each axis.
        rows: indices of the images to show.
        title: of the whole.
        lesions: True restores the images with lesions (Fig. 9), False the normal ones (Fig. 10).

    Returns:
        The figure.

    Raises:
        ValueError: without a row.

    Example:
        >>> picture, hidden = torch.zeros(1, 1, 8, 8), torch.tensor([[True, False, False, False]])
        >>> found = Restorations(picture, picture, hidden, *[picture] * 4)
        >>> len(restoration_figure(found, (4, 4), [0]).axes)
        5
    """
    names = _LESION_RESTORED if lesions else _NORMAL_RESTORED
    grid = [length // p for length, p in zip(found.normal.shape[2:], patch_size, strict=True)]
    patches = found.hidden.float().unsqueeze(-1).expand(-1, -1, int(np.prod(patch_size)))
    hidden = unpatchify(patches, grid, patch_size)
    pictures = []
    for row in rows:
        given = first_channel(found.lesion[row] if lesions else found.normal[row])
        masked = np.where(
            first_channel(hidden[row])[..., None] > 0, to_rgb(MARK_COLOR), given[..., None]
        )
        shown = [first_channel(found.normal[row]), given] if lesions else [given]
        pictures.append(
            [*shown, masked, *(first_channel(getattr(found, name)[row]) for name in names)]
        )
    return picture_grid(pictures, _COLUMNS if lesions else _NORMAL_COLUMNS, title)


@dataclass
class RestorationStudy(StudySettings):
    """
    Restorations with and without mask tokens (AFiRe, Fig. 9 and 10) as a study of the report.

    Args:
        networks: AFiRe networks by the names that the report shows. The study does not use the encoders that it is
            called with.
        lesion_options: see :func:`monai_afire.apps.studies.restorations`.
        normal_group: lesions are added to the images of this group only; to all where groups are unknown or none has
            this name.
        num_pictures: images in each figure.
        seed: of the lesions.
        batch_size: images in a pass.
        progress: whether to show progress bars.

    Raises:
        ValueError: without a network.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> result = RestorationStudy({"afire": network}, progress=False)({}, StudyImages(torch.rand(2, 1, 32, 32)))
        >>> result.table.shape
        (1, 8)
    """

    networks: Mapping[str, AFiRe]
    lesion_options: Mapping[str, Any] | None = None
    normal_group: str = "normal"
    num_pictures: int = 4

    def __post_init__(self) -> None:
        if not self.networks:
            raise ValueError(
                "no network to restore with: leave this study out, or give an AFiRe network"
            )

    def __call__(
        self, encoders: Mapping[str, RadiographEncoder], images: StudyImages
    ) -> StudyResult:
        """Make the study, see :class:`monai_afire.apps.studies.Study`."""
        groups = np.array(images.group or [], dtype=object)
        normal = np.flatnonzero(groups == self.normal_group)
        pictures = images.image[torch.from_numpy(normal)] if len(normal) else images.image
        summaries, figures = {}, {}
        rows = range(min(self.num_pictures, len(pictures)))
        for name, network in self.networks.items():
            found = restorations(network, pictures, self.lesion_options, self.seed, **self.encoding)
            patch = network.encoder.patch_size
            summaries[name] = restoration_summary(found, patch)
            for lesions, what in (
                (True, "images with lesions"),
                (False, "normal images, the same tokens hidden"),
            ):
                figures[f"Restoration of {what}, {name}"] = restoration_figure(
                    found, patch, rows, name, lesions
                )
        table, question = (
            pd.DataFrame.from_dict(summaries, orient="index"),
            _QUESTION.format(number=len(pictures)),
        )
        return StudyResult("Restoration with and without mask tokens", question, table, figures)


def _patches(found: Restorations, patch_size: Sequence[int]) -> dict[str, torch.Tensor]:
    """The patches (M, L, P) of all pictures."""
    pictures = {name: picture for name, picture in vars(found).items() if name != "hidden"}
    return {name: patchify(picture, patch_size).float() for name, picture in pictures.items()}


def _restored(
    network: AFiRe, normal: torch.Tensor, lesion: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The fields of Restorations of one batch; the encoder sees each image once."""
    encoder = network.encoder
    pictures = [normal, lesion, hidden]
    for tokens in (encoder(lesion), encoder(normal)):
        for mask in (hidden, None):
            pictures.append(encoder.to_images(network.decoder(tokens, mask)))
    return tuple(pictures)
