# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A loss that is no number stops the run with the names of the images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from monai.data import DataLoader, Dataset, MetaTensor
from monai.engines import SupervisedTrainer
from torch import nn

from monai_afire.handlers import NonFiniteLoss
from monai_afire.handlers.nonfinite_loss import batch_files


class Loss(nn.Module):
    """Mean square with terms, as the methods' losses have them."""

    terms: dict[str, torch.Tensor]

    def forward(self, pred: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        value = ((pred - label) ** 2).mean()
        self.terms = {"square": value.detach()}
        return value


def make_trainer(
    folder: Path, fault: Any, learning_rate: float = 0.1, named: bool = True
) -> SupervisedTrainer:
    """Six images in batches of two; `fault` is a pixel of the fourth."""
    items = [{"image": torch.ones(3), "label": torch.ones(1), "file": f"{i}.png"} for i in range(6)]
    items[3]["image"] = torch.tensor([1.0, fault, 1.0])
    if not named:
        items = [{"image": item["image"], "label": item["label"]} for item in items]
    network = nn.Linear(3, 1)
    return SupervisedTrainer(
        device="cpu",
        max_epochs=2,
        train_data_loader=DataLoader(Dataset(items), batch_size=2),
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=learning_rate),
        loss_function=Loss(),
        train_handlers=[NonFiniteLoss(str(folder), network)],
        decollate=False,
    )


@pytest.mark.parametrize("fault", [float("nan"), float("inf"), -float("inf")])
def test_fault_is_named_and_kept_before_it_spreads(tmp_path: Path, fault: float) -> None:
    trainer = make_trainer(tmp_path, fault)
    words = r"the loss is (nan|inf) in iteration 2 \(epoch 1\): square (nan|inf).*2\.png, 3\.png.*nonfinite_loss\.pt"
    with pytest.raises(FloatingPointError, match=words):
        trainer.run()
    weights = trainer.network.state_dict()
    assert all(bool(value.isfinite().all()) for value in weights.values())
    dump = torch.load(tmp_path / "nonfinite_loss.pt", weights_only=True)
    assert dump["files"] == ["2.png", "3.png"]
    assert dump["files_before"] == ["0.png", "1.png"]
    assert (dump["iteration"], dump["epoch"]) == (2, 1)
    network = nn.Linear(3, 1)
    network.load_state_dict(dump["network"])
    assert not Loss()(network(dump["batch"]["image"]), dump["batch"]["label"]).isfinite(), (
        "the dump repeats the fault"
    )
    assert "2.png, 3.png" in (tmp_path / "nonfinite_loss.txt").read_text()


def test_a_good_run_is_left_alone(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "new", 1.0)
    trainer.run()
    assert trainer.state.iteration == 6
    assert not (tmp_path / "new").exists()


def test_a_gradient_that_broke_the_weights_is_blamed_on_its_own_batch(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, 1.0, learning_rate=float("inf"))
    with pytest.raises(
        FloatingPointError,
        match=r"not finite since the step before.*Images of the batch: 0\.png, 1\.png",
    ):
        trainer.run()


def test_unknown_names_and_an_unwritable_folder_do_not_hide_the_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        FloatingPointError,
        match=r"No 'file' in the batch.*could not be written to .*nonfinite_loss\.pt",
    ):
        make_trainer(tmp_path / "file", float("nan"), named=False).run()


def test_other_ranks_write_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monai_afire.handlers.nonfinite_loss.global_rank", lambda: 2)
    trainer = make_trainer(tmp_path, float("nan"))
    with pytest.raises(FloatingPointError):
        trainer.run()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "nonfinite_loss_rank2.pt",
        "nonfinite_loss_rank2.txt",
    ]


def test_names_of_a_batch() -> None:
    images = MetaTensor(torch.zeros(2, 1, 4, 4), meta={"filename_or_obj": ["a.png", "b.png"]})
    assert batch_files({"image": images}) == ["a.png", "b.png"]
    assert batch_files({"image": images, "file": ["c.png", "d.png"]}) == ["c.png", "d.png"]
    assert batch_files({"image": MetaTensor(torch.zeros(1))}) == []
    assert batch_files({"file": "one.png"}) == ["one.png"]
    assert batch_files([torch.zeros(1)]) == []
