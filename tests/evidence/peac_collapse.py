# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Does PEAC's global loss collapse, as printed and with what its references put against it? On the phantom.

``python -m tests.evidence.peac_collapse --seed 0`` trains a very small network in each form on the same crops in the
same order, and prints on held-out phantoms ``global_spread`` (0 when all embeddings have one direction), the share of
crops whose nearest teacher's embedding, of all held-out images, is that of the other crop of their own image, and the
share of patches whose nearest patch shows the same place.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from monai.transforms import Compose, CopyItemsd
from monai.utils import set_determinism

from monai_afire.apps.phantom import draw_chest_phantom
from monai_afire.losses import PEACLoss
from monai_afire.metrics.peac import peac_correspondence
from monai_afire.metrics.pretraining import correspondence_accuracy, embedding_spread
from monai_afire.networks import PEAC, ViTEncoder
from monai_afire.transforms import DistortAppearanced, GridCropPaird, ShufflePatchesd

__all__ = ["main"]

SIZE, PATCH, GRID, BATCH = 32, 8, 6, 16
KEYS = ("image_1", "image_2", "distorted", "distorted_order", "shuffled", "offset_1", "offset_2")
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as printed": ({"global_balance": "none"}, {"reduction": "sum"}),
    "means": ({"global_balance": "none"}, {"local_weight": 4.0}),
    "means, predictor": ({"global_balance": "predictor"}, {"local_weight": 4.0}),
    "means, center": ({"global_balance": "center"}, {"local_weight": 4.0}),
    "means, center, swapped pass for all": (
        {"global_balance": "center"},
        {"local_weight": 4.0, "swapped_samples": "all"},
    ),
}


def crops(first: int, images: int, pairs: int, seed: int) -> list[torch.Tensor]:
    """Pairs of crops of each of some phantoms: the arguments of the network, images varying fastest."""
    transform = Compose(
        [
            GridCropPaird(keys="image", grid=GRID, cell=PATCH, crops=(SIZE // PATCH,) * 2),
            CopyItemsd(keys="image_1", names="distorted"),
            ShufflePatchesd(keys="distorted", patch_size=PATCH, prob=0.5),
            DistortAppearanced(keys="distorted", skip_key="shuffled"),
        ]
    )
    transform.set_random_state(seed)
    drawn = [draw_chest_phantom(first + index, GRID * PATCH).image for index in range(images)]
    items = [transform({"image": torch.as_tensor(image)}) for _ in range(pairs) for image in drawn]
    return [torch.stack([torch.as_tensor(np.asarray(item[key])) for item in items]) for key in KEYS]


def train(
    form: str, data: list[torch.Tensor], held_out: list[torch.Tensor], steps: int, seed: int
) -> list[float]:
    """Spread, own image found and place found on held-out phantoms."""
    network_options, loss_options = FORMS[form]
    set_determinism(seed)
    encoder = ViTEncoder(img_size=SIZE, patch_size=PATCH, hidden_size=48, num_layers=2, num_heads=3)
    network = PEAC(
        encoder, expander_dim=32, expander_hidden_dim=64, teacher_decay=0.99, **network_options
    )
    loss_function = PEACLoss(**loss_options)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.04)
    for _ in range(steps):
        chosen = torch.randint(len(data[0]), (BATCH,))
        loss = loss_function(network(*(part[chosen] for part in data)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 3.0)
        optimizer.step()
        network.update_teacher()
    network.eval()
    with torch.no_grad():
        outputs = network(*held_out)
    student, teacher = (
        torch.nn.functional.normalize(outputs[name], dim=-1)
        for name in ("global_2", "teacher_global_1")
    )
    found = ((student @ teacher.T).argmax(1) == torch.arange(len(student))).float().mean()
    place = correspondence_accuracy(*peac_correspondence(outputs))
    return [float(value) for value in (embedding_spread(outputs["global_2"]), found, place)]


def main() -> None:
    """Run from the repository's root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--images", type=int, default=48, help="to train on; as many as 32 are held out"
    )
    arguments = parser.parse_args()
    data = crops(0, arguments.images, 8, arguments.seed)
    held_out = crops(arguments.images, 32, 1, arguments.seed)
    print(
        f"{arguments.steps} steps, seed {arguments.seed}: spread, own image (chance 0.03), own place (chance 0.06)"
    )
    for form in FORMS:
        values = train(form, data, held_out, arguments.steps, arguments.seed)
        print(f"{form:40}" + "".join(f"{value:8.3f}" for value in values), flush=True)


if __name__ == "__main__":
    main()
