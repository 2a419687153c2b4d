# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of what a run has learnt so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.utils import CommonKeys
from torch.utils.tensorboard import SummaryWriter

from monai_afire.networks.blocks.patches import unpatchify
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.visualize.figures import figure_to_array, picture_grid, save_figure

__all__ = ["RestorationPreview"]


class RestorationPreview:
    """
    Picture grid of normal image | lesion image | lesion mask | restored, for TensorBoard and as a PNG file.

    Attach it to the validation evaluator, whose first batch is shown (of 3-D images the middle slice).

    Args:
        encoder: encoder of the network, for the patch grid and the intensity normalisation.
        path: the PNG file, replaced at each preview.
        summary_writer: TensorBoard writer, None for the PNG only.
        num_images: number of rows.
        tag: name in TensorBoard.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> RestorationPreview(encoder, "preview.png").columns
        ('normal', 'with synthetic lesions', 'lesion mask', 'restored')
    """

    columns = ("normal", "with synthetic lesions", "lesion mask", "restored")

    def __init__(
        self,
        encoder: RadiographEncoder,
        path: str,
        summary_writer: SummaryWriter | None = None,
        num_images: int = 4,
        tag: str = "restoration",
    ) -> None:
        self.encoder = encoder
        self.path = Path(path)
        self.summary_writer = summary_writer
        self.num_images = num_images
        self.tag = tag

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        first_batch = Events.ITERATION_COMPLETED(event_filter=lambda engine, _: _is_first_of_epoch(engine))
        engine.add_event_handler(first_batch, self)

    def __call__(self, engine: Any) -> None:
        """Draw the grid from the evaluator's batch."""
        outputs = engine.state.output[CommonKeys.PRED]
        if getattr(engine.state, "rank", 0) or "restored" not in outputs:
            return
        rows = self._rows(engine.state.batch, outputs)
        figure = picture_grid(rows, self.columns, f"epoch {engine.state.epoch}")
        save_figure(figure, self.path)
        if self.summary_writer is not None:
            self.summary_writer.add_image(self.tag, figure_to_array(figure), engine.state.epoch, dataformats="HWC")

    @torch.no_grad()
    def _rows(self, batch: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
        """The first lesion variant of the first images."""
        count = min(self.num_images, len(outputs["restored"]))
        patches = outputs["restored"][:count, 0].float()
        restored = self.encoder.denormalize(unpatchify(patches, self.encoder.grid_size, self.encoder.patch_size))
        pictures = (
            batch[CommonKeys.IMAGE][:count],
            batch["lesion_image"][:count, 0],
            batch["lesion_mask"][:count, 0],
            restored,
        )
        columns = [[_plane(picture) for picture in column] for column in pictures]
        return [list(row) for row in zip(*columns, strict=True)]


def _is_first_of_epoch(engine: Engine) -> bool:
    return (engine.state.iteration - 1) % (engine.state.epoch_length or 1) == 0


def _plane(image: torch.Tensor) -> np.ndarray:
    """First channel of ``(C, *S)``, the middle slice if it is a volume."""
    plane = image[0].detach().float().cpu()
    while plane.ndim > 2:
        plane = plane[..., plane.shape[-1] // 2]
    return plane.numpy()
