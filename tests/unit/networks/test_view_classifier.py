# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The view classifier: a mean of three looks at each picture."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from monai_afire.networks import ViewClassifier


def test_probabilities_are_of_the_mean_logits_of_three_parts() -> None:
    shape = (3, 90, 70)
    classifier = ViewClassifier.released()
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    gray = sum(images.unbind(1)) / shape[0]
    small = F.interpolate(gray[:, None], (64, 64), mode="area")
    parts = small, small[..., 3:61, 3:61], small[..., 6:58, 6:58]
    logits = sum(classifier.logits(part) for part in parts) / 3
    found = classifier(images)
    for place, name in enumerate(("ap", "child")):
        torch.testing.assert_close(found[name], 1 / (1 + (-logits[:, place]).exp()))
