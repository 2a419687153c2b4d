# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Experiment tracking by MLflow, through the option of ``python -m monai.bundle run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bundles.bundle_runs import (
    TINY,
    TINY_ENCODER,
    at,
    copy_bundles,
    last_run,
    train_in_process,
)

mlflow = pytest.importorskip("mlflow")
pytest.importorskip(
    "alembic", reason="MLflow keeps its records in SQLite by alembic and SQLAlchemy"
)

PHANTOM = {"num_patients": {"training": 8, "validation": 4, "test": 4}, "image_size": 64, "seed": 0}
RUN = {
    "epochs": 2,
    "batch_size": 4,
    "train::run::val_interval": 1,
    "train::run::record_interval": 1,
}
TASK = {**TINY_ENCODER, "encoder": "vit", "train::dataloader::min_batches": 2}
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "afire": (
        TINY,
        {"total", "structure", "category", "restoration", "restoration_gain", "position_accuracy"},
    ),
    "peac": (
        {**TINY_ENCODER, "grid": 6, **at("network_def", expander_dim=8, expander_hidden_dim=16)},
        {"total", "order", "restoration"},
    ),
    "ace": (
        {**TINY_ENCODER, "grid": 10, "cell": 4},
        {"total", "composition", "composition_accuracy"},
    ),
    "mae": (
        {**TINY_ENCODER, **at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2)},
        {"total", "reconstruction_gain"},
    ),
    "dino": (
        {
            **TINY_ENCODER,
            "make_crops::local_size": 16,
            **at("network_def", head_dim=8, bottleneck_dim=4, num_prototypes=8),
        },
        {"total", "divergence", "entropy", "crop_accuracy"},
    ),
    "radiograph_classification": (TASK, {"loss", "mean_auc"}),
    "radiograph_segmentation": ({**TASK, "network_def::channels": 8}, {"loss", "mean_dice"}),
    "radiograph_landmarks": ({**TASK, "network_def::channels": 8}, {"loss", "mean_radial_error"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", CASES)
def test_losses_and_metrics_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: str
) -> None:
    monkeypatch.chdir(copy_bundles(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings, expected = CASES[bundle]
    phantom = {**PHANTOM, "abnormal_fraction": 0.0 if bundle == "afire" else 0.75}
    train_in_process(
        f"bundles/{bundle}/configs/train.json",
        {**settings, **RUN, "phantom": phantom, "tracking": "mlflow"},
    )
    database = tmp_path / last_run(bundle) / "mlruns.db"
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
    (run,) = client.search_runs(
        [experiment.experiment_id for experiment in client.search_experiments()]
    )
    assert run.info.status == "FINISHED"
    assert expected | {"learning_rate"} <= set(run.data.metrics)
    loss = client.get_metric_history(run.info.run_id, "loss" if "loss" in expected else "total")
    assert [entry.step for entry in loss] == [1, 2, 3, 4]
    assert run.data.params == {"max_epochs": "2", "epoch_length": "2"}
    assert [file.path for file in client.list_artifacts(run.info.run_id)], (
        "the config of the run is kept"
    )
