# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Facts of images: by which picture they are told."""

from __future__ import annotations

import torch
from apps.worklist.test_anomaly_writer import fitted_detector
from pydicom.dataset import Dataset

from monai_afire.apps.worklist.image_facts import ImageFactsReader


def test_view_age_and_pose_do_not_depend_on_the_pictures_to_see() -> None:
    """A small --picture_size made chests "turned, inverted, or no single chest", which are not judged."""
    reader = ImageFactsReader(fitted_detector())
    images = torch.rand(1, 1, 32, 32)
    large = torch.randint(0, 255, (1, 1, 512, 512), dtype=torch.uint8)
    small = large[..., :7, :7]
    tokens, lungs = reader.detector(images)["tokens"], reader.lungs(images)
    batches = ({"picture": small, "judged_picture": large}, {"picture": large}, {"picture": small})
    found = [reader.read(batch, tokens, [Dataset()], lungs)[0].looks for batch in batches]
    assert found[0] == found[1]
    assert found[0] != found[2]
