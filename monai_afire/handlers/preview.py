# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Preview pictures during training: restorations, correspondences, colors of tokens."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.utils import CommonKeys
from torch.utils.tensorboard import SummaryWriter

from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.utils.distributed import global_rank
from monai_afire.visualize.figures import figure_to_array, first_channel, picture_grid, save_figure
from monai_afire.visualize.token_colors import token_colors

_DIFFERENCE = "difference\nred: added, blue: removed"  # the colors of signed_colors


@dataclass(eq=False, repr=False)
class Preview(ABC):
    """
    Base of the picture grids of the first validation batch, for TensorBoard and as a PNG file.

    Args:
        encoder: encoder of the network, for the patch grid and the intensity normalization.
        path: the PNG file; replaced at each preview. The stem is the name in TensorBoard, below "pictures/".
        summary_writer: TensorBoard writer, None for the PNG only.
        num_images: number of rows.
    """

    encoder: RadiographEncoder
    path: str
    columns: tuple[str, ...] = field(default=(), init=False)
    summary_writer: SummaryWriter | None = field(default=None, kw_only=True)
    num_images: int = field(default=4, kw_only=True)

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        # of each validation: MONAI's evaluators count anew
        engine.add_event_handler(Events.ITERATION_COMPLETED(once=1), self)

    @torch.no_grad()
    def __call__(self, engine: Any) -> None:
        """Draw the grid from the evaluator's batch."""
        if global_rank():
            return
        rows = self.rows(engine.state.batch, engine.state.output[CommonKeys.PRED])
        if not rows:
            return
        figure = picture_grid(rows, self.columns, f"epoch {engine.state.epoch}")
        path = Path(self.path)
        save_figure(figure, path)
        if self.summary_writer is not None:
            # TensorBoard shows one kind of data per name, and losses have names like "restoration" too
            name = f"pictures/{path.stem}"
            self.summary_writer.add_image(
                name, figure_to_array(figure), engine.state.epoch, dataformats="HWC"
            )

    @abstractmethod
    def rows(self, batch: Any, outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
        """A list of pictures per row, ``(H, W)`` or ``(H, W, 3)`` in [0, 1]; empty where the network gives none."""


@dataclass(eq=False, repr=False)
class RestorationPreview(Preview):
    r"""
    Pictures of the network's input and its output.

    With a `region`, such as the lesion mask, only the region is replaced by the restoration. The difference to the last
    of the inputs follows: removed in blue, added in red.

    Args:
        inputs: title of a column -> key of the batch, ``(B, C, H, W)`` or ``(B, N, C, H, W)``, whose first variant is
            shown.
        outputs: title of a further column -> key of the network's outputs, patches ``(B, L, P)`` or ``(B, N, L, P)``
            in the encoder's normalized intensity; the column "restored" of the output of this name by default.
        region: key of a mask in [0, 1] shaped like the inputs, where the first of the outputs is put in place; None to
            show the outputs whole.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> RestorationPreview(encoder, "preview.png", {"normal": "image", "with lesions": "lesion_image"}).columns
        ('normal', 'with lesions', 'restored')
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=lambda: {"restored": "restored"})
    region: str | None = None

    def __post_init__(self) -> None:
        in_place = (str(self.region).replace("_", " "), "restored in place", _DIFFERENCE)
        shown = self.outputs if self.region is None else in_place
        self.columns = (*self.inputs, *shown)

    def rows(self, batch: Any, outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
        """The first images of the batch."""
        if any(key not in outputs for key in self.outputs.values()):
            return []
        given = [_first_variant(batch[key], 4)[: self.num_images] for key in self.inputs.values()]
        made = [self._images(_first_variant(outputs[key], 3)) for key in self.outputs.values()]
        if self.region is None:
            return [
                [first_channel(picture) for picture in row]
                for row in zip(*given, *made, strict=True)
            ]
        mask = _first_variant(batch[self.region], 4)[: self.num_images]
        rows = []
        for *inputs, region, whole in zip(*given, mask, made[0], strict=True):
            *planes, where, new = map(first_channel, (*inputs, region, whole))
            in_place = np.where(where > 0, new, planes[-1])
            rows.append([*planes, where, in_place, signed_colors(in_place - planes[-1])])
        return rows

    def _images(self, patches: torch.Tensor) -> torch.Tensor:
        """The first images of (B, L, P)."""
        return self.encoder.to_images(patches[: self.num_images].float())


@dataclass(eq=False, repr=False)
class CorrespondencePreview(Preview):
    """
    Pictures of the patch of one crop that is most similar to each patch of the other.

    Every patch of the reference crop has a color by its place. The other crop is shown twice: with the colors of
    the patches that show the same place (none where the crops do not overlap), and with those of the patches that the
    network finds most similar. A network that knows the anatomy makes the two alike.

    Args:
        correspondence: called with the network's outputs for (nearest, matches), both ``(B, M)``: the reference's
            patch that is nearest to each of the other crop's M patches, and the one that shows the same place, -1 for
            none (e.g. :func:`monai_afire.metrics.ace_correspondence`).
        reference: key of the crop whose patches are colored, ``(B, C, H, W)``.
        other: key of the other crop.
        needs: output without which nothing is drawn, for networks with parts switched off.
    """

    columns = ("patches by place", "same place", "most similar patch")

    correspondence: Callable[[dict[str, torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]
    reference: str
    other: str
    needs: str | None = None

    def rows(self, batch: Any, outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
        """The first images of the batch."""
        if self.needs is not None and self.needs not in outputs:
            return []
        nearest, matches = (
            indices[: self.num_images].cpu().numpy() for indices in self.correspondence(outputs)
        )
        places = np.arange(np.prod(self.encoder.grid_size))
        rows = []
        for row in range(len(matches)):
            reference = first_channel(batch[self.reference][row])
            other = first_channel(batch[self.other][row])
            hidden = np.where(matches[row] >= 0, nearest[row], -1)
            shown = ((reference, places), (other, matches[row]), (other, hidden))
            rows.append([tinted(picture, self._colors(patches)) for picture, patches in shown])
        return rows

    def _colors(self, places: np.ndarray) -> np.ndarray:
        """Color of each patch by the place it stands for, ``(n, n, 3)``; NaN without a place."""
        indices = np.unravel_index(np.maximum(places, 0), self.encoder.grid_size)
        axes = [index / side for index, side in zip(indices, self.encoder.grid_size, strict=True)]
        shown = np.stack([axes[0], 1 - 0.5 * (axes[0] + axes[1]), axes[1]], axis=-1)
        side = round(math.sqrt(len(places)))
        return np.where(places[:, None] >= 0, shown, np.nan).reshape(side, side, 3)


@dataclass(eq=False, repr=False)
class TokenColorPreview(Preview):
    """
    Pictures of two crops of each image beside their tokens, colored by principal components.

    Patches of one color have similar tokens, whichever crop or image they are of
    (:func:`monai_afire.visualize.token_colors`): a network that knows the anatomy gives an organ one color in all of
    them. A third crop, of the smaller ones, shows what the student has to recognize an image by.

    Args:
        crops: key of the crops of the network's output "teacher_tokens" ``(B, G, L, D)``, ``(B, G, C, H, W)``, G >= 1;
            the first two are shown.
        small_crops: key of the smaller crops, ``(B, N, C, h, w)``; the first is shown if there is one.
    """

    crops: str
    small_crops: str

    def rows(self, batch: Any, outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
        """The first images of the batch."""
        crops, small = (batch[key][: self.num_images] for key in (self.crops, self.small_crops))
        colors = token_colors(outputs["teacher_tokens"][: self.num_images, :2])
        colors = colors.reshape(*colors.shape[:2], *self.encoder.grid_size, 3)
        self.columns = ("large crop", "its tokens", "another one", "its tokens")[
            : 2 * colors.shape[1]
        ]
        self.columns += ("small crop",) if small.shape[1] else ()
        rows = []
        for row, tokens in enumerate(colors):
            pictures = []
            for number, of_crop in enumerate(tokens):
                picture = first_channel(crops[row, number])
                pictures += [picture, tinted(picture, of_crop, alpha=0.8)]
            rows.append([*pictures, *(first_channel(crop) for crop in small[row, :1])])
        return rows


def tinted(picture: np.ndarray, colors: np.ndarray, alpha: float = 0.45) -> np.ndarray:
    """Lay a coarse map of colors over a gray picture."""
    fine = np.kron(
        colors, np.ones((picture.shape[0] // len(colors), picture.shape[1] // colors.shape[1], 1))
    )
    gray = np.repeat(picture[..., None], 3, axis=-1)
    # rounding is beyond 1
    return np.where(np.isnan(fine), gray, (1 - alpha) * gray + alpha * fine).clip(0, 1)


def signed_colors(difference: np.ndarray, limit: float = 0.5) -> np.ndarray:
    """Color a difference: white where there is none, red where it is positive, blue where it is negative."""
    size = np.clip(difference / limit, -1, 1)
    return np.stack([1 - np.maximum(-size, 0), 1 - np.abs(size), 1 - np.maximum(size, 0)], axis=-1)


def _first_variant(values: torch.Tensor, ndim: int) -> torch.Tensor:
    """Without the axis of the lesion variants, if there is one."""
    return values[:, 0] if values.ndim > ndim else values
