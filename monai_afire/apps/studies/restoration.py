# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Restorations of AFiRe with and without mask tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from monai.utils import convert_to_tensor
from tqdm.auto import tqdm

from monai_afire.apps.results.pictures.heat_map import MARK_COLOR
from monai_afire.apps.studies.images import StudyImages
from monai_afire.apps.studies.study import StudyResult, metrics_table
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
_PICTURES = 4  # in each figure
_FIGURES = {"images with lesions": True, "normal images, the same tokens hidden": False}
_LESION_RESTORED = ("with_mask", "without_mask")
_NORMAL_RESTORED = ("normal_with_mask", "normal_without_mask")


class Restorations(NamedTuple):
    """
    Images, their lesions and what the decoder makes of them; all ``(M, C, H, W)`` in [0, 1] but for ``hidden``.

    Attributes:
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


def restoration_study(
    encoders: Mapping[str, RadiographEncoder],
    images: StudyImages,
    networks: Mapping[str, AFiRe],
    lesion_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> StudyResult:
    """
    Restorations with and without mask tokens (AFiRe, Fig. 9 and 10).

    Lesions are added to the images of the group "normal" alone; to all where there is no such group.

    Args:
        networks: AFiRe networks by the names that the report shows.
        lesion_options: of :func:`monai_afire.transforms.synth_lesion_masks`, best those of the pre-training; None for
            its defaults.
    """
    groups = images.group or []
    normal = [row for row, group in enumerate(groups) if group == "normal"]
    pictures = images.image[normal] if normal else images.image
    rows = range(min(_PICTURES, len(pictures)))
    metrics, figures = {}, {}
    for name, network in networks.items():
        found = restorations(network, pictures, lesion_options, seed, batch_size)
        patch = network.encoder.patch_size
        metrics[name] = restoration_summary(found, patch)
        for what, lesions in _FIGURES.items():
            figure = restoration_figure(found, patch, rows, name, lesions)
            figures[f"Restoration of {what}, {name}"] = figure
    title = "Restoration with and without mask tokens"
    question = _QUESTION.format(number=len(pictures))
    return StudyResult(title, question, metrics_table(metrics), figures)


def restorations(
    network: AFiRe,
    images: torch.Tensor,
    lesion_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> Restorations:
    """
    Restore images with synthetic lesions and without, with mask tokens and without, on the images' device.

    Every network sees the same lesions, whatever the batch size.
    """
    images = convert_to_tensor(images, track_meta=False)
    network.encoder.check_images(images)
    generator = torch.Generator().manual_seed(seed)
    options = {**(lesion_options or {}), "num_masks": 1, "generator": generator}
    device = network.encoder.mean.device
    chunks = []
    with eval_mode(network), torch.no_grad():
        for batch in tqdm(images.split(batch_size), desc="restoration", unit="batch", leave=False):
            lesion, maps = synth_lesion_masks(batch.cpu(), **options)
            hidden = patch_labels(maps, network.encoder.patch_size).to(device)
            chunk = _restored(network, batch.to(device), lesion.to(device), hidden)
            chunks.append([part.to(images.device) for part in chunk])
    return Restorations(*(torch.cat(part) for part in zip(*chunks, strict=True)))


def restoration_scores(found: Restorations, patch_size: Sequence[int]) -> pd.DataFrame:
    r"""
    How well lesions are removed from each image, compared with the image without them.

    The peak signal-to-noise ratio is that inside of patches that a lesion covers,
    :math:`-10 \log_{10} \operatorname{mean}((y - x)^2)` dB for intensities in [0, 1]; larger is better.

    Returns:
        A row per image; NaN where no patch counts, as in lesions that change nothing (white on white):

        * "psnr_lesion": that of the image with lesions, to compare with; "psnr_with_mask", "psnr_without_mask",
        * "psnr_normal_with_mask", "psnr_normal_without_mask": of the images without lesions, in the same patches,
        * "psnr_outside": of the lesion image restored with mask tokens, in all other patches.
    """
    patches = _patches(found, patch_size)
    changed = (patches["lesion"] != patches["normal"]).any(-1) & found.hidden
    counted = found.hidden & changed.any(1, keepdim=True)

    def psnr(name: str, tokens: torch.Tensor) -> list[float]:
        error = (patches[name] - patches["normal"]).square().mean(-1)
        mean = (error * tokens).sum(1) / tokens.sum(1)  # 0 / 0 is NaN where no patch counts
        return (-10 * mean.log10()).tolist()

    columns = {
        **{f"psnr_{name}": psnr(name, counted) for name in ("lesion", *_LESION_RESTORED)},
        **{f"psnr_{name}": psnr(name, found.hidden) for name in _NORMAL_RESTORED},
        "psnr_outside": psnr("with_mask", ~found.hidden),
    }
    return pd.DataFrame(columns)


def restoration_summary(found: Restorations, patch_size: Sequence[int]) -> dict[str, float]:
    """
    The metrics of one network: the means of :func:`restoration_scores`, and the gains inside of lesions.

    Gains, :func:`monai_afire.metrics.restoration_gain`, are of the pixels of all lesions together: an image whose
    lesion is hardly visible has a gain of any size. NaN where no lesion changes anything.
    """
    patches = _patches(found, patch_size)
    is_visible = (patches["lesion"] != patches["normal"])[found.hidden].any()
    gains = dict.fromkeys((f"gain_{name}" for name in _LESION_RESTORED), np.nan)
    for name in _LESION_RESTORED if is_visible else ():
        parts = (patches[name], patches["normal"], patches["lesion"], found.hidden)
        gains[f"gain_{name}"] = float(restoration_gain(*parts))
    return gains | restoration_scores(found, patch_size).mean().to_dict()


def restoration_figure(
    found: Restorations,
    patch_size: Sequence[int],
    rows: Sequence[int],
    title: str,
    lesions: bool,
) -> Figure:
    """
    Images, where tokens are hidden, and their restorations with mask tokens and without.

    Those with lesions (AFiRe, Fig. 9), or the normal ones, where the same tokens are hidden (Fig. 10).
    """
    grid = [length // p for length, p in zip(found.normal.shape[2:], patch_size, strict=True)]
    patches = found.hidden.float().unsqueeze(-1).expand(-1, -1, int(np.prod(patch_size)))
    hidden = unpatchify(patches, grid, patch_size)
    columns = {"normal": found.normal, "with lesions": found.lesion}
    columns["mask tokens"] = found.lesion if lesions else found.normal
    columns["with mask tokens"] = found.with_mask if lesions else found.normal_with_mask
    columns["without"] = found.without_mask if lesions else found.normal_without_mask
    if not lesions:
        del columns["with lesions"]
    pictures = []
    for row in rows:
        shown = {name: first_channel(images[row]) for name, images in columns.items()}
        covered = first_channel(hidden[row])[..., None] > 0
        given = shown["mask tokens"][..., None]
        shown["mask tokens"] = np.where(covered, to_rgb(MARK_COLOR), given)
        pictures.append(list(shown.values()))
    return picture_grid(pictures, list(columns), title)


def _patches(found: Restorations, patch_size: Sequence[int]) -> dict[str, torch.Tensor]:
    """The patches (M, L, P) of all pictures."""
    pictures = {name: picture for name, picture in found._asdict().items() if name != "hidden"}
    return {name: patchify(picture, patch_size).float() for name, picture in pictures.items()}


def _restored(
    network: AFiRe, normal: torch.Tensor, lesion: torch.Tensor, hidden: torch.Tensor
) -> Restorations:
    """The restorations of one batch; the encoder sees each image once."""
    encoder = network.encoder
    restored = [
        encoder.to_images(network.decoder(tokens, mask))
        for tokens in (encoder(lesion), encoder(normal))
        for mask in (hidden, None)
    ]
    return Restorations(normal, lesion, hidden, *restored)
