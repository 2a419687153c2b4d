# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""An encoder's tokens of very many pictures, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tqdm.auto import tqdm

from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.precision import at_least_float32

__all__ = ["mean_tokens", "reduced_tokens"]


def reduced_tokens(
    encoder: RadiographEncoder,
    number: int,
    pictures: Callable[[slice], torch.Tensor],
    reduce: Callable[[torch.Tensor], torch.Tensor],
    batch_size: int = 32,
    bar: tqdm | None = None,
) -> torch.Tensor:
    """
    What is wanted of the tokens of pictures that are made when their turn comes.

    The encoder works in evaluation mode without gradients on its own device.

    Args:
        encoder: any :class:`monai_afire.networks.RadiographEncoder`.
        number: N, how many pictures there are.
        pictures: called with a slice of 0, ..., N - 1 for these pictures ``(b, C, *S)`` in [0, 1], of the encoder's
            size.
        reduce: takes what is wanted, ``(b, ...)``, from the tokens ``(b, L, D)`` of a batch.
        batch_size: pictures in a pass.
        bar: to advance by the pictures.

    Returns:
        ``(N, ...)`` at least float32, on the encoder's device.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = torch.rand(5, 1, 32, 32)
        >>> reduced_tokens(encoder, 5, lambda rows: images[rows], lambda tokens: tokens[:, 0], batch_size=2).shape
        torch.Size([5, 24])
    """
    reduced = []
    with eval_mode(encoder), torch.no_grad():
        for start in range(0, max(number, 1), batch_size):  # of no picture, a batch of none says the shape
            rows = slice(start, min(start + batch_size, number))
            tokens = encoder(pictures(rows).to(encoder.mean))
            reduced.append(at_least_float32(reduce(tokens)))
            if bar is not None:
                bar.update(rows.stop - rows.start)
    return torch.cat(reduced)


def mean_tokens(
    encoder: RadiographEncoder,
    number: int,
    pictures: Callable[[slice], torch.Tensor],
    batch_size: int = 32,
    bar: tqdm | None = None,
) -> torch.Tensor:
    """
    Embeddings of pictures that are made when their turn comes: the mean token of each.

    Args:
        encoder: as all the others, see :func:`reduced_tokens`.
        number: N, how many pictures there are.
        pictures: makes some of them.
        batch_size: pictures in a pass.
        bar: to advance by the pictures.

    Returns:
        ``(N, D)`` at least float32, on the encoder's device.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> images = torch.rand(5, 1, 32, 32)
        >>> mean_tokens(encoder, 5, lambda rows: images[rows], batch_size=2).shape
        torch.Size([5, 24])
    """
    return reduced_tokens(encoder, number, pictures, lambda tokens: tokens.mean(1), batch_size, bar)
