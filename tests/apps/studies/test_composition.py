# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from apps.studies.stub_encoders import ConstantEncoder, HashEncoder, PatchMeanEncoder, tiny_vit

from monai_afire.apps.studies import StudyImages, composition_study
from monai_afire.apps.studies.composition import (
    composition_summary,
    compositionality,
    decomposition_and_retrieval,
)
from monai_afire.apps.studies.regions import random_boxes
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

HALF = (0.5, 0.5)  # enlarged by whole numbers, which keeps the mean intensity


def images_of_one_color_each(number: int, channels: int = 6, size: int = 32) -> torch.Tensor:
    """Images (M, C, H, W) with a channel profile of their own, and texture."""
    generator = torch.Generator().manual_seed(0)
    profile = torch.rand(number, channels, 1, 1, generator=generator)
    return profile * (0.8 + 0.2 * torch.rand(number, channels, size, size, generator=generator))


def mean_encoder(channels: int = 6, size: int = 32) -> PatchMeanEncoder:
    return PatchMeanEncoder(channels, (size, size), (8, 8))


def test_what_adds_up_is_composed_exactly() -> None:
    table = compositionality(mean_encoder(), images_of_one_color_each(5), side=HALF)
    assert table.shape == (2 * 5 * 4, 5)
    np.testing.assert_allclose(table["similarity"], 1, atol=1e-6)
    assert table["other_similarity"].max() < 0.999
    assert table.groupby("parts")["image"].value_counts().eq(4).all()


def test_what_adds_up_is_taken_out_exactly() -> None:
    images = images_of_one_color_each(40)
    tables = decomposition_and_retrieval(mean_encoder(), images, side=HALF)
    for table in tables:
        assert table["correct"].tolist() == [1.0] * 40
        assert table["image"].tolist() == list(range(40))
        assert (table["chance"] == 1 / 32).all()
    np.testing.assert_allclose(tables[0]["similarity"], 1, atol=1e-6)


def test_random_embeddings_are_at_chance() -> None:
    torch.manual_seed(0)
    images = torch.rand(160, 1, 32, 32)
    composed = compositionality(HashEncoder(), images)
    assert abs(composed["similarity"].mean()) < 0.02
    summary = composition_summary(
        composed,
        *decomposition_and_retrieval(HashEncoder(), images),
    )
    assert summary["chance"] == 1 / 32
    assert summary["decomposition_accuracy"] < 0.1
    assert summary["retrieval_accuracy"] < 0.1
    assert abs(summary["own_nearer_2_parts"] - 0.5) < 0.1
    assert abs(summary["own_nearer_4_parts"] - 0.5) < 0.1


def test_a_collapsed_encoder_is_similar_to_everything_and_finds_nothing() -> None:
    images = torch.rand(10, 1, 32, 32)
    summary = composition_summary(
        compositionality(ConstantEncoder(), images),
        *decomposition_and_retrieval(ConstantEncoder(), images),
    )
    for parts in (2, 4):
        assert summary[f"similarity_{parts}_parts"] == pytest.approx(1)
        assert summary[f"other_image_{parts}_parts"] == pytest.approx(1)
        assert summary[f"own_nearer_{parts}_parts"] == pytest.approx(0.5)
    assert summary["decomposition_accuracy"] == pytest.approx(0.1)
    assert summary["retrieval_accuracy"] == pytest.approx(0.1)


def naive_embedding(
    encoder: RadiographEncoder, image: torch.Tensor, box: Sequence[int]
) -> torch.Tensor:
    row, column, height, width = box
    crop = image[None, :, row : row + height, column : column + width]
    return encoder(
        F.interpolate(crop, size=encoder.img_size, mode="bilinear", align_corners=False)
    ).mean(1)[0]


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_like_one_image_at_a_time(batch_size: int) -> None:
    encoder = tiny_vit().eval()
    images = torch.rand(7, 1, 32, 32)
    generator = torch.Generator().manual_seed(3)
    boxes = random_boxes(7, (32, 32), (0.3, 0.6), generator).tolist()
    order = torch.randperm(7, generator=generator).tolist()
    with torch.no_grad():
        wholes = [encoder(image[None]).mean(1)[0] for image in images]
        patches = [
            naive_embedding(encoder, image, box) for image, box in zip(images, boxes, strict=True)
        ]
        losses = []
        for image, (row, column, height, width), whole in zip(images, boxes, wholes, strict=True):
            without = image.clone()
            without[:, row : row + height, column : column + width] = 0.25
            losses.append(whole - encoder(without[None]).mean(1)[0])
    options: dict[str, Any] = {"gallery": 4, "seed": 3, "batch_size": batch_size}
    decomposition, retrieval = decomposition_and_retrieval(encoder, images, fill=0.25, **options)
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
    composed = compositionality(encoder, images, [4], 1, seed=3, batch_size=batch_size)
    own_boxes = random_boxes(7, (32, 32), (0.3, 0.6), torch.Generator().manual_seed(3)).tolist()
    means = []
    with torch.no_grad():
        for image, (row, column, height, width) in zip(images, own_boxes, strict=True):
            corners = [
                (row + i, column + j, height // 2, width // 2)
                for i in (0, height // 2)
                for j in (0, width // 2)
            ]
            means.append(
                torch.stack([naive_embedding(encoder, image, corner) for corner in corners]).mean(0)
            )
        own = [
            naive_embedding(encoder, image, box)
            for image, box in zip(images, own_boxes, strict=True)
        ]
    for image in range(7):
        row = composed.iloc[image]
        assert row["similarity"] == pytest.approx(
            F.cosine_similarity(own[image], means[image], dim=0).item(), abs=1e-4
        )
        other = F.cosine_similarity(own[image], means[(image + 1) % 7], dim=0).item()
        assert row["other_similarity"] == pytest.approx(other, abs=1e-4)


def test_patches_are_cut_out_of_native_pixels() -> None:
    """A box of 14 to 28 of 46 pixels, and what is left of the image of 32 pixels without it."""
    encoder = tiny_vit().eval()
    native = torch.rand(6, 1, 46, 46)
    images = F.interpolate(native, size=(32, 32), mode="area")
    [row, column, height, width] = random_boxes(
        6, (46, 46), (0.3, 0.6), torch.Generator().manual_seed(3)
    )[0].tolist()
    with torch.no_grad():
        own = naive_embedding(encoder, native[0], (row, column, height, width))
        whole = encoder(images[:1]).mean(1)[0]
    options: dict[str, Any] = {"gallery": 6, "seed": 3}
    _, retrieval = decomposition_and_retrieval(encoder, images, native=native, **options)
    assert retrieval["similarity"][0] == pytest.approx(
        F.cosine_similarity(own, whole, dim=0).item(), abs=1e-4
    )
    study_images = StudyImages(images, native=native)
    table = composition_study({"mine": encoder}, study_images, seed=3).table
    expected = compositionality(encoder, native, seed=3).groupby("parts")["similarity"].mean()
    assert table.loc["mine", "similarity_4_parts"] == pytest.approx(expected[4])
