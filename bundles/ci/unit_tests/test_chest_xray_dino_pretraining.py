# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundle chest_xray_dino_pretraining on phantoms that it draws; run from the root of the Model Zoo."""

from __future__ import annotations

import os
import tempfile
import unittest

from monai.bundle import create_workflow

ROOT = "models/chest_xray_dino_pretraining"
NETWORK = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 24,
    "num_layers": 1,
    "num_heads": 2,
    "network_def::head_dim": 8,
    "network_def::bottleneck_dim": 4,
    "network_def::num_prototypes": 8,
}
PHANTOM = {
    "num_patients": {"training": 8, "validation": 4, "test": 4},
    "image_size": 64,
    "abnormal_fraction": 0.75,
    "seed": 0,
}
TRAIN = {"epochs": 1, "batch_size": 4, "val_interval": 1, "make_crops::local_size": 16}
OVERRIDES: tuple[dict[str, object], ...] = ({}, {"standardize": True})


def run(workflow_type: str, names: tuple[str, ...], **settings: object) -> None:
    """Run configs of the bundle as a program does, their properties checked."""
    workflow = create_workflow(
        workflow_type=workflow_type,
        config_file=[f"{ROOT}/configs/{name}.json" for name in names],
        logging_file=f"{ROOT}/configs/logging.conf",
        meta_file=f"{ROOT}/configs/metadata.json",
        bundle_root=ROOT,
        **settings,
    )
    if problems := workflow.check_properties():
        raise ValueError(f"the configs {names} lack {problems}")
    workflow.run()
    workflow.finalize()


class TestConfigs(unittest.TestCase):
    """Each config runs, with what it writes in a folder of its own."""

    def test_train_and_infer(self) -> None:
        """With the settings as they are, and with an override."""
        for override in OVERRIDES:
            with self.subTest(override=override), tempfile.TemporaryDirectory() as folder:
                images = {"phantom": PHANTOM, "phantom_dir": f"{folder}/phantom"}
                training = {**NETWORK, **TRAIN, **images, **override}
                training |= {"ckpt_dir": folder, "output_dir": f"{folder}/output"}
                run("train", ("train",), **training)
                self.assertTrue(os.path.isfile(f"{folder}/model.pt"))
                inference = {**images, "ckpt_path": f"{folder}/model.pt", "output_dir": f"{folder}/inferred"}
                run("inference", ("inference",), **inference)
                self.assertTrue(os.listdir(f"{folder}/inferred"))


if __name__ == "__main__":
    unittest.main()
