# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import pytest
import torch

from monai_afire.analysis.correspondence.measures import landmark_correspondence, same_place_correspondence
from monai_afire.analysis.images.views import (
    DEFAULT_VIEWS,
    View,
    compared_across,
    landmark_windows,
    transformed_views,
    with_views,
)

from stub_encoders import PatchMeanEncoder, anatomy_images  # isort: skip


def ramp(size):
    """Channels that say the row and the column (and slice) of each pixel."""
    return torch.stack(torch.meshgrid(*[torch.arange(float(s)) for s in size], indexing="ij"))[None]


def value_at(image, place):
    """Linear interpolation at one place, pixel by pixel."""
    low = place.floor().long()
    part = place - low
    total = 0
    for corner in range(2 ** len(place)):
        step = [(corner >> axis) & 1 for axis in range(len(place))]
        weight = torch.stack([part[a] if s else 1 - part[a] for a, s in enumerate(step)]).prod()
        index = [min(int(low[a]) + s, image.shape[1 + a] - 1) for a, s in enumerate(step)]
        total = total + weight * image[(slice(None), *index)]
    return total


@pytest.mark.parametrize("view", [*DEFAULT_VIEWS, View("all", -25, 0.8, (0.1, 0.05))], ids=lambda view: view.name)
def test_landmarks_show_the_same_anatomy(view):
    image = ramp((32, 40))
    places = torch.tensor([[10.0, 12.0], [16.0, 25.0], [20.3, 18.7]])[None]
    views, moved = transformed_views(image, places, view)
    assert views.shape == image.shape
    for before, after in zip(places[0], moved[0], strict=True):
        assert not after.isnan().any()
        torch.testing.assert_close(value_at(views[0], after), before, atol=1e-3, rtol=0)


def test_clockwise_enlarged_and_shifted_by_hand():
    image = ramp((11, 11))
    place = torch.tensor([[[2.0, 5.0]]])  # 3 above the centre
    turned = transformed_views(image, place, View("", rotation=90))[1]
    torch.testing.assert_close(turned, torch.tensor([[[5.0, 8.0]]]))  # 3 at its right
    larger = transformed_views(image, place, View("", scale=1.5))[1]
    torch.testing.assert_close(larger, torch.tensor([[[0.5, 5.0]]]))
    gone = transformed_views(image, place, View("", shift=(-0.3, 0)))[1]
    assert gone.isnan().all()


def test_three_dimensions():
    image = ramp((8, 10, 6))
    places = torch.tensor([[[4.0, 5.0, 2.0]]])
    views, moved = transformed_views(image, places, View("", 20, 1.1, (0.1, 0, 0.1)))
    torch.testing.assert_close(value_at(views[0], moved[0, 0]), places[0, 0], atol=1e-3, rtol=0)
    window = landmark_windows(image, places, 0.5)[0, 0]
    torch.testing.assert_close(value_at(window, torch.tensor([3.5, 4.5, 2.5])), places[0, 0], atol=1e-3, rtol=0)


def test_window_covers_its_part():
    image = ramp((17, 33))
    window = landmark_windows(image, torch.tensor([[[8.0, 16.0], [torch.nan, 3.0]]]), 0.5)
    torch.testing.assert_close(window[0, 0, :, 0, 0], torch.tensor([4.0, 8.0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(window[0, 0, :, -1, -1], torch.tensor([12.0, 24.0]), atol=1e-4, rtol=0)
    assert window[0, 1].isnan().all()


def test_errors():
    image, places = ramp((8, 8)), torch.zeros(1, 1, 2)
    with pytest.raises(ValueError, match="shift along each"):
        transformed_views(image, places, View("", shift=(0, 0, 0)))
    with pytest.raises(ValueError, match="scale above 0"):
        transformed_views(image, places, View("", scale=0))
    with pytest.raises(ValueError, match="expected landmarks"):
        transformed_views(image, torch.zeros(2, 1, 2), View(""))
    with pytest.raises(ValueError, match="window"):
        landmark_windows(image, places, 0.0)


def test_features_that_know_the_anatomy_find_it_in_all_views_where_copying_fails():
    generator = torch.Generator().manual_seed(0)
    shifts = 4 * torch.rand(3, 2, generator=generator) - 2
    landmarks = 24 + 16 * torch.rand(5, 2, generator=generator) + shifts[:, None]
    views = (View("moved", shift=(0.15, -0.15)), View("turned", rotation=20))
    images, places = with_views(anatomy_images(shifts, (64, 64)), landmarks, views)
    assert images.shape[0] == places.shape[0] == 9
    encoder = PatchMeanEncoder(4, (64, 64), (4, 4))
    found = landmark_correspondence(encoder, images, places, [0, 1], progress=False)
    found = compared_across(found, 3)
    assert found["across"].value_counts().to_dict() == {"patients": 20, "views": 20, "patients_and_views": 40}
    assert found.groupby("across")["error"].mean().max() < 2.5  # half of a patch of 4 pixels
    copied = compared_across(same_place_correspondence(places, (64, 64), [0, 1]), 3)
    assert copied[copied["across"] == "views"]["error"].mean() > 6
