# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What every run has is the same as its handlers one by one, in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Events
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator
from monai.handlers import MeanSquaredError, from_engine
from monai.transforms import Lambdad
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from monai_afire.data import saved_class_names
from monai_afire.data.datalist.drawn_images import drawn_mark
from monai_afire.engines import TrackedTrainer
from monai_afire.handlers import (
    AttributeSchedule,
    EpochSeed,
    NonFiniteLoss,
    OptimizerSchedule,
    ResumableCheckpoint,
    TrainingRun,
)
from monai_afire.handlers.preview import Preview
from monai_afire.handlers.validation import EpochValidation
from monai_afire.networks.weights.description import carried_description


class Jitter(nn.Module):
    """A layer whose result depends on the random state, and that has something to schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.strength = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.strength * torch.rand(1)


def parts(batches: int = 3) -> dict[str, Any]:
    torch.manual_seed(0)
    network = Jitter()
    random = torch.Generator().manual_seed(1)
    data = [
        {"image": torch.rand(2, generator=random), "label": torch.rand(1, generator=random)}
        for _ in range(2 * batches)
    ]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    return {
        "network": network,
        "optimizer": optimizer,
        "loader": DataLoader(Dataset(data), batch_size=2),
        "schedules": [
            OptimizerSchedule(optimizer, "lr", end=0.0),
            AttributeSchedule(network, "strength", end=0.1),
        ],
    }


def evaluator_of(made: dict[str, Any]) -> SupervisedEvaluator:
    metric = MeanSquaredError(output_transform=from_engine(["pred", "label"]))
    return SupervisedEvaluator(
        device="cpu",
        val_data_loader=made["loader"],
        network=made["network"],
        key_val_metric={"error": metric},
    )


def trainer_of(made: dict[str, Any], epochs: int = 3, **arguments: Any) -> TrackedTrainer:
    return TrackedTrainer(
        device="cpu",
        max_epochs=epochs,
        train_data_loader=made["loader"],
        network=made["network"],
        optimizer=made["optimizer"],
        loss_function=nn.MSELoss(),
        decollate=False,
        **arguments,
    )


def test_it_is_its_handlers_one_by_one(tmp_path: Path) -> None:
    by_hand = parts()
    validator = evaluator_of(by_hand)
    EpochSeed(constant=True).attach(validator)
    handlers = [
        EpochSeed(7),
        NonFiniteLoss(str(tmp_path)),
        *by_hand["schedules"],
        EpochValidation(validator, 2),
        ResumableCheckpoint(
            str(tmp_path / "by_hand"), by_hand["network"], {"optimizer": by_hand["optimizer"]}
        ),
    ]
    trainer_of(by_hand, train_handlers=handlers).run()

    made = parts()
    run = TrainingRun(
        made["network"],
        evaluator_of(made),
        str(tmp_path),
        str(tmp_path / "run"),
        seed=7,
        val_interval=2,
    )
    trainer_of(made, run=run, train_handlers=made["schedules"]).run()
    assert run.validator is not None
    assert run.validator.state.metrics == validator.state.metrics
    for name, value in by_hand["network"].state_dict().items():
        torch.testing.assert_close(made["network"].state_dict()[name], value, rtol=0, atol=0)
    written = [
        sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("by_hand", "run")
    ]
    assert written[0] == written[1]


def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    ends = []
    for name, epochs in (("whole", (4,)), ("halves", (2, 4))):
        for number, last in enumerate(epochs):
            made = parts()
            made["schedules"] = [EpochLogger([])]
            folder = str(tmp_path / name)
            run = TrainingRun(
                made["network"],
                evaluator_of(made),
                folder,
                folder,
                seed=3,
                resume=number > 0,
            )
            trainer_of(made, last, run=run, train_handlers=made["schedules"]).run()
        ends.append(made["network"].state_dict())
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=0, atol=0)


def test_curves_have_the_loss_what_is_scheduled_and_the_validation(tmp_path: Path) -> None:
    made = parts(batches=5)
    writer = SummaryWriter(str(tmp_path))
    run = TrainingRun(
        made["network"],
        evaluator_of(made),
        str(tmp_path),
        str(tmp_path / "models"),
        writer,
    )
    trainer = trainer_of(made, run=run, train_handlers=made["schedules"])
    trainer.run()
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "train/loss",
        "train/learning_rate",
        "train/strength",
        "validation/error",
    }
    steps = [event.step for event in events.Scalars("train/loss")]
    assert steps == list(range(run.record_interval, trainer.state.iteration + 1, 5))
    assert [event.step for event in events.Scalars("validation/error")] == [1, 2, 3]


@pytest.mark.parametrize("keep_best", [True, False])
def test_the_model_is_that_of_the_best_validation_if_asked(tmp_path: Path, keep_best: bool) -> None:
    made = parts()
    validator = evaluator_of(made)
    errors = iter([0.1, 0.9, 0.5])  # larger is better
    kept: list[dict[str, torch.Tensor]] = []

    def judge(engine: Any) -> None:
        engine.state.metrics["error"] = next(errors)
        kept.append({name: value.clone() for name, value in made["network"].state_dict().items()})

    run = TrainingRun(
        made["network"],
        validator,
        str(tmp_path),
        str(tmp_path),
        keep_best=keep_best,
    )
    trainer = trainer_of(made, run=run)
    validator.add_event_handler(Events.COMPLETED, judge)
    # what judges must come before what keeps: the checkpoint registers with the validator when training starts
    trainer.run()
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    expected = kept[1 if keep_best else 2]
    for name, value in expected.items():
        torch.testing.assert_close(saved[name], value, rtol=0, atol=0)


class EpochLogger:
    """A handler of the trainer's own."""

    def __init__(self, epochs: list[int]) -> None:
        self.epochs = epochs

    def attach(self, engine: Any) -> None:
        engine.add_event_handler(
            Events.EPOCH_COMPLETED, lambda engine: self.epochs.append(engine.state.epoch)
        )


def test_a_run_names_its_classes_and_draws_its_preview(tmp_path: Path) -> None:
    made = parts()
    seen: list[str] = []

    class Picture(Preview):
        path = "picture.png"
        columns = ()

        def rows(self, batch: Any, outputs: Any) -> list:
            seen.append(str(self.path))
            return []

    validator = SupervisedEvaluator(
        device="cpu",
        val_data_loader=made["loader"],
        network=made["network"],
        decollate=False,
    )
    run = TrainingRun(
        made["network"],
        validator,
        str(tmp_path),
        str(tmp_path / "models"),
        preview=Picture(),
        description={"class_names": ["nodule"]},
    )
    trainer_of(made, epochs=2, run=run).run()
    assert seen == [str(tmp_path / "picture.png")] * 2
    assert saved_class_names(tmp_path / "models" / "model.pt") == ["nodule"]
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert "train/loss" in events.Tags()["scalars"]


@pytest.mark.parametrize("kind", ["phantoms", "radiographs", None])
def test_a_file_says_what_its_training_images_are(tmp_path: Path, kind: str | None) -> None:
    made = parts()
    data = made["loader"].dataset.data
    if kind is not None:
        file = tmp_path / "image.png"
        info = drawn_mark() if kind == "phantoms" else None
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(file, pnginfo=info)
        data = [{"image": str(file), "label": torch.ones(1)}] * 2
    transform = None if kind is None else Lambdad("image", lambda path: torch.ones(2))
    made["loader"] = DataLoader(Dataset(data, transform), batch_size=2)
    for folder, given, expected in (("found", {}, kind), ("given", {"trained_on": None}, None)):
        run = TrainingRun(
            made["network"], None, str(tmp_path), str(tmp_path / folder), description=given
        )
        trainer_of(made, epochs=1, run=run).run()
        for name in ("model.pt", "checkpoint.pt"):
            state = torch.load(tmp_path / folder / name, weights_only=True)
            found = carried_description(state.get("network", state))
            assert found is not None
            assert found.trained_on == expected
