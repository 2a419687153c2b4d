# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the tests of the bundles share: each config runs on phantoms that it draws, from the root of the Model Zoo."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

from monai.bundle import create_workflow

NETWORK = {
    "image_size": 32,
    "patch_size": 8,
    "encoder_def::hidden_size": 24,
    "encoder_def::num_layers": 1,
    "encoder_def::num_heads": 2,
}
PHANTOM = {"num_patients": {"training": 8, "validation": 4, "test": 4}, "image_size": 64, "seed": 0}
ABNORMAL = {"training": 0.0, "validation": 0.5, "test": 0.5}
TRAIN = {"epochs": 1, "batch_size": 4, "train::run::val_interval": 1}
OVERRIDES: tuple[dict[str, Any], ...] = ({}, {"standardize": True})


class BundleTest:
    """
    Train, evaluate where the bundle has labels, and infer, each with the settings as they are and with an override.

    A test of a bundle is this class and :class:`unittest.TestCase`, with values for the attributes.

    Attributes:
        name: of the bundle in the zoo.
        settings: of a network and a training that are small, added to those above.
        brings_weights: whether inference uses weights that come with the bundle, instead of those just trained.
        evaluates: whether evaluate.json belongs to the training config.
    """

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]] = {}
    brings_weights: ClassVar[bool] = False
    evaluates: ClassVar[bool] = False

    def run_configs(self, workflow_type: str, *names: str, **settings: Any) -> None:
        """Run configs of the bundle as a program does, their properties checked."""
        root = f"models/{self.name}"
        workflow = create_workflow(
            workflow_type=workflow_type,
            config_file=[f"{root}/configs/{name}.json" for name in names],
            logging_file=f"{root}/configs/logging.conf",
            meta_file=f"{root}/configs/metadata.json",
            bundle_root=root,
            **settings,
        )
        if problems := workflow.check_properties():
            raise ValueError(f"the configs {names} lack {problems}")
        workflow.run()
        workflow.finalize()

    def test_configs(self: Any) -> None:
        """Each config runs, with what it writes in a folder of its own."""
        for override in OVERRIDES:
            with self.subTest(override=override), tempfile.TemporaryDirectory() as folder:
                self.run_all(folder, override)

    def run_all(self: Any, folder: str, override: Mapping[str, Any]) -> None:
        """Train, evaluate and infer below a folder."""
        phantom = {**PHANTOM, "abnormal_fraction": 0.75 if self.evaluates else ABNORMAL}
        images = {"phantom": phantom, "items::phantom::folder": f"{folder}/phantom"}
        training = {**NETWORK, **TRAIN, **self.settings, **images, **override}
        model = f"{folder}/run/models/model.pt"
        training["output_dir"] = f"{folder}/run"
        self.run_configs("train", "train", **training)
        self.assertTrue(os.path.isfile(model))
        if self.evaluates:
            known = {
                name: value
                for name, value in training.items()
                if not name.startswith("network_def::")
            }
            known |= {"weights": model, "output_dir": f"{folder}/evaluated"}
            self.run_configs("train", "train", "evaluate", **known)
            self.assertTrue(os.path.isfile(f"{folder}/evaluated/metrics.json"))
        inference = {**images, "output_dir": f"{folder}/inferred"}
        if not self.brings_weights:
            inference["weights"] = model
        self.run_configs("inference", "inference", **inference)
        self.assertTrue(os.listdir(f"{folder}/inferred"))
