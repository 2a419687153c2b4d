# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A training: resumed runs end like uninterrupted ones, and each file, curve and message says what happened."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Events
from integration.distributed.two_ranks import needs_gloo, run_on_two_ranks
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.transforms import Lambdad
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from monai_afire.data import saved_class_names
from monai_afire.data.datalist.drawn_images import drawn_mark
from monai_afire.handlers import OptimizerSchedule, Training
from monai_afire.inferers import AutocastInferer
from monai_afire.networks.weights.description import from_state
from unit.handlers.miniature_training import assert_same, final_state, make_trainer

NAN = float("nan")
BATCH = {"image": torch.zeros(1, 1), "label": torch.zeros(1, 1)}


def evaluator(scores: Sequence[float], smaller_is_better: bool = False) -> SupervisedEvaluator:
    """An evaluator whose key metric takes one value after the other."""
    is_better = (lambda new, best: new < best) if smaller_is_better else (lambda n, b: n > b)
    options: dict[str, Any] = {"decollate": False, "metric_cmp_fn": is_better}
    engine: Any = SupervisedEvaluator(torch.device("cpu"), [BATCH], nn.Identity(), **options)
    engine.state.key_metric_name = "score"
    left = iter(scores)
    engine.add_event_handler(
        Events.EPOCH_COMPLETED, lambda: engine.state.metrics.update(score=next(left))
    )
    return engine


def counting(
    folder: Path,
    scores: Sequence[float] | None = None,
    epochs: int = 3,
    loader: Any = (BATCH,),
    loss_function: Any = None,
    smaller_is_better: bool = False,
    trainer_options: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[SupervisedTrainer, Training]:
    """A training whose every step adds 1 to the bias of its network, which is 0 at first."""
    network = nn.Linear(1, 1)
    nn.init.zeros_(network.bias)
    validator = None if scores is None else evaluator(scores, smaller_is_better)
    training = Training(network, validator, str(folder), **options)
    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=epochs,
        train_data_loader=loader if isinstance(loader, DataLoader) else list(loader),
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        loss_function=loss_function or (lambda pred, label: -pred.float().mean()),
        train_handlers=[*options.get("handlers", ()), training],
        decollate=False,
        **(trainer_options or {}),
    )
    return trainer, training


def run(folder: Path, *arguments: Any, **options: Any) -> SupervisedTrainer:
    trainer, _ = counting(folder, *arguments, **options)
    trainer.run()
    return trainer


def bias_in(folder: Path, file: str = "model.pt") -> float:
    state = torch.load(folder / "models" / file, weights_only=True)
    return state.get("network", state)["bias"].item()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- resuming


class CrashError(Exception):
    """Stands for whatever ends a run."""


def crash() -> None:
    raise CrashError


@pytest.mark.parametrize(("iteration", "num_workers"), [(9, 0), (8, 2)])
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, iteration: int, num_workers: int
) -> None:
    """Epochs have three iterations."""
    whole = make_trainer(tmp_path / "whole", num_workers=num_workers)
    start = {name: value.clone() for name, value in whole.network.state_dict().items()}
    whole.run()
    part = make_trainer(tmp_path / "parts", num_workers=num_workers)
    part.add_event_handler(Events.ITERATION_COMPLETED(once=iteration), crash)
    with pytest.raises(CrashError):
        part.run()
    resumed = make_trainer(tmp_path / "parts", seed=99, num_workers=num_workers, resume=True)
    epochs: list[int] = []
    resumed.add_event_handler(Events.EPOCH_STARTED, lambda: epochs.append(resumed.state.epoch))
    resumed.run()
    assert epochs == list(range((iteration - 1) // 3 + 1, 5))
    assert_same(final_state(resumed), final_state(whole))
    for name in ("encoder.blocks.0.mlp.linear1.weight", "teacher_head.mlp.0.weight"):
        assert not torch.equal(whole.network.state_dict()[name], start[name])
    saved = torch.load(tmp_path / "parts/models/model.pt", weights_only=True)
    assert_same(saved, dict(whole.network.state_dict()))


def test_a_run_that_ends_while_it_writes_its_checkpoint_repeats_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = make_trainer(tmp_path / "whole"), make_trainer(tmp_path / "parts")
    whole.run()
    save = torch.save

    def save_half(content: Any, path: Path) -> None:
        save(content, path)
        if path.name.startswith(".checkpoint.pt") and part.state.epoch == 2:
            path.write_bytes(path.read_bytes()[:1000])
            raise CrashError

    monkeypatch.setattr(torch, "save", save_half)
    with pytest.raises(CrashError):
        part.run()
    monkeypatch.undo()
    saved = torch.load(tmp_path / "parts/models/checkpoint.pt", weights_only=True)
    assert saved["training"]["epoch"] == 1
    resumed = make_trainer(tmp_path / "parts", resume=True)
    resumed.run()
    assert_same(final_state(resumed), final_state(whole))
    assert sorted(content(tmp_path / "parts/models")) == ["checkpoint.pt", "model.pt"]


def test_more_epochs_may_be_asked_for_and_a_complete_run_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, epochs=2)
    assert run(tmp_path, epochs=3, resume=True).state.epoch == 3
    before = content(tmp_path / "models")
    trainer = run(tmp_path, epochs=3, resume=True)
    assert trainer.network.bias.item() == 3
    assert content(tmp_path / "models") == before


def test_epochs_are_the_unit_when_the_batch_size_changes(tmp_path: Path) -> None:
    run(tmp_path, epochs=2, loader=[BATCH] * 3)
    trainer, _ = counting(tmp_path, epochs=4, loader=[BATCH] * 5, resume=True)
    steps: list[int] = []
    trainer.add_event_handler(
        Events.ITERATION_STARTED, lambda: steps.append(trainer.state.iteration)
    )
    trainer.run()
    assert steps == list(range(11, 21))


def test_other_runs_and_missing_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.pt"):
        run(tmp_path, resume=True)
    run(tmp_path, epochs=2)
    before = content(tmp_path / "models")
    for file in ("model.pt", "checkpoint.pt"):
        with pytest.raises(FileExistsError, match="models"):
            run(tmp_path)
        assert content(tmp_path / "models") == before
        (tmp_path / "models" / file).unlink()
        del before[file]


def listed(folder: Path, count: int, is_drawn: bool = False) -> DataLoader:
    """A loader of files, as those of MONAI's data sets are."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(folder / f"{number}.png") for number in range(count)]
    for name in names:
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(
            name, pnginfo=drawn_mark() if is_drawn else None
        )
    items = [{"image": name, "label": torch.zeros(1)} for name in names]
    return DataLoader(Dataset(items, Lambdad("image", lambda _: torch.zeros(1))), batch_size=1)


def test_other_images_and_other_classes_are_refused(tmp_path: Path) -> None:
    about = {"class_names": ["mass", "nodule"]}
    folder = tmp_path / "run"
    run(folder, epochs=1, loader=listed(tmp_path / "a", 2), description=about)
    before = content(folder / "models")
    for images, names in ((listed(tmp_path / "b", 3), about), (listed(tmp_path / "a", 2), {})):
        with pytest.raises(ValueError, match="other training images or classes"):
            run(folder, loader=images, description=names, resume=True)
    assert content(folder / "models") == before
    shutil.copytree(tmp_path / "a", tmp_path / "scratch/of job 3")
    moved = listed(tmp_path / "scratch/of job 3", 2)
    assert run(folder, loader=moved, description=about, resume=True).state.epoch == 3


def test_calls_of_run_go_on_and_validate_each_epoch_once(tmp_path: Path) -> None:
    """As MONAI's client of federated learning calls it."""
    trainer, training = counting(tmp_path, [0.1, 0.2, 0.3], epochs=1, keep_best=True)
    for epoch in (1, 2, 3):
        trainer.state.max_epochs = trainer.state.epoch + 1
        trainer.run()
        assert trainer.state.epoch == epoch
        assert len(training.scores) == epoch
    assert bias_in(tmp_path) == bias_in(tmp_path, "checkpoint.pt") == 3


def second_rank_fails(folder: str, rank: int, world_size: int) -> torch.Tensor:
    """Rank 1 alone has a loss that is not finite, in the last step of the second of its epochs."""
    network, steps = nn.Linear(1, 1), itertools.count(1)

    def loss(pred: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return -pred.mean() * (NAN if rank and next(steps) == 4 else 1.0)

    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=3,
        train_data_loader=[BATCH, BATCH],
        network=DistributedDataParallel(network),
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        loss_function=loss,
        train_handlers=[Training(network, None, folder)],
        decollate=False,
    )
    with contextlib.suppress(FloatingPointError if rank else RuntimeError):
        trainer.run()
    return network.bias.detach()


@needs_gloo
@pytest.mark.slow
def test_weights_that_another_rank_has_spoilt_are_not_saved(tmp_path: Path) -> None:
    first, _ = run_on_two_ranks(functools.partial(second_rank_fails, str(tmp_path)), tmp_path)
    assert not first.isfinite(), "the gradient of the other rank counts"
    state = torch.load(tmp_path / "models/checkpoint.pt", weights_only=True)
    assert state["training"]["epoch"] == 1
    assert math.isfinite(bias_in(tmp_path))


# ---- validation


@pytest.mark.parametrize(
    ("epochs", "interval", "expected"), [(7, 3, [1, 3, 6, 7]), (3, 1, [1, 2, 3]), (1, 4, [1])]
)
def test_the_first_and_the_last_epoch_are_validated(
    tmp_path: Path, epochs: int, interval: int, expected: list[int]
) -> None:
    trainer, training = counting(tmp_path, [0.5] * 9, epochs, val_interval=interval)
    validated: list[int] = []
    validator: Any = training.validator
    validator.add_event_handler(Events.STARTED, lambda: validated.append(trainer.state.epoch))
    trainer.run()
    assert validated == expected


@pytest.mark.parametrize(
    ("scores", "keep_best", "smaller", "expected"),
    [
        ([0.1, 0.9, 0.5], True, False, 2),
        ([0.1, 0.9, 0.5], False, False, 3),
        ([0.1, 0.9, 0.5], True, True, 1),
        ([NAN, NAN, NAN], True, False, 3),
        ([0.1, NAN, NAN], True, False, 1),
    ],
)
def test_the_model_is_the_best_or_the_last(
    tmp_path: Path, scores: list[float], keep_best: bool, smaller: bool, expected: int
) -> None:
    run(tmp_path, scores, keep_best=keep_best, smaller_is_better=smaller)
    assert bias_in(tmp_path) == expected
    assert bias_in(tmp_path, "checkpoint.pt") == 3


def test_the_best_validation_is_known_after_resuming(tmp_path: Path) -> None:
    run(tmp_path, [0.5, 0.9], 2, keep_best=True)
    run(tmp_path, [0.7, 0.8], 4, keep_best=True, resume=True)
    assert bias_in(tmp_path) == 2
    run(tmp_path, [0.95], 5, keep_best=True, resume=True)
    assert bias_in(tmp_path) == 5


def test_early_stopping_counts_over_a_resumption(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    scores = [0.5, 0.4, 0.6, 0.5, 0.5, 0.5]
    assert run(whole, scores, 9, patience=2).state.epoch == 5
    run(parts, scores[:4], 4, patience=2)
    assert run(parts, scores[4:], 9, patience=2, resume=True).state.epoch == 5
    assert run(parts, [], 9, patience=2, resume=True).state.epoch == 5, "it has ended"
    assert run(parts, [0.5] * 9, 9, patience=3, resume=True).state.epoch == 6


# ---- steps


@pytest.mark.parametrize(("num_batches", "accumulation_steps"), [(5, 3), (7, 4), (4, 2)])
def test_each_step_has_the_gradient_of_all_its_images_as_one_batch(
    tmp_path: Path, num_batches: int, accumulation_steps: int
) -> None:
    """Also the last step of each epoch, for which fewer batches may be left."""
    batches = [{"image": torch.rand(4, 1), "label": torch.rand(4, 1)} for _ in range(num_batches)]
    options = {"accumulation_steps": accumulation_steps}
    trainer, training = counting(tmp_path, None, 2, batches, nn.MSELoss(), trainer_options=options)
    network: Any = training.network
    trainer.optimizer.param_groups[0]["lr"] = 0.0  # all gradients are at one point
    found, losses = [], []
    trainer.optimizer.register_step_pre_hook(lambda *_: found.append(network.weight.grad.clone()))
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda: losses.append(trainer.state.output["loss"].item())
    )
    trainer.run()
    expected = []
    for start in range(0, num_batches, accumulation_steps):
        group = batches[start : start + accumulation_steps]
        images, labels = (torch.cat([batch[key] for batch in group]) for key in ("image", "label"))
        loss = nn.functional.mse_loss(network(images), labels)
        expected.append(torch.autograd.grad(loss, network.weight)[0])
    torch.testing.assert_close(found, expected * 2)
    own = [nn.functional.mse_loss(network(each["image"]), each["label"]).item() for each in batches]
    assert losses == pytest.approx(own * 2)  # shown as they are


def test_accumulation_beyond_an_epoch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"accumulation_steps is 4.*at most 3"):
        run(tmp_path, loader=[BATCH] * 3, trainer_options={"accumulation_steps": 4})


class Scaler(torch.amp.GradScaler):
    """A scaler, which PyTorch switches off without a GPU."""

    def __init__(self, device: str) -> None:
        super().__init__("cpu", enabled=True, growth_interval=2)


@pytest.mark.filterwarnings("ignore:.*GradScaler is enabled, but CUDA is not available")
def test_float16_is_scaled_and_its_scale_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient of 1e-8 is 0 in float16, whose smallest number is 6e-8."""
    monkeypatch.setattr(torch.amp, "GradScaler", Scaler)
    half: dict[str, Any] = {
        "loss_function": lambda pred, label: -1e-8 * pred.float().sum(),
        "loader": [{**BATCH, "image": torch.ones(1, 1)}],
        "trainer_options": {"inferer": AutocastInferer(dtype=torch.float16)},
    }
    trainer = run(tmp_path, epochs=2, **half)
    assert trainer.network.bias.item() == pytest.approx(2e-8, rel=0.01)
    assert trainer.scaler.get_scale() == 2 * 65536  # type: ignore[union-attr]
    trainer = run(tmp_path, epochs=4, resume=True, **half)
    trainer.state.max_epochs = 6  # a second run() has the scaler of the first
    trainer.run()
    assert trainer.network.bias.item() == pytest.approx(6e-8, rel=0.01)
    assert trainer.scaler.get_scale() == 8 * 65536  # type: ignore[union-attr]
    assert run(tmp_path, epochs=7, resume=True).scaler is None  # on a GPU that needs none


# ---- what a run leaves and says


def test_curves_have_the_loss_what_is_scheduled_and_the_validation(tmp_path: Path) -> None:
    trainer, training = counting(tmp_path, [0.5, 0.6], 2, loader=[BATCH] * 7, record_interval=5)
    training.handlers = [OptimizerSchedule(trainer.optimizer, "lr", end=0.0)]
    training.handlers[0].attach(trainer)
    trainer.run()
    events = EventAccumulator(str(tmp_path)).Reload()
    names = {"train/loss", "train/learning_rate", "validation/score"}
    assert set(events.Tags()["scalars"]) == names
    assert [event.step for event in events.Scalars("train/loss")] == [5, 7, 10, 14]
    assert [event.step for event in events.Scalars("validation/score")] == [1, 2]


@pytest.mark.parametrize(
    ("scores", "options", "expected"),
    [
        ([0.4, 0.45, 0.5], {"no_skill": 0.5}, "nothing"),
        ([0.7, 0.8, 0.6], {}, "little"),  # the model is the last
        ([0.7, 0.8, 0.6], {"keep_best": True}, ""),
        ([0.9, 0.8, 0.7], {"no_skill": 1.0, "smaller_is_better": True}, ""),
        ([3.0, 2.0, 1.0], {"no_skill": 1.0, "smaller_is_better": True}, "nothing"),
    ],
)
def test_whether_it_learned_is_said(
    tmp_path: Path, scores: list[float], options: dict[str, Any], expected: str
) -> None:
    run(tmp_path, scores[:2], 2, **options)
    trainer, training = counting(tmp_path, scores[2:], 3, resume=True, **options)
    trainer.run()
    assert training.what_was_not_learned().partition(" was")[0] == expected


@pytest.mark.parametrize(("epochs", "said"), [(199, True), (200, False)])
def test_a_run_of_few_steps_says_how_many_epochs_would_do(
    tmp_path: Path, epochs: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"accumulation_steps": 4}
    trainer, _ = counting(tmp_path, epochs=epochs, loader=[BATCH] * 10, trainer_options=options)
    trainer.add_event_handler(Events.ITERATION_STARTED, crash)
    with caplog.at_level(logging.WARNING), pytest.raises(CrashError):
        trainer.run()
    assert ("--epochs 200" in caplog.text) == said


@pytest.mark.parametrize("kind", ["phantoms", "radiographs", None])
def test_files_say_what_the_images_were(tmp_path: Path, kind: str | None) -> None:
    loader = [BATCH] if kind is None else listed(tmp_path / "images", 2, kind == "phantoms")
    for name, given, expected in (("found", {}, kind), ("given", {"trained_on": None}, None)):
        about = {"class_names": ["nodule"], **given}
        run(tmp_path / name, epochs=1, loader=loader, description=about)
        for file in ("model.pt", "checkpoint.pt"):
            state = torch.load(tmp_path / name / "models" / file, weights_only=True)
            found = from_state(state.get("network", state))
            assert found is not None
            assert found.trained_on == expected
        assert saved_class_names(tmp_path / name / "models/model.pt") == ["nodule"]
