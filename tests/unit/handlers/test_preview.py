# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The picture of restorations, as a file and in TensorBoard."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.engines import SupervisedEvaluator
from monai.engines.utils import PrepareBatchExtraInput
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from monai_afire.handlers import CorrespondencePreview, RestorationPreview
from monai_afire.networks import AFiRe, ViTEncoder

INPUTS = {"normal": "image", "with synthetic lesions": "lesion_image", "lesion mask": "lesion_mask"}


def tiny_afire() -> AFiRe:
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    sizes = {"head_dim": 6, "decoder_dim": 24, "decoder_layers": 1, "decoder_heads": 2}
    return AFiRe(encoder, num_clusters=4, **sizes)


def evaluate(preview: RestorationPreview, network: AFiRe, epoch: int = 1) -> None:
    """Of two batches, of which the first is shown."""
    batch = {
        "image": MetaTensor(torch.full((2, 1, 16, 16), 0.25)),
        "lesion_image": torch.full((2, 2, 1, 16, 16), 0.5),
        "lesion_mask": torch.zeros(2, 2, 1, 16, 16),
    }
    batch["lesion_mask"][..., :8] = 0.25
    evaluator = SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=[batch, {name: 0 * values for name, values in batch.items()}],
        network=network,
        prepare_batch=PrepareBatchExtraInput(["lesion_image", "lesion_mask"]),
        val_handlers=[preview],
        decollate=False,
    )
    evaluator.run(epoch)


def test_picture_is_written_and_sent_to_tensorboard(tmp_path: Path) -> None:
    network = tiny_afire()
    file, events = tmp_path / "new" / "preview.png", tmp_path / "events"
    with SummaryWriter(str(events)) as writer:
        preview = RestorationPreview(network.encoder, str(file), INPUTS, summary_writer=writer)
        evaluate(preview, network, epoch=5)
    (event,) = EventAccumulator(str(events)).Reload().Images("pictures/preview")
    assert event.step == 5
    with Image.open(file) as picture:
        assert picture.size == (event.width, event.height)


def test_lesions_are_restored_in_place_and_the_difference_is_colored(tmp_path: Path) -> None:
    network = tiny_afire()
    shown: list[list[np.ndarray]] = []
    restored: list[torch.Tensor] = []

    class Recorder(RestorationPreview):
        def rows(self, batch: Any, outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
            shown.extend(super().rows(batch, outputs))
            restored.extend(self.encoder.to_images(outputs["restored"][:, 0].float()))
            return []

    inputs = {"normal": "image", "with synthetic lesions": "lesion_image"}
    evaluate(Recorder(network.encoder, "", inputs, region="lesion_mask"), network)
    assert len(shown) == 2
    for (normal, lesions, mask, in_place, difference), whole in zip(shown, restored, strict=True):
        assert (normal == 0.25).all()
        assert (lesions == 0.5).all()
        assert ((mask > 0) == (np.arange(16) < 8)).all()
        np.testing.assert_array_equal(in_place, np.where(mask > 0, whole[0], lesions))
        change = in_place - lesions
        assert (difference[:, 8:] == 1).all()
        np.testing.assert_array_equal(difference[..., 0] < 1, change < 0)  # blue: darker
        np.testing.assert_array_equal(difference[..., 2] < 1, change > 0)  # red: brighter


def test_patches_wear_the_color_of_their_place() -> None:
    encoder: Any = SimpleNamespace(grid_size=(2, 2))
    found = torch.tensor([[3, 0, 1, 2]]), torch.tensor([[3, 0, -1, -1]])  # nearest, matches
    preview = CorrespondencePreview(encoder, "", lambda outputs: found, "b", "a")
    crops = {"a": torch.zeros(1, 1, 8, 8), "b": torch.ones(1, 1, 8, 8)}
    ((reference, same_place, most_similar),) = preview.rows(crops, {})
    # the reference is white, the other crop black
    colors = reference[[0, 0, 7, 7], [0, 7, 0, 7]] - 0.55
    assert len(np.unique(colors.round(6), axis=0)) == 4
    for picture in (same_place, most_similar):  # as good as it gets: both alike
        np.testing.assert_allclose(picture[0, 0], colors[3], atol=1e-6)
        np.testing.assert_allclose(picture[0, 7], colors[0], atol=1e-6)
        assert (picture[4:] == 0).all()  # outside the overlap nothing is known
