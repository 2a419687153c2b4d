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


def tiny_afire(**changes: Any) -> AFiRe:
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    return AFiRe(
        encoder,
        num_clusters=4,
        head_dim=6,
        decoder_dim=24,
        decoder_layers=1,
        decoder_heads=2,
        **changes,
    )


def evaluate(
    network: AFiRe,
    preview: RestorationPreview,
    images: int = 3,
    epoch: int = 1,
) -> None:
    size = (16, 16)
    batch = {
        "image": MetaTensor(torch.full((images, 1, *size), 0.25)),
        "lesion_image": torch.full((images, 2, 1, *size), 0.5),
        "lesion_mask": torch.zeros(images, 2, 1, *size),
    }
    batch["lesion_mask"][..., :8] = 0.25
    evaluator = SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=[batch],
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
        options: dict[str, Any] = {"summary_writer": writer, "num_images": 2}
        evaluate(
            network, RestorationPreview(network.encoder, str(file), INPUTS, **options), epoch=5
        )
    with Image.open(file) as picture:
        size = picture.size
    sent = EventAccumulator(str(events)).Reload()
    assert sent.Tags()["images"] == ["pictures/preview"]
    (event,) = sent.Images("pictures/preview")
    assert event.step == 5
    assert (event.width, event.height) == size


def test_lesions_are_restored_in_place_and_the_difference_is_colored(tmp_path: Path) -> None:
    network = tiny_afire()
    shown: list[list[np.ndarray]] = []

    class Recorder(RestorationPreview):
        def rows(self, batch: Any, outputs: dict[str, torch.Tensor]) -> list[list[np.ndarray]]:
            shown.extend(super().rows(batch, outputs))
            restored.append(outputs["restored"])
            return []

    restored: list[torch.Tensor] = []
    inputs = {"normal": "image", "with synthetic lesions": "lesion_image"}
    evaluate(
        network,
        Recorder(network.encoder, str(tmp_path / "preview.png"), inputs, region="lesion_mask"),
        2,
    )
    for index, (normal, lesions, mask, in_place, difference) in enumerate(shown):
        assert (normal == 0.25).all()
        assert (lesions == 0.5).all()
        assert (mask[:, :8] > 0).all()
        np.testing.assert_array_equal(in_place[:, 8:], lesions[:, 8:])
        patches = (
            network.encoder.denormalize(restored[0][index, 0].float()).reshape(2, 2, 8, 8).numpy()
        )
        for row in range(2):  # the left patches lie in the region
            np.testing.assert_allclose(
                in_place[8 * row : 8 * row + 8, :8], patches[row, 0], rtol=1e-6
            )
        change = in_place - lesions
        assert (difference[:, 8:] == 1).all()
        np.testing.assert_array_equal(difference[..., 0] < 1, change < 0)  # blue: darker
        np.testing.assert_array_equal(difference[..., 2] < 1, change > 0)  # red: brighter
    assert len(shown) == 2


def test_nothing_is_drawn_without_a_restoration(tmp_path: Path) -> None:
    network = tiny_afire(restore=False)
    evaluate(network, RestorationPreview(network.encoder, str(tmp_path / "preview.png"), INPUTS))
    assert not list(tmp_path.iterdir())


def test_only_the_first_batch_is_shown(tmp_path: Path) -> None:
    shown: list[int] = []

    class Recorder(RestorationPreview):
        def __call__(self, engine: Any) -> None:
            shown.append(engine.state.iteration)

    evaluator = SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=[{"image": torch.zeros(2, 3)}, {"image": torch.zeros(1, 3)}],
        network=torch.nn.Identity(),
        val_handlers=[Recorder(tiny_afire().encoder, str(tmp_path / "preview.png"), INPUTS)],
        decollate=False,
    )
    for epoch in (1, 2):
        evaluator.run(epoch)
    assert shown == [1, 1]


def correspondence_rows(
    nearest: torch.Tensor, matches: torch.Tensor, images: int = 4
) -> list[list[np.ndarray]]:
    encoder: Any = SimpleNamespace(grid_size=(2, 2))
    preview = CorrespondencePreview(
        encoder, "", lambda outputs: (nearest, matches), "b", "a", num_images=images
    )
    crops = {"a": torch.zeros(len(matches), 1, 8, 8), "b": torch.ones(len(matches), 1, 8, 8)}
    return preview.rows(crops, {})


def test_patches_wear_the_color_of_their_place() -> None:
    nearest, matches = torch.tensor([[3, 0, 1, 2]]), torch.tensor([[3, 0, -1, -1]])
    ((reference, same_place, most_similar),) = correspondence_rows(nearest, matches)
    # the reference is white, the other crop black
    colors = reference[[0, 0, 7, 7], [0, 7, 0, 7]] - 0.55
    assert len(np.unique(colors.round(6), axis=0)) == 4
    for picture in (same_place, most_similar):  # as good as it gets: both alike
        np.testing.assert_allclose(picture[0, 0], colors[3], atol=1e-6)
        np.testing.assert_allclose(picture[0, 7], colors[0], atol=1e-6)
        assert (picture[4:] == 0).all()  # outside the overlap nothing is known
