# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from apps.studies.stub_encoders import ConstantEncoder, tiny_vit

from monai_afire.apps.studies.composition import (
    composition_summary,
    compositionality,
    decomposition_and_retrieval,
)
from monai_afire.apps.studies.regions import random_boxes
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


def summary(encoder: RadiographEncoder, number: int) -> dict[str, float]:
    torch.manual_seed(0)
    images = torch.rand(number, 1, 32, 32)
    matches = decomposition_and_retrieval(encoder, images)
    return composition_summary(compositionality(encoder, images), *matches)


def test_a_collapsed_encoder_is_similar_to_everything_and_finds_nothing() -> None:
    found = summary(ConstantEncoder(), 10)
    for parts in ("2_parts", "4_parts"):
        assert found[f"similarity_{parts}"] == pytest.approx(1)
        assert found[f"other_image_{parts}"] == pytest.approx(1)
        assert found[f"own_nearer_{parts}"] == pytest.approx(0.5)
    assert found["decomposition_accuracy"] == pytest.approx(0.1)
    assert found["retrieval_accuracy"] == pytest.approx(0.1)


def naive_embedding(
    encoder: RadiographEncoder, image: torch.Tensor, box: Sequence[int]
) -> torch.Tensor:
    row, column, height, width = box
    crop = image[None, :, row : row + height, column : column + width]
    return encoder(
        F.interpolate(crop, size=encoder.img_size, mode="bilinear", align_corners=False)
    ).mean(1)[0]


@torch.no_grad()
def test_like_one_image_at_a_time() -> None:
    """Patches are cut out of native pixels; what is left of an image without one has the encoder's size."""
    encoder, side = tiny_vit().eval(), (0.3, 0.5)  # of 64 pixels: nothing is reduced
    native = torch.rand(7, 1, 64, 64)
    images = F.interpolate(native, size=(32, 32), mode="area")
    generator = torch.Generator().manual_seed(3)
    boxes = random_boxes(7, (64, 64), side, generator).tolist()
    order = torch.randperm(7, generator=generator).tolist()
    wholes = [encoder(image[None]).mean(1)[0] for image in images]
    patches = [naive_embedding(encoder, *pair) for pair in zip(native, boxes, strict=True)]
    losses = []
    for image, (row, column, height, width), whole in zip(images, boxes, wholes, strict=True):
        without = image.clone()
        first, last = (row // 2, column // 2), (-(-(row + height) // 2), -(-(column + width) // 2))
        without[:, first[0] : last[0], first[1] : last[1]] = 0
        losses.append(whole - encoder(without[None]).mean(1)[0])
    decomposition, retrieval = decomposition_and_retrieval(
        encoder, images, native, side, gallery=4, seed=3, batch_size=5
    )
    tables = ((decomposition, losses, patches), (retrieval, patches, wholes))
    for table, queries, targets in tables:
        assert (table["chance"] == 0.25).all()
        for place, image in enumerate(order):
            candidates = [order[(place + step) % 7] for step in range(4)]
            similarity = [
                F.cosine_similarity(queries[image], targets[other], dim=0).item()
                for other in candidates
            ]
            assert table["similarity"][image] == pytest.approx(similarity[0], abs=1e-4)
            assert table["correct"][image] == float(np.argmax(similarity) == 0)


@torch.no_grad()
def test_parts_like_one_patch_at_a_time() -> None:
    encoder, images = tiny_vit().eval(), torch.rand(3, 1, 32, 32)
    boxes = random_boxes(12, (32, 32), (0.3, 0.6), torch.Generator().manual_seed(3)).tolist()
    own, means = [], []
    for number, (row, column, height, width) in enumerate(boxes):
        image = images[number // 4]
        corners = [
            (row + i, column + j, height // 2, width // 2)
            for i in (0, height // 2)
            for j in (0, width // 2)
        ]
        parts = torch.stack([naive_embedding(encoder, image, corner) for corner in corners])
        own.append(naive_embedding(encoder, image, boxes[number]))
        means.append(parts.mean(0))
    table = compositionality(encoder, images, seed=3, batch_size=5)
    quarters = table[table["parts"] == 4]
    for number, row in enumerate(quarters.itertuples()):
        expected = F.cosine_similarity(own[number], means[number], dim=0).item()
        other = F.cosine_similarity(own[number], means[(number + 4) % 12], dim=0).item()
        assert (row.similarity, row.other_similarity) == pytest.approx((expected, other), abs=1e-4)
