# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is compared: encoders by a word of the command line, and the tokens that they make of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose
from monai.utils import convert_to_tensor
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch.nn import functional as F
from tqdm.auto import tqdm

from monai_afire.detection.field_of_view import field_of_view_module
from monai_afire.networks.nets.encoders.encoder_building import is_encoder_name
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.weights.finding import RELEASED
from monai_afire.networks.weights.pretrained import load_encoder
from monai_afire.transforms import (
    AddControlledLesiond,
    LoadRadiographd,
    StandardizeContrast,
    fit_images,
)
from monai_afire.utils.device import default_device, default_num_workers
from monai_afire.utils.distributed import barrier, global_rank, share_of

_RANDOM = ":random"  # behind a file, as behind the names of other libraries
_BATCH = 32
_SIDE = 512  # of pictures that lesions are painted into, which every encoder shrinks to its size


class ComparedEncoder(NamedTuple):
    """
    An encoder in evaluation mode, with the preparation of its images.

    Attributes:
        name: to show.
        encoder: of gray images.
        standardize: whether its images have standardized contrast.
        field_of_view: "image", or "lungs" for the square around them.
    """

    name: str
    encoder: RadiographEncoder
    standardize: bool
    field_of_view: str

    @torch.inference_mode()
    def encode(
        self, images: torch.Tensor, device: torch.device | str = "cpu"
    ) -> NDArray[np.float16]:
        """Prepare and encode images ``(B, 1, H, W)`` in [0, 1], of any size: tokens ``(B, L, D)``, all finite."""
        seen = F.interpolate(images, self.encoder.img_size, mode="area")
        if self.standardize:
            seen = torch.stack([torch.as_tensor(StandardizeContrast()(image)) for image in seen])
        view = field_of_view_module(self.field_of_view)
        seen = seen if view is None else view(seen)[0]
        tokens = self.encoder.to(device)(seen.to(device)).half().cpu().numpy()
        if not np.isfinite(tokens).all():
            unusable = "its features are not finite in half precision; check the weights"
            raise ValueError(f"encoder {self.name!r}: {unusable}")
        return tokens


def compared_encoder(word: str, field_of_view: str = "lungs") -> ComparedEncoder:
    """
    Build an encoder by its word.

    Args:
        word: "untrained" (the released network without its weights), or a word of
            :func:`monai_afire.networks.load_encoder`: "released", "latest", a run, its folder, a file (``:random``
            behind it for its network with random weights), "hub:FOLDER", "timm:NAME"; ``NAME=`` ahead gives it a name.
        field_of_view: see :class:`ComparedEncoder`.

    Returns:
        The encoder.

    Raises:
        FileNotFoundError: when there is no such file.
        ImportError: when the library of the encoder is not installed.
        ValueError: when there is no such encoder, or it does not take gray pictures; the message names it.

    Example:
        >>> compared = compared_encoder("mine=released")
        >>> compared.name, compared.encoder.img_size, compared.standardize
        ('mine', (64, 64), True)
    """
    name, _, source = (word, "", "") if Path(word).exists() else word.partition("=")
    source = source or word
    if source == "untrained":
        source = RELEASED + _RANDOM
    is_random = source.endswith(_RANDOM) and not is_encoder_name(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        known = source.removesuffix(_RANDOM) if is_random else source
        encoder, transform = load_encoder(known, pretrained=not is_random)
    if encoder.in_channels != 1:
        raise ValueError(f"encoder {word!r} takes other images than gray pictures: leave it out")
    standardize = transform.standardize is not None
    return ComparedEncoder(name, encoder.requires_grad_(False).eval(), standardize, field_of_view)


def encode_images(
    items: Sequence[Mapping[str, Any]],
    encoders: Sequence[ComparedEncoder],
    folder: Path,
    title: str,
) -> dict[str, NDArray[np.float16]]:
    """
    Read each image once, and encode it by all encoders; tokens may be more than fit into memory.

    Each rank encodes its share of the batches, and all must call it.

    Args:
        items: with "image", the path of a file, and perhaps "lesion" for
            :class:`monai_afire.transforms.AddControlledLesiond`.
        encoders: to encode with.
        folder: of the tokens, a file for each encoder.
        title: of the progress bar.

    Returns:
        Tokens ``(N, L, D)`` by the encoder's name, on disk.

    Raises:
        RuntimeError: for a file that cannot be read; its cause names the file and the reason.
        ValueError: when an encoder's tokens are not finite.
    """
    files = [folder / f"{title}_{number}.npy" for number in range(len(encoders))]
    if global_rank() == 0:
        for each, file in zip(encoders, files, strict=True):
            shape = len(items), prod(each.encoder.grid_size), each.encoder.hidden_size
            open_memmap(file, "w+", np.float16, shape).flush()
    barrier()
    tokens = [open_memmap(file, "r+") for file in files]
    own = share_of([range(len(items))[at : at + _BATCH] for at in range(0, len(items), _BATCH)])
    device = default_device()
    resize = fit_images("image", size=_SIDE, mode="area")
    prepare = Compose([LoadRadiographd("image"), resize, AddControlledLesiond("image")])
    loader = DataLoader(
        Dataset([items[row] for rows in own for row in rows], prepare),
        batch_size=_BATCH,
        num_workers=default_num_workers(device),
        collate_fn=list,
    )
    bar = tqdm(loader, title, unit="batch", dynamic_ncols=True, disable=global_rank() > 0)
    for rows, batch in zip(own, bar, strict=True):
        images = torch.stack([convert_to_tensor(item["image"], track_meta=False) for item in batch])
        for each, stored in zip(encoders, tokens, strict=True):
            stored[rows.start : rows.stop] = each.encode(images, device)
    for stored in tokens:
        stored.flush()
    barrier()
    return {each.name: stored for each, stored in zip(encoders, tokens, strict=True)}
