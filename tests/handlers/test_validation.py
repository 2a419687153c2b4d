# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Validation every few epochs and after the last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator

from monai_afire.handlers import ResumableEarlyStop
from monai_afire.handlers.validation import EpochValidation


def evaluator(metrics: list[float]) -> SupervisedEvaluator:
    """An evaluator whose key metric takes one value after the other."""
    engine = SupervisedEvaluator(
        torch.device("cpu"), [{"image": torch.zeros(1, 1)}], torch.nn.Identity()
    )
    engine.state.key_metric_name = "accuracy"

    @engine.on("COMPLETED")
    def count(engine: Any) -> None:
        validated.append(engine.state.epoch)

    validated: list[int] = []
    engine.validated = validated  # type: ignore[attr-defined]

    @engine.on("EPOCH_STARTED")
    def measure(engine: Any) -> None:
        engine.state.metrics["accuracy"] = metrics[min(len(validated), len(metrics) - 1)]

    return engine


@pytest.mark.parametrize(
    ("epochs", "interval", "expected"),
    [(6, 3, [3, 6]), (7, 3, [3, 6, 7]), (2, 5, [2]), (1, 1, [1])],
)
def test_the_last_epoch_is_always_validated(
    epochs: int, interval: int, expected: list[int]
) -> None:
    validator = evaluator([0.5])
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, interval).attach(trainer)
    trainer.run([0], max_epochs=epochs)
    assert validator.validated == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("epochs", "interval", "expected"), [(6, 3, [1, 3, 6]), (3, 1, [1, 2, 3]), (1, 4, [1])]
)
def test_the_first_epoch_is_validated_where_asked_for(
    epochs: int, interval: int, expected: list[int]
) -> None:
    validator = evaluator([0.5])
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, interval, first=True).attach(trainer)
    trainer.run([0], max_epochs=epochs)
    assert validator.validated == expected  # type: ignore[attr-defined]


def test_early_stopping_by_the_key_metric() -> None:
    validator = evaluator([0.5, 0.7, 0.6, 0.65, 0.9])
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, 1, ResumableEarlyStop(patience=2)).attach(trainer)
    trainer.run([0], max_epochs=9)
    assert trainer.state.epoch == 4


def test_early_stopping_where_less_is_better() -> None:
    validator = evaluator([0.5, 0.4, 0.45, 0.5, 0.1])
    validator.metric_cmp_fn = lambda current, best: current < best
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, 1, ResumableEarlyStop(patience=2)).attach(trainer)
    trainer.run([0], max_epochs=9)
    assert trainer.state.epoch == 4


def test_an_evaluation_without_training_does_not_count() -> None:
    """As evaluate.json does it, which has no key metric, after a check of the workflow has built the trainer."""
    validator = evaluator([0.5])
    validator.state.key_metric_name = None
    EpochValidation(validator, 1, ResumableEarlyStop(patience=1)).attach(
        Engine(lambda engine, batch: None)
    )
    validator.run()
    assert validator.validated == [1]  # type: ignore[attr-defined]


def test_a_second_run_of_the_trainer_counts_a_validation_once() -> None:
    validator, stopping = evaluator([0.5]), ResumableEarlyStop(patience=5)
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, 1, stopping).attach(trainer)
    trainer.run([0], max_epochs=2)
    trainer.run([0], max_epochs=3)
    assert stopping.state_dict()["counter"] == 2


def test_another_run_of_the_trainer_begins_to_count_anew() -> None:
    validator, stopping = evaluator([0.5]), ResumableEarlyStop(patience=2)
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, 1, stopping).attach(trainer)
    for _ in range(2):
        trainer.run([0], max_epochs=9)
        assert trainer.state.epoch == 3
        trainer.state.max_epochs, trainer.state.epoch_length, trainer.state.iteration = (
            None,
            None,
            0,
        )


def test_a_run_that_was_ended_early_is_complete(caplog: pytest.LogCaptureFixture) -> None:
    def begun(state: dict[str, Any] | None = None) -> tuple[Engine, ResumableEarlyStop]:
        stopping, trainer = ResumableEarlyStop(patience=2), Engine(lambda engine, batch: None)
        EpochValidation(evaluator([0.5]), 1, stopping).attach(trainer)
        if state:
            trainer.add_event_handler(Events.STARTED, lambda: stopping.load_state_dict(state))
        trainer.run([0], max_epochs=9)
        return trainer, stopping

    trainer, stopping = begun()
    assert trainer.state.epoch == 3
    assert begun(stopping.state_dict())[0].state.epoch == 0
    assert "early stopping has ended it" in caplog.text
    assert begun({**stopping.state_dict(), "counter": 1})[0].state.epoch == 1


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 epoch, got 0"):
        EpochValidation(None, 0)


@pytest.mark.parametrize(("count", "told"), [(10, True), (30, False)])
def test_a_handful_of_images_is_told(
    count: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loader = DataLoader([{"image": torch.zeros(1)}] * count, batch_size=count)
    validator = SupervisedEvaluator(torch.device("cpu"), loader, torch.nn.Identity())
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, interval=5).attach(trainer)
    trainer.fire_event(Events.STARTED)
    words = (
        "validation chooses the best epoch, the thresholds and when to stop with 10 images alone"
    )
    assert (words in caplog.text) == told


def test_an_image_with_and_without_a_painted_lesion_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = [{"image": f"{number}.png", "label": 0} for number in range(29)]
    dataset = Dataset([*given, *({**item, "label": 1} for item in given)])
    loader = DataLoader(dataset, batch_size=2)
    validator = SupervisedEvaluator(torch.device("cpu"), loader, torch.nn.Identity())
    trainer = Engine(lambda engine, batch: None)
    EpochValidation(validator, interval=5).attach(trainer)
    trainer.fire_event(Events.STARTED)
    assert "29 images" in caplog.text
