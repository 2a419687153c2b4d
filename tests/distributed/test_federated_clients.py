# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Clients of federated learning that are two processes each, beside clients of one with the same global batch."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from bundles.bundle_runs import TINY_ENCODER, copy_bundles
from imported_processes import start_ranks
from monai.fl.client import MonaiAlgo
from monai.fl.utils.constants import ExtraItems, FlStatistics
from monai.fl.utils.exchange_object import ExchangeObject

from distributed.two_ranks import TIMEOUT, needs_gloo
from monai_afire.apps.federated import DistributedMonaiAlgo

pytestmark = needs_gloo

BUNDLE = "radiograph_classification"
NUM_IMAGES = (16, 8)  # of the two clients, which therefore weigh 2/3 and 1/3
GLOBAL_BATCH, ROUNDS, RANKS = 8, 2, 2

Weights = dict[str, torch.Tensor]


def settings(root: Path, client: int, ranks: int) -> dict[str, Any]:
    """Nothing random but the order, and steps that do not magnify rounding."""
    phantom = {
        "num_patients": {"training": NUM_IMAGES[client], "validation": 4},
        "image_size": 32,
        "seed": client,
    }
    values: dict[str, Any] = {
        **TINY_ENCODER,
        "encoder": "vit",
        "bundle_root": str(root),
        "seed": client,
        "phantom": {**phantom, "abnormal_fraction": 0.75},
        "epochs": ROUNDS,
        "batch_size": GLOBAL_BATCH // ranks,
        "train::dataloader::min_batches": 1,
        "learning_rate": 0.1,
        "train::lr_schedule::warmup_epochs": 0,
        "train::inferer::enabled": False,
        "network_def::standardize_features": False,
        "train::warm_start::_disabled_": True,
        "augment::transforms": [],
        "optimizer": {
            "_target_": "torch.optim.SGD",
            "params": "$@network.parameters()",
            "lr": "@learning_rate",
        },
    }
    if ranks == 1:  # the order of the sampler of several
        sampler = {
            "_target_": "monai_afire.data.samplers.DistributedRandomSampler",
            "dataset": "@train::dataset",
        }
        values["train::dataloader::sampler"] = {
            **sampler,
            "seed": "@seed",
            "num_replicas": 1,
            "rank": 0,
        }
    return values


def join(folder: Path, client: int, ranks: int) -> MonaiAlgo:
    """A client, with its own copy of the bundle; or one of its processes."""
    root = folder / f"client_{client}" / "bundles" / BUNDLE
    files = ["configs/train.json"]
    algo = (DistributedMonaiAlgo if ranks > 1 else MonaiAlgo)(
        bundle_root=str(root),
        local_epochs=1,
        send_weight_diff=False,
        config_train_filename=files,
        train_kwargs=settings(root, client, ranks),
        config_evaluate_filename=files,
        eval_kwargs=settings(root, client, ranks),
    )
    algo.initialize({ExtraItems.CLIENT_NAME: f"client_{client}"})
    return algo


def average(weights: list[Weights]) -> Weights:
    """FedAvg."""
    shares = [count / sum(NUM_IMAGES) for count in NUM_IMAGES]
    return {
        name: shares[0] * weights[0][name] + shares[1] * weights[1][name] for name in weights[0]
    }


def save(value: Any, path: Path) -> None:
    torch.save(value, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def wait_for(path: Path, still_running: Callable[[], object] = lambda: None) -> Any:
    deadline = time.monotonic() + TIMEOUT
    while not path.exists():
        still_running()
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.05)
    return torch.load(path, weights_only=True)


def client_process(number: int, folder: str, ports: tuple[int, ...]) -> None:
    """One of the processes of a site: the main one exchanges files with the server, the other sees none of them."""
    client, rank = divmod(number, RANKS)
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    told |= {"MASTER_ADDR": "localhost", "MASTER_PORT": ports[client]}
    os.environ.update({name: str(value) for name, value in told.items()})
    torch.set_num_threads(1)
    site, main = Path(folder), rank == 0
    os.chdir(site)
    algo = join(site, client, RANKS)
    assert isinstance(algo, DistributedMonaiAlgo)
    rounds = 0
    while algo.from_main(rounds < ROUNDS if main else None):
        data = ExchangeObject(weights=wait_for(site / f"global_{rounds}.pt")) if main else None
        metrics = algo.evaluate(data).metrics
        algo.train(data)
        sent = algo.get_weights()
        if main:
            steps = sent.statistics[FlStatistics.NUM_EXECUTED_ITERATIONS]
            found = {"weights": sent.weights, "metrics": metrics, "steps": steps}
            save(found, site / f"client_{client}_round_{rounds}.pt")
        else:
            assert sent.weights is None
        rounds += 1
    torch.save(algo.trainer.network.module.state_dict(), site / f"client_{client}_rank_{rank}.pt")
    algo.finalize()
    assert not dist.is_initialized()


def free_ports(count: int) -> tuple[int, ...]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Bundles of two clients; the precision that they set is given back."""
    for client in range(len(NUM_IMAGES)):
        copy_bundles(tmp_path / f"client_{client}")
    monkeypatch.chdir(tmp_path)
    precision = torch.get_float32_matmul_precision()
    yield tmp_path
    torch.set_float32_matmul_precision(precision)


@pytest.mark.slow
def test_clients_of_two_processes_are_as_those_of_one(site: Path) -> None:
    single = [join(site, client, 1) for client in range(2)]
    weights: Weights = {
        name: value.clone() for name, value in single[0].get_weights().weights.items()
    }
    save(weights, site / "global_0.pt")
    context = start_ranks(client_process, str(site), free_ports(2), count=2 * RANKS)
    try:
        for number in range(ROUNDS):
            received = [
                wait_for(site / f"client_{c}_round_{number}.pt", lambda: context.join(0))
                for c in range(2)
            ]
            expected = []
            for client, found in zip(single, received, strict=True):
                metrics = client.evaluate(ExchangeObject(weights=weights)).metrics
                client.train(ExchangeObject(weights=weights))
                expected.append(
                    {name: value.clone() for name, value in client.get_weights().weights.items()}
                )
                assert found["metrics"] == pytest.approx(metrics, abs=1e-5)
            assert [found["steps"] for found in received] == [
                count // GLOBAL_BATCH for count in NUM_IMAGES
            ]
            for found, local in zip(received, expected, strict=True):
                assert (
                    max(float((local[name] - weights[name]).abs().max()) for name in local) > 1e-3
                ), "it was trained"
                torch.testing.assert_close(found["weights"], local, rtol=1e-4, atol=1e-6)
            weights = average(expected)
            save(
                average([found["weights"] for found in received]), site / f"global_{number + 1}.pt"
            )
        while not context.join(1):
            pass
    finally:
        for process in context.processes:
            process.kill()
    for client in range(2):
        first, second = (
            torch.load(site / f"client_{client}_rank_{rank}.pt", weights_only=True)
            for rank in range(2)
        )
        assert all(torch.equal(first[name], second[name]) for name in first if name != "thresholds")


def test_the_launcher_is_asked_for(site: Path) -> None:
    client = DistributedMonaiAlgo(
        "bundles/none", config_train_filename=None, config_evaluate_filename=None
    )
    with pytest.raises(RuntimeError, match="start them with torchrun"):
        client.initialize()
