# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options for speed of the pre-training bundles: no wait for the device, gradient accumulation, compilation."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from torch.utils._python_dispatch import TorchDispatchMode

from integration.bundle_runs import config
from integration.tiny_runs import CONFIGS, PRE_TRAINING, tiny, train, written
from monai_afire.handlers import NonFiniteLoss
from monai_afire.networks import ACE
from monai_afire.transforms.lesion_synthesis import synth_lesion_mask

RUN = {"epochs": 2, "train::run::val_interval": 2, "train::lr_schedule::warmup_epochs": 0}
FEW = {
    "phantom::abnormal_fraction": 0.0,
    "phantom::num_patients": {"training": 12, "validation": 4},
    "items::phantom::folder": "phantom",
}

# what makes the host wait for a GPU: numbers read from it, shapes that depend on values, numbers copied to it
BLOCKING = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.equal.default,
    torch.ops.aten._unique2.default,
    torch.ops.aten.repeat_interleave.Tensor,
    torch.ops.aten.lift_fresh.default,
}


class BlockingOperations(TorchDispatchMode):
    """Notes every operation for which the host would have to wait for a GPU, and where it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        is_mask = func is torch.ops.aten.index.Tensor and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if func in BLOCKING or is_mask:
            self.found.append(f"{func}\n" + "".join(traceback.format_stack(limit=12)[:-2]))
        return func(*args, **(kwargs or {}))


@contextmanager
def cuda_refuses_to_wait() -> Iterator[None]:
    """CUDA raises where the host would wait."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def bundle_parser(method: str, *overlays: str, **overrides: Any) -> ConfigParser:
    """The method's training bundle, tiny."""
    return config(method, "train", *overlays, **{**tiny(method), **FEW, **RUN, **overrides})


def watch_steps(
    trainer: Engine, guard: Callable[[], AbstractContextManager], first: int = 2
) -> None:
    """
    Hold the guard over each iteration from the first one named: preparation, step and handlers, but not the loader.

    The first step is left out: an optimizer makes its state then.
    """
    held: list[AbstractContextManager] = []

    def enter(engine: Engine) -> None:
        if engine.state.iteration + 1 >= first:  # counted up after the batch was fetched
            held.append(guard())
            held[-1].__enter__()

    def leave(engine: Engine) -> None:
        if held:
            held.pop().__exit__(None, None, None)

    trainer.add_event_handler(Events.GET_BATCH_COMPLETED, enter)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, leave)


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, overlays: list[str]) -> dict[str, Any]:
    """Without the checks of values that are made on a CPU only; overrides for a GPU's way of drawing lesions."""
    monkeypatch.setattr(ACE, "_check_shift", lambda *_: None)
    monkeypatch.setattr(synth_lesion_mask, "check_image_range", lambda *_, **__: None)
    # reads a copy that has come to the host meanwhile
    monkeypatch.setattr(NonFiniteLoss, "check", lambda *_: None)
    return {"train::prepare_batch::backend": "dense"} if "lesions_on_device" in overlays else {}


CASES = [
    (method, overlays)
    for method in PRE_TRAINING
    for overlays in ([], ["lesions_on_device"])
    if all((CONFIGS[method] / f"{name}.json").is_file() for name in overlays)
]


def logged_every(steps: int) -> dict[str, Any]:
    return {"train::run::record_interval": steps}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "overlays"), CASES)
def test_steps_and_handlers_do_not_wait_for_the_device(
    monkeypatch: pytest.MonkeyPatch, method: str, overlays: list[str]
) -> None:
    # two epochs of three steps; values are fetched for the log in every fourth and in the last of an epoch
    settings = {**logged_every(4), "accumulation_steps": 2, **as_on_a_gpu(monkeypatch, overlays)}
    trainer = bundle_parser(method, *overlays, **settings).get_parsed_content("train::trainer")
    guards: list[BlockingOperations] = []

    def guard() -> BlockingOperations:
        guards.append(BlockingOperations())
        return guards[-1]

    watch_steps(trainer, guard)
    trainer.run()
    found = {number: guard.found for number, guard in enumerate(guards, start=2)}
    assert sorted(found) == [2, 3, 4, 5, 6]
    waiting = {number: operations for number, operations in found.items() if operations}
    recorded = [3, 4, 6]
    assert list(waiting) == recorded, next(
        (ops[0] for number, ops in waiting.items() if number not in recorded), "nothing was logged"
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("method", "overlays"), CASES)
def test_cuda_does_not_wait(method: str, overlays: list[str]) -> None:
    parser = bundle_parser(method, *overlays, device="cuda", **logged_every(100))
    trainer = parser.get_parsed_content("train::trainer")
    watch_steps(trainer, cuda_refuses_to_wait)
    trainer.run()


@pytest.mark.slow
@pytest.mark.parametrize("method", PRE_TRAINING)
def test_schedules_end_at_the_end_and_teachers_follow_optimizer_steps(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    # three iterations per epoch, two of which step
    parser = bundle_parser(method, accumulation_steps=2)
    network, optimizer = (parser.get_parsed_content(name) for name in ("network_def", "optimizer"))
    trainer = parser.get_parsed_content("train::trainer")
    steps, updates, decays = [], [], []
    optimizer.register_step_post_hook(lambda *_: steps.append(optimizer.param_groups[0]["lr"]))
    has_teacher = hasattr(network, "update_teacher")
    move = getattr(network, "update_teacher", None)

    def update_teacher() -> None:
        updates.append(trainer.state.iteration)
        decays.append(network.teacher_decay)
        move()

    monkeypatch.setattr(network, "update_teacher", update_teacher, raising=has_teacher)
    trainer.run()
    assert updates == ([2, 3, 5, 6] if has_teacher else [])
    assert len(steps) == 4
    assert steps[-1] == pytest.approx(parser["train::lr_schedule::end"])
    assert steps[0] > steps[1] > steps[2] > steps[3]
    assert not has_teacher or decays[-1] == pytest.approx(1.0)
    memory = {"afire": "bank.momentum", "ace": "center_momentum", "dino": "center_momentum"}.get(
        method
    )
    if memory is not None:  # as long in optimizer steps as without accumulation
        owner = network.bank if method == "afire" else network
        assert getattr(owner, memory.split(".")[-1]) ** 2 == pytest.approx(0.9)


@pytest.mark.slow
def test_a_compiled_run_saves_what_an_ordinary_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, compile_network = [], torch.compile

    def count(network: torch.nn.Module, **options: Any) -> Any:
        compiled.append(type(network).__name__)
        return compile_network(network, **options)

    monkeypatch.setattr(torch, "compile", count)
    settings = {**FEW, **RUN}
    train("afire", **settings, name="ordinary")
    # "eager" runs the captured graphs without a C++ compiler
    eager = {
        "train::trainer::compile": True,
        "train::trainer::compile_kwargs": {"backend": "eager"},
    }
    train("afire", **settings, **eager, name="compiled")
    assert compiled == ["AFiRe"]
    expected, weights = (
        torch.load(written("afire", name, "model.pt"), weights_only=True)
        for name in ("ordinary", "compiled")
    )
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", PRE_TRAINING)
def test_networks_compile_into_one_graph(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch, [])
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    parser = bundle_parser(method)
    network = parser.get_parsed_content("network_def")
    images, variants = torch.rand(2, 1, 32, 32), torch.rand(2, 2, 1, 32, 32)
    order, offset = torch.arange(16).expand(2, 16), torch.zeros(2, 2, dtype=torch.int64)
    batch = {
        "afire": (images, variants, variants),
        "peac": (images, images, images, order, torch.zeros(2, dtype=torch.bool), offset, offset),
        "ace": (images, images, offset, offset),
        "mae": (images, torch.tensor([[0, 2, 3, 9], [1, 2, 3, 15]])),
        "dino": (variants, variants[..., :16, :16]),
    }[method]
    outputs = torch.compile(network, backend="eager", fullgraph=True)(*batch)
    assert outputs.keys() == network(*batch).keys()
