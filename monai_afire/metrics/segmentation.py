# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Mean Dice of a validation, by which training chooses."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from monai.handlers import MeanDice
from monai.utils import CommonKeys


class MaskDice(MeanDice):
    """
    MONAI's ``MeanDice`` of logits: a pixel belongs to each mask whose logit is positive, and every channel counts.

    Example:
        >>> logits, masks = torch.tensor([[[[2.0, -1.0]]]]), torch.tensor([[[[1.0, 0.0]]]])
        >>> MaskDice.masks({"pred": logits, "label": masks})[0]
        tensor([[[[ True, False]]]])
    """

    def __init__(self) -> None:
        super().__init__(include_background=True, output_transform=self.masks)

    @staticmethod
    def masks(output: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Predicted and true masks of a batch.

        Args:
            output: of the evaluator: "pred", logits, and "label", masks, both ``(B, C, *S)``.

        Returns:
            Both as masks.
        """
        return output[CommonKeys.PRED] > 0, output[CommonKeys.LABEL]
