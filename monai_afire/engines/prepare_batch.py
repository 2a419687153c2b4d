# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Functions ``prepare_batch`` of MONAI's engines: from a loader's batch to a network's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from monai.engines.utils import PrepareBatch, PrepareBatchExtraInput
from monai.utils import CommonKeys

from monai_afire.transforms import SynthLesionMask, SynthLesionMaskd, synth_lesion_masks


class PrepareBatchKeys(PrepareBatch):
    """
    Entries of the batch, in this order, are the arguments of the network; there is no label.

    MONAI's ``PrepareBatchExtraInput`` always passes "image" first, but networks of two crops have no such argument.

    Args:
        keys: of the batch's entries.

    Example:
        >>> prepare_batch = PrepareBatchKeys(["image_1", "image_2"])
        >>> prepare_batch({"image_1": torch.ones(1), "image_2": torch.zeros(1)})
        (tensor([1.]), None, (tensor([0.]),), {})
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)

    def __call__(
        self,
        batchdata: Mapping[str, torch.Tensor],
        device: str | torch.device | None = None,
        non_blocking: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None, tuple, dict]:
        """Move the entries to the device."""
        first, *others = (
            batchdata[key].to(device=device, non_blocking=non_blocking, **kwargs)
            for key in self.keys
        )
        return first, None, tuple(others), {}


class PrepareBatchLesions(PrepareBatchExtraInput):
    """
    Hand image, "lesion_image" and "lesion_mask" to the network, with lesions that are made on the training device.

    Adds "lesion_image" and "lesion_mask" to the batch. The images must be in [0, 1], which is checked on a CPU only: a
    GPU would have to stop.

    Args:
        lesions: the transform that would make the lesions of one image, a ``SynthLesionMaskd`` or ``SynthLesionMask``;
            or options of :func:`monai_afire.transforms.synth_lesion_masks`, e.g. ``{"num_masks": 9}``.
        seed: of the generator before a handler seeds it anew (:class:`monai_afire.handlers.EpochSeed`).
        backend: of :func:`monai_afire.transforms.synth_lesion_masks`.

    Raises:
        TypeError: for a transform of other lesions: those of ``SynthLesionMask`` alone can be made of a whole batch.

    Example:
        >>> prepare_batch = PrepareBatchLesions({"num_lesions": (1, 2)})
        >>> image, label, (lesion_image, lesion_mask), _ = prepare_batch({"image": torch.rand(2, 1, 32, 32)}, "cpu")
        >>> lesion_image.shape, lesion_mask.shape
        (torch.Size([2, 1, 32, 32]), torch.Size([2, 1, 32, 32]))
    """

    def __init__(
        self,
        lesions: Mapping[str, Any] | SynthLesionMaskd | SynthLesionMask | None = None,
        seed: int = 0,
        backend: str = "auto",
    ) -> None:
        super().__init__(extra_keys=["lesion_image", "lesion_mask"])
        self.lesions = {"backend": backend, **_options_of(lesions)}
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        """Seed the lesions of the next batches, on whichever device they will be."""
        self.seed = seed
        self.generator: torch.Generator | None = None

    def __call__(
        self,
        batchdata: dict[str, torch.Tensor],
        device: str | torch.device | None = None,
        non_blocking: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, tuple, dict]:
        """Move the batch to the device and add lesions to its images."""
        image = batchdata[CommonKeys.IMAGE].to(device=device, non_blocking=non_blocking, **kwargs)
        if self.generator is None:
            self.generator = torch.Generator(image.device).manual_seed(self.seed)
        lesion_image, lesion_mask = synth_lesion_masks(
            image, generator=self.generator, **self.lesions
        )
        batchdata |= {
            CommonKeys.IMAGE: image,
            "lesion_image": lesion_image,
            "lesion_mask": lesion_mask,
        }
        return super().__call__(batchdata, device, non_blocking, **kwargs)


def _options_of(lesions: Any) -> dict[str, Any]:
    """Options of ``synth_lesion_masks`` that make the lesions of a transform."""
    if lesions is None or isinstance(lesions, Mapping):
        return dict(lesions or {})
    transform = lesions.transform if isinstance(lesions, SynthLesionMaskd) else lesions
    if not isinstance(transform, SynthLesionMask):
        remedy = "leave out lesions_on_device.json, or make the lesions by SynthLesionMaskd"
        raise TypeError(
            f"the device makes only the lesions of SynthLesionMask, got {type(lesions).__name__}: {remedy}"
        )
    return {"num_masks": transform.num_masks, **asdict(transform.settings)}
