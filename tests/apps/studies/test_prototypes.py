# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from apps.studies.stub_encoders import tiny_afire

from monai_afire.apps.studies import StudyImages, prototype_study
from monai_afire.apps.studies.prototypes import (
    atlas_scores,
    cluster_patches,
    largest_clusters,
    organ_information,
    organ_shares,
    prototype_atlas,
)
from monai_afire.apps.studies.study import NothingToCompareError


def one_hot(clusters: list[int], number: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(clusters), number).float()


def test_atlas_of_hand_made_prototypes() -> None:
    prototypes = torch.tensor(
        [[0.7, 0.2, 0.1, 0.0], [0.0, 0.0, 1.0, 0.0], [0.25] * 4, [0.0, 0.5, 0.0, 0.5]]
    )
    atlas = prototype_atlas(prototypes, (2, 2))
    assert atlas[["row", "column"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert atlas["cluster"].tolist() == [0, 2, 0, 1]
    assert atlas["probability"].tolist() == pytest.approx([0.7, 1, 0.25, 0.5])
    mixed = -(0.7 * np.log(0.7) + 0.2 * np.log(0.2) + 0.1 * np.log(0.1)) / np.log(4)
    np.testing.assert_allclose(atlas["entropy"], [mixed, 0, 1, 0.5], rtol=1e-5)
    assert largest_clusters(prototypes) == [0, 2, 1]
    assert largest_clusters(prototypes, 1) == [0]


@pytest.mark.parametrize("seed", range(2))
def test_organ_information_of_soft_vectors_like_a_loop(seed: int) -> None:
    torch.manual_seed(seed)
    prototypes, shares = torch.rand(6, 4).softmax(-1), (5 * torch.rand(6, 3)).softmax(-1)
    joint = np.zeros((4, 3))
    for position in range(6):
        for cluster in range(4):
            for organ in range(3):
                joint[cluster, organ] += (
                    float(prototypes[position, cluster] * shares[position, organ]) / 6
                )
    information = sum(
        joint[k, o] * np.log(joint[k, o] / (joint[k].sum() * joint[:, o].sum()))
        for k in range(4)
        for o in range(3)
    )
    entropy = -sum(p * np.log(p) for p in joint.sum(0))
    assert organ_information(prototypes, shares) == pytest.approx(information / entropy, abs=1e-6)


def test_an_atlas_of_organs_beats_permuted_positions() -> None:
    organs = [0, 0, 1, 1] * 4 + [2] * 16
    scores = atlas_scores(one_hot(organs, 5), one_hot(organs, 3))
    assert scores["organ_information"] == pytest.approx(1)
    assert scores["organ_information_limit"] == pytest.approx(1)
    assert scores["organ_information_chance"] < 0.3
    own_clusters = atlas_scores(torch.eye(32), one_hot(organs, 3))  # nothing is left to permute
    assert own_clusters["organ_information_chance"] == pytest.approx(
        own_clusters["organ_information"]
    )


def test_shares_of_organs() -> None:
    masks = torch.zeros(2, 2, 8, 8, dtype=torch.bool)
    masks[0, 0, :4, :4] = True
    masks[0, 1, :2, :4] = True  # overlaps: half a pixel each
    masks[1, 1, 4:] = True
    shares = organ_shares(masks, (4, 4))
    expected = [[0.375, 0.125, 0.5], [0, 0, 1], [0, 0.5, 0.5], [0, 0.5, 0.5]]
    np.testing.assert_allclose(shares, expected)
    assert np.isnan(organ_information(torch.eye(4), organ_shares(masks[:, :0], (4, 4))))


def test_patches_of_clusters_like_a_sort() -> None:
    network, images = tiny_afire(), torch.rand(9, 1, 32, 32)
    with torch.no_grad():
        q = network.eval().token_probabilities(network.encoder(images))
    network.train()
    table = cluster_patches(network, images, [6, 1], 3, batch_size=4)
    assert network.training
    assert table["cluster"].tolist() == [6] * 3 + [1] * 3
    assert table["rank"].tolist() == [0, 1, 2] * 2
    for cluster, rows in table.groupby("cluster"):
        strongest = sorted(
            ((float(row.max()), i, int(row.argmax())) for i, row in enumerate(q[..., cluster])),
            reverse=True,
        )
        expected = pd.DataFrame(strongest[:3], columns=["probability", "image", "position"])
        np.testing.assert_allclose(rows["probability"], expected["probability"], rtol=1e-4)
        assert rows["image"].tolist() == expected["image"].tolist()
        assert rows["position"].tolist() == expected["position"].tolist()


def test_study_with_and_without_masks() -> None:
    network = tiny_afire()
    network.bank.update(one_hot(list(range(8)) * 2, 8)[None])
    masks = torch.zeros(4, 2, 32, 32, dtype=torch.bool)
    masks[:, 0, :16] = True
    images = torch.full((4, 1, 32, 32), 0.5)
    networks = {"trained": network, "untrained": tiny_afire()}
    result = prototype_study({}, StudyImages(images, masks=masks), networks)
    assert result.table["clusters_used"].to_dict() == {"trained": 8, "untrained": 1}
    assert result.table.loc["untrained", "organ_information"] == pytest.approx(0)
    assert result.table.notna().all().all()
    assert len(result.figures) == 4
    assert [len(detail) for detail in result.details.values()] == [16, 16]
    assert "organ_information" not in prototype_study({}, StudyImages(images), networks).table
    without_clusters = {"net": tiny_afire(contrast_space="features")}
    with pytest.raises(NothingToCompareError, match="net"):
        prototype_study({}, StudyImages(images), without_clusters)
