# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmark correspondence across patients: pre-trained encoders beside an untrained one, on the phantom.

``python -m tests.evidence.landmark_correspondence bundles/ace/models/model.pt ...`` takes networks of the bundles'
default shape and prints the mean distance between the place found and the landmark, as a percentage of the image side
(PEAC Fig. 5, ACE Fig. 7: zero-shot, stride 8): of the features as they are, and less their mean over the images, which
takes what they know of the place in the picture.
"""

from __future__ import annotations

import argparse
import tempfile

import torch

from monai_afire.apps.phantom import ChestPhantomDataset
from monai_afire.apps.studies import landmark_correspondence, same_place_correspondence
from monai_afire.networks import ViTEncoder, load_encoder_weights

SIZE, STRIDE, IMAGES, REFERENCES = 128, 8, 48, 6


def bundle_encoder() -> ViTEncoder:
    """An untrained encoder of the bundles' default shape."""
    torch.manual_seed(0)
    return ViTEncoder(img_size=SIZE, patch_size=16, hidden_size=192, num_layers=5, num_heads=6)


def percent(
    images: torch.Tensor, landmarks: torch.Tensor, encoder: ViTEncoder, remove_position: bool
) -> float:
    """Mean error as a percentage of the side."""
    options = {
        "reference": REFERENCES,
        "stride": STRIDE,
        "progress": False,
        "remove_position": remove_position,
    }
    table = landmark_correspondence(encoder, images, landmarks, **options)
    return 100 * float(table["error_fraction"].mean())


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", nargs="*", help="model.pt of pre-training bundles")
    options = parser.parse_args()
    dataset = ChestPhantomDataset(
        tempfile.mkdtemp(), "test", num_patients=IMAGES, image_size=SIZE, seed=7
    )
    images = torch.stack([torch.as_tensor(item["image"]) for item in dataset])
    landmarks = torch.stack([torch.as_tensor(item["landmarks"]) for item in dataset])
    same_place = same_place_correspondence(landmarks, (SIZE, SIZE), REFERENCES)
    print(f"same place: {100 * same_place['error_fraction'].mean():.1f} %")
    cases = [("untrained", None, "teacher")]
    cases += [(path, path, branch) for path in options.weights for branch in ("teacher", "student")]
    for name, path, branch in cases:
        encoder = bundle_encoder()
        if path is not None:
            load_encoder_weights(encoder, path, branch=branch)
        errors = [percent(images, landmarks, encoder, remove) for remove in (False, True)]
        print(
            f"{name} ({branch}): {errors[0]:.1f} %, without the mean over images {errors[1]:.1f} %"
        )


if __name__ == "__main__":
    main()
