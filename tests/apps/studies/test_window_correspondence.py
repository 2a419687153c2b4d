# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmarks found by sliding windows (ACE, Fig. 7), against one window at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from monai_afire.apps.studies.correspondence import window_correspondence
from monai_afire.networks import ViTEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


def pixel(image: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    """All channels of a pixel; 0 beyond the border."""
    inside = all(0 <= p < size for p, size in zip(place, image.shape[1:], strict=True))
    return image[(slice(None), *place)] if inside else np.zeros(len(image), dtype=image.dtype)


def naive_feature(
    encoder: RadiographEncoder, image: np.ndarray, start: tuple[int, ...]
) -> np.ndarray:
    """Mean token of the window that begins at a pixel, which is filled one pixel after the other."""
    window = np.zeros((len(image), *encoder.img_size), dtype=np.float32)
    for step in itertools.product(*map(range, encoder.img_size)):
        window[(slice(None), *step)] = pixel(
            image, tuple(a + b for a, b in zip(start, step, strict=True))
        )
    with torch.no_grad():
        return encoder.eval()(torch.as_tensor(window)[None])[0].double().mean(0).numpy()


def naive_table(
    encoder: RadiographEncoder,
    images: np.ndarray,
    landmarks: np.ndarray,
    references: list[int],
    stride: int,
) -> pd.DataFrame:
    middle = [(side - 1) / 2 for side in encoder.img_size]
    places = [
        range(-((side - 1) // 2), size - (side - 1) // 2, stride)
        for side, size in zip(encoder.img_size, images.shape[2:], strict=True)
    ]
    rows = []
    for reference, query in itertools.product(references, range(len(images))):
        for number in range(landmarks.shape[1]):
            source, truth = landmarks[reference, number], landmarks[query, number]
            if query == reference or np.isnan(source).any() or np.isnan(truth).any():
                continue
            start = tuple(int(np.round(x - m)) for x, m in zip(source, middle, strict=True))
            wanted = naive_feature(encoder, images[reference], start)
            best, found = np.inf, ()
            for candidate in itertools.product(*places):
                distance = np.linalg.norm(wanted - naive_feature(encoder, images[query], candidate))
                if distance < best:
                    best, found = (
                        distance,
                        tuple(a + m for a, m in zip(candidate, middle, strict=True)),
                    )
            error = np.linalg.norm(np.asarray(found) - truth)
            rows.append(
                (reference, query, number, error, error / max(images.shape[2:]), *found, best)
            )
    names = "reference query landmark error error_fraction row column distance"
    return pd.DataFrame(rows, columns=names.split())


@pytest.mark.parametrize(
    ("size", "window", "patch", "stride"),
    [((12, 16), (8, 8), (4, 4), 4), ((9, 10), (6, 9), (3, 3), 3)],
)
def test_like_one_window_at_a_time(
    size: tuple[int, int], window: tuple[int, int], patch: tuple[int, int], stride: int
) -> None:
    torch.manual_seed(1)
    encoder = ViTEncoder(
        img_size=window, patch_size=patch, hidden_size=12, num_layers=1, num_heads=2
    )
    images = torch.rand(3, 1, *size)
    landmarks = torch.rand(3, 2, len(size)) * torch.tensor(size) - 0.5
    landmarks[1, 0, 0] = torch.nan
    # the corner: most of the window is beyond the border
    landmarks[0, 1] = torch.tensor(size) - 0.5
    table = window_correspondence(encoder, images, landmarks, [2, 0], stride, batch_size=5)
    expected = naive_table(encoder, images.numpy(), landmarks.numpy(), [2, 0], stride)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False, rtol=1e-4, atol=1e-5)
