# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Interrupted and resumed runs end like uninterrupted ones, and no file is ever half written."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from handlers.lock_holder import holding_process
from handlers.miniature_training import assert_same, final_state, make_trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from torch import nn

from monai_afire.handlers import ResumableCheckpoint
from monai_afire.networks.weights.checkpoint_files import read_own


class CrashError(Exception):
    """Stands for whatever ends a run."""


def crash_at(trainer: SupervisedTrainer, iteration: int) -> None:
    def crash(engine: Engine) -> None:
        if engine.state.iteration == iteration:
            raise CrashError

    trainer.add_event_handler(Events.ITERATION_COMPLETED, crash)
    with pytest.raises(CrashError):
        trainer.run()


@pytest.mark.parametrize(("crash_iteration", "num_workers"), [(5, 0), (10, 0), (8, 2)])
def test_resumed_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, crash_iteration: int, num_workers: int
) -> None:
    whole = make_trainer(tmp_path / "whole", num_workers=num_workers)
    start = {name: value.clone() for name, value in whole.network.state_dict().items()}
    whole.run()
    crash_at(make_trainer(tmp_path / "parts", num_workers=num_workers), crash_iteration)
    resumed = make_trainer(tmp_path / "parts", seed=99, num_workers=num_workers, resume=True)
    epochs: list[int] = []
    resumed.add_event_handler(
        Events.EPOCH_STARTED, lambda engine: epochs.append(engine.state.epoch)
    )
    resumed.run()
    assert epochs == list(range((crash_iteration - 1) // 3 + 1, 5))
    assert_same(final_state(resumed), final_state(whole))
    for name in (
        "encoder.blocks.0.mlp.linear1.weight",
        "teacher_head.mlp.0.weight",
        "bank.prototypes",
    ):
        assert not torch.equal(whole.network.state_dict()[name], start[name])
    assert whole.network.state_dict()["bank.num_updates"] == 12
    assert resumed.state.iteration == whole.state.iteration == 12
    saved = torch.load(tmp_path / "parts" / "model.pt", weights_only=True)
    assert_same(saved, dict(whole.network.state_dict()))


def test_more_epochs_may_be_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_trainer(tmp_path, epochs=2).run()
    longer = make_trainer(tmp_path, epochs=3, resume=True)
    with caplog.at_level(logging.INFO):
        longer.run()
    assert (longer.state.epoch, longer.state.iteration) == (3, 9)
    assert "after epoch 2 of 3" in caplog.text
    for epochs in (3, 1):  # nothing is left to do
        caplog.clear()
        finished = make_trainer(tmp_path, seed=99, epochs=epochs, resume=True)
        finished.run()
        assert "complete already" in caplog.text
        assert_same(final_state(finished), final_state(longer))
        assert finished.state.iteration == 9


def counting_engine(folder: Path, network: nn.Module, **options: Any) -> Engine:
    """One training step adds 1 to the network's bias."""

    def step(engine: Engine, batch: int) -> None:
        network.get_parameter("bias").data += 1

    engine = Engine(step)
    ResumableCheckpoint(str(folder), network, **options).attach(engine)
    return engine


def linear(value: float = 0.0, width: int = 2) -> nn.Linear:
    network = nn.Linear(width, 1)
    network.bias.data.fill_(value)
    return network


def test_files_are_written_at_the_interval_and_at_the_end(tmp_path: Path) -> None:
    network = linear()
    engine = counting_engine(tmp_path, network, interval=2)
    seen: list[float | None] = []

    def look() -> None:
        file = tmp_path / "model.pt"
        seen.append(torch.load(file, weights_only=True)["bias"].item() if file.exists() else None)

    engine.add_event_handler(Events.EPOCH_COMPLETED, look)
    engine.run([0], max_epochs=5)
    assert seen == [None, 2.0, 2.0, 4.0, 5.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "model.pt"]


@pytest.mark.parametrize("file", ["checkpoint.pt", "model.pt"])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = linear()
    engine = counting_engine(tmp_path, network)
    save = torch.save

    def save_half(content: Any, path: Path) -> None:
        save(content, path)
        if engine.state.epoch == 2 and (file == "model.pt") == ("bias" in content):
            with Path(path).open("r+b") as half:
                half.truncate(100)
            raise CrashError

    monkeypatch.setattr(torch, "save", save_half)
    with pytest.raises(CrashError):
        engine.run([0], max_epochs=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "model.pt"]
    content = torch.load(tmp_path / file, weights_only=True)
    assert content.get("network", content)["bias"].item() == 1.0


def test_another_architecture_is_refused_and_nothing_is_loaded(tmp_path: Path) -> None:
    counting_engine(tmp_path, linear()).run([0])
    wider = linear(5.0, width=3)
    with pytest.raises(
        RuntimeError,
        match=r"weight is \(1, 2\) in the file, \(1, 3\) in the network.*without resume",
    ):
        counting_engine(tmp_path, wider, resume=True).run([0])
    assert wider.bias.item() == 5.0
    deeper = nn.Sequential(linear())
    with pytest.raises(
        RuntimeError, match=r"differences: 4, such as 0\.weight is missing in the file"
    ):
        counting_engine(tmp_path, deeper, resume=True).run([0])
    without_bias = nn.Linear(2, 1, bias=False)
    with pytest.raises(
        RuntimeError, match=r"differences: 1, such as bias is .* missing in the network"
    ):
        counting_engine(tmp_path, without_bias, resume=True).run([0])
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 1.0  # still there


def test_nothing_to_resume_is_said_and_training_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = linear()
    with caplog.at_level(logging.WARNING):
        counting_engine(tmp_path / "new" / "folder", network, resume=True).run([0], max_epochs=2)
    assert "nothing to resume" in caplog.text
    assert str(tmp_path / "new" / "folder" / "checkpoint.pt") in caplog.text
    assert network.bias.item() == 2.0


def test_unwritable_folder_is_told_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    network = linear()
    with pytest.raises(OSError, match=r"cannot write to .*file"):
        counting_engine(tmp_path / "file" / "models", network).run([0])
    assert network.bias.item() == 0.0


@pytest.mark.parametrize("free", [0, 500])
def test_a_disk_without_room_is_told_before_training(
    tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=10**9, used=0, free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    network = nn.Linear(20, 20)  # 420 numbers of 4 bytes, and 2 x 420 moments of Adam
    optimizer = torch.optim.AdamW(network.parameters())
    with pytest.raises(OSError, match=rf"the disk of {tmp_path} is too full.*free space"):
        counting_engine(tmp_path, network, objects={"optimizer": optimizer}).run([0])
    assert list(tmp_path.iterdir()) == []
    usage.free = 2 * 3 * 1680 + 1680
    counting_engine(tmp_path, network, objects={"optimizer": optimizer}).run([0])


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_save_that_fails_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    import resource

    network = nn.Linear(200, 200)
    engine = counting_engine(tmp_path, network)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit_files(engine: Engine) -> None:
        if engine.state.epoch == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))

    engine.add_event_handler(Events.EPOCH_STARTED, limit_files)
    first = network.bias[0].item() + 1
    try:
        with pytest.raises(
            OSError,
            match=r"cannot write .*checkpoint\.pt.*the last complete one stays.*--resume True",
        ):
            engine.run([0], max_epochs=3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "model.pt"]
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["network"]["bias"][0].item() == pytest.approx(first)


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    for name in (".checkpoint.pt.ab12.tmp", ".model.pt.cd34.tmp", "notes.tmp"):
        (tmp_path / name).write_text("half")
    counting_engine(tmp_path, linear()).run([0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint.pt",
        "model.pt",
        "notes.tmp",
    ]


def test_a_folder_with_the_files_of_another_run_is_refused(tmp_path: Path) -> None:
    counting_engine(tmp_path, linear(10.0)).run([0])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match=r"checkpoint\.pt is of another run.*--resume True"):
        counting_engine(tmp_path, linear(20.0)).run([0])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "checkpoint.pt").unlink()
    with pytest.raises(FileExistsError, match=r"model\.pt is of another run"):
        counting_engine(tmp_path, linear(20.0)).run([0])


class RunsCode:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_checkpoints_that_carry_code_are_refused(tmp_path: Path) -> None:
    torch.save(
        {"network": linear().state_dict(), "trainer": RunsCode(tmp_path / "owned")},
        tmp_path / "checkpoint.pt",
    )
    with pytest.raises(
        ValueError, match=r"checkpoint\.pt is refused: it contains more than tensors"
    ):
        counting_engine(tmp_path, linear(), resume=True).run([0])
    assert not (tmp_path / "owned").exists()


class Scaler:
    """Stands for a GradScaler, which needs a GPU."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.scale = state["scale"]


@pytest.mark.parametrize("scaled_before", [True, False])
@pytest.mark.parametrize("scaled_now", [True, False])
def test_scaler_is_restored(tmp_path: Path, scaled_before: bool, scaled_now: bool) -> None:
    engine: Any = counting_engine(tmp_path, linear())
    engine.scaler = Scaler(1024.0) if scaled_before else None
    engine.run([0])
    engine = counting_engine(tmp_path, linear(), resume=True)
    engine.scaler = Scaler(1.0) if scaled_now else None
    engine.run([0], max_epochs=2)
    if scaled_now:
        assert engine.scaler.scale == (1024.0 if scaled_before else 1.0)


def test_only_the_main_rank_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monai_afire.handlers.checkpoint.global_rank", lambda: 1)
    engine: Any = counting_engine(tmp_path / "models", linear())
    engine.run([0])
    assert not (tmp_path / "models").exists()


def test_save_contains_the_named_objects(tmp_path: Path) -> None:
    network = linear()
    scheduler = SimpleNamespace(
        state_dict=lambda: {"step": 7}, load_state_dict=lambda state: loaded.append(state)
    )
    loaded: list[Any] = []
    counting_engine(tmp_path, network, objects={"scheduler": scheduler}).run([0])
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert sorted(saved) == ["dealing", "network", "scheduler", "trainer"]
    counting_engine(tmp_path, linear(), objects={"scheduler": scheduler}, resume=True).run([0])
    assert loaded == [{"step": 7}]


def validating_engine(
    folder: Path, network: nn.Linear, metrics: list[float], **options: Any
) -> Engine:
    """Adds 1 to the bias in each epoch, and is validated after it with the given results."""

    def step(engine: Engine, batch: object) -> None:
        with torch.no_grad():
            network.bias += 1

    engine, validator = Engine(step), Engine(lambda engine, batch: None)
    validator.state.key_metric_name = "auc"
    validator.add_event_handler(
        Events.EPOCH_COMPLETED, lambda: validator.state.metrics.update(auc=metrics.pop(0))
    )
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: validator.run([0]))
    ResumableCheckpoint(str(folder), network, validator=validator, **options).attach(engine)
    return engine


def test_model_file_is_the_best_validation_and_the_checkpoint_the_last_epoch(
    tmp_path: Path,
) -> None:
    validating_engine(tmp_path, linear(), [0.5, 0.9, 0.7, 0.8]).run([0], max_epochs=4)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 2.0
    assert (
        torch.load(tmp_path / "checkpoint.pt", weights_only=True)["network"]["bias"].item() == 4.0
    )


def test_best_validation_is_known_after_resuming(tmp_path: Path) -> None:
    validating_engine(tmp_path, linear(), [0.5, 0.9]).run([0], max_epochs=2)
    validating_engine(tmp_path, linear(), [0.7, 0.8], resume=True).run([0], max_epochs=4)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 2.0
    validating_engine(tmp_path, linear(), [0.95], resume=True).run([0], max_epochs=5)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 5.0


def test_another_run_of_the_trainer_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    engine = validating_engine(tmp_path, linear(), [0.9, 0.2, 0.4, 0.5])
    engine.run([0], max_epochs=2)
    with pytest.raises(FileExistsError, match="of another run"):
        engine.run([0], max_epochs=2)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 1.0


def test_smaller_is_better_where_the_validator_says_so(tmp_path: Path) -> None:
    engine, validator = Engine(lambda engine, batch: None), Engine(lambda engine, batch: None)
    validator.metric_cmp_fn = lambda current, best: current < best  # as MONAI's evaluators have it
    validator.state.key_metric_name = "error"
    network, errors = linear(), [0.5, 0.2, 0.3]

    def validate() -> None:
        with torch.no_grad():
            network.bias.fill_(errors[0])
        validator.run([0])

    validator.add_event_handler(
        Events.EPOCH_COMPLETED, lambda: validator.state.metrics.update(error=errors.pop(0))
    )
    engine.add_event_handler(Events.EPOCH_COMPLETED, validate)
    ResumableCheckpoint(str(tmp_path), network, validator=validator).attach(engine)
    engine.run([0], max_epochs=3)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == pytest.approx(0.2)


def test_undefined_metric_saves_the_latest_until_one_is_defined(tmp_path: Path) -> None:
    nan = float("nan")
    validating_engine(tmp_path, linear(), [nan, nan]).run([0], max_epochs=2)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 2.0
    validating_engine(tmp_path, linear(), [0.6, nan], resume=True).run([0], max_epochs=4)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 3.0


def test_resuming_a_complete_run_writes_the_model_again(tmp_path: Path) -> None:
    """A kill between the two files of the last epoch leaves a model that is missing or one epoch old."""
    counting_engine(tmp_path, linear()).run([0], max_epochs=2)
    for stale in (None, {"weight": torch.zeros(1, 2), "bias": torch.ones(1)}):
        (tmp_path / "model.pt").unlink()
        if stale is not None:
            torch.save(stale, tmp_path / "model.pt")
        counting_engine(tmp_path, linear(), resume=True).run([0], max_epochs=2)
        assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 2.0


def test_resuming_a_complete_run_keeps_the_best_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    validating_engine(tmp_path, linear(), [0.5, 0.9, 0.7]).run([0], max_epochs=3)
    validating_engine(tmp_path, linear(), [], resume=True).run([0], max_epochs=3)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 2.0
    assert "best" not in caplog.text
    (tmp_path / "model.pt").unlink()
    validating_engine(tmp_path, linear(), [], resume=True).run([0], max_epochs=3)
    assert torch.load(tmp_path / "model.pt", weights_only=True)["bias"].item() == 3.0
    assert "network of the last epoch, not the one of the best validation" in caplog.text


@pytest.mark.parametrize("length", [2, 5])
def test_schedules_end_in_time_with_epochs_of_another_length(
    tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Another batch size."""
    counting_engine(tmp_path, linear()).run([0] * 3, max_epochs=2)
    engine, steps = counting_engine(tmp_path, linear(), resume=True), []
    engine.add_event_handler(Events.ITERATION_STARTED, lambda: steps.append(engine.state.iteration))
    with caplog.at_level(logging.INFO):
        engine.run([0] * length, max_epochs=4)
    assert steps == list(range(2 * length + 1, 4 * length + 1))
    assert (engine.state.epoch, engine.state.epoch_length) == (4, length)
    assert f"an epoch has {length} batches now, 3 in the checkpoint" in caplog.text


class Listed(list):
    """Batches of a loader that says which items it reads, as those of MONAI's data sets do."""

    def __init__(self, names: list[Path]) -> None:
        super().__init__([0] * len(names))
        self.dataset = SimpleNamespace(data=[{"image": str(name)} for name in names])


def images(folder: Path, count: int, size: int = 1) -> Listed:
    folder.mkdir()
    names = [folder / f"{number}.png" for number in range(count)]
    for name in names:
        name.write_bytes(bytes(size))
    return Listed(names)


@pytest.mark.parametrize(
    ("count", "size", "words"),
    [(3, 1, "3 training images now, 2 in"), (2, 7, "other training images of the same names")],
)
def test_a_run_on_other_images_is_refused_before_anything_is_written(
    tmp_path: Path, count: int, size: int, words: str
) -> None:
    run = tmp_path / "run"
    counting_engine(run, linear()).run(images(tmp_path / "a", 2), max_epochs=1)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    others = images(tmp_path / "b", count, size)
    with pytest.raises(RuntimeError, match=words) as caught:
        counting_engine(run, linear(), resume=True).run(others, max_epochs=2)
    for remedy in (str(run / "checkpoint.pt"), "--dataset_dir", "--encoder_weights", "--resume"):
        assert remedy in str(caught.value)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    staged = images(tmp_path / "c", 2)
    counting_engine(run, linear(), resume=True).run(staged, max_epochs=2)
    assert torch.load(run / "checkpoint.pt", weights_only=True)["trainer"]["iteration"] == 4


@pytest.mark.parametrize("now", [["Mass"], ["Nodule", "Mass"]])
def test_a_run_with_other_classes_is_refused_by_their_names(tmp_path: Path, now: list[str]) -> None:
    old = {"class_names": ["Nodule"]}
    counting_engine(tmp_path, linear(), description=old).run([0], max_epochs=1)
    new = {"description": {"class_names": now}, "resume": True}
    with pytest.raises(RuntimeError, match=rf"other classes \(Nodule.*{now[0]}.*without resume"):
        counting_engine(tmp_path, nn.Linear(1, len(now)), **new).run([0], max_epochs=2)


def test_a_run_that_fails_before_it_saves_leaves_nothing(tmp_path: Path) -> None:
    engine = counting_engine(tmp_path, linear(20.0))
    engine.add_event_handler(Events.ITERATION_STARTED, fail)
    with pytest.raises(CrashError):
        engine.run([0])
    assert list(tmp_path.iterdir()) == []


def fail() -> None:
    raise CrashError


@pytest.mark.skipif(sys.platform == "win32", reason="without locks")
def test_a_folder_that_another_run_writes_into_is_refused(tmp_path: Path) -> None:
    counting_engine(tmp_path, linear()).run([0])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / ".model.pt.ab12.tmp").write_text("what the other run is writing")
    with holding_process(tmp_path) as other:
        for resume in (False, True):
            with pytest.raises(
                RuntimeError,
                match=rf"another run is writing into .*process {other.pid} on .*--ckpt_dir",
            ):
                counting_engine(tmp_path, linear(), resume=resume).run([0])
        assert (tmp_path / ".model.pt.ab12.tmp").is_file()
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
        other.kill()
        other.wait()
    assert (tmp_path / ".lock").is_file(), "what a killed run leaves"
    counting_engine(tmp_path, linear(), resume=True).run([0], max_epochs=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "model.pt"]


@pytest.mark.slow
def test_one_flipped_bit_is_found(tmp_path: Path) -> None:
    counting_engine(tmp_path, linear()).run([0])
    file = tmp_path / "checkpoint.pt"
    whole = file.read_bytes()
    bias = torch.load(file, weights_only=True)["network"]["weight"].numpy().tobytes()
    place = whole.index(bias) + 2
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    network = linear(5.0)
    with pytest.raises(
        ValueError, match=r"checkpoint\.pt is damaged.*data/\d.*from a backup.*without resume"
    ):
        counting_engine(tmp_path, network, resume=True).run([0], max_epochs=2)
    assert network.bias.item() == 5.0
    assert (tmp_path / "model.pt").is_file()


@settings(max_examples=60)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_damaged_checkpoint_is_refused_or_read_as_it_was(place: float, bit: int) -> None:
    state = {"network": linear(3.0).state_dict(), "trainer": {"iteration": 3, "epoch_length": 1}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        torch.save(state, file)
        content = bytearray(file.read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        file.write_bytes(content)
        try:
            assert_same(read_own(file, "take another"), state)
        except ValueError as refusal:
            message = str(refusal)
        else:
            message = "checkpoint.pt: take another"
    assert "checkpoint.pt" in message
    assert message.endswith("take another")
