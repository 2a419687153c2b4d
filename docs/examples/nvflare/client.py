# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A client of NVFLARE that trains a bundle with MONAI's ``MonaiAlgo``."""

from __future__ import annotations

import argparse

import nvflare.client as flare
from monai.fl.client import MonaiAlgo
from monai.fl.utils.constants import ExtraItems
from monai.fl.utils.exchange_object import ExchangeObject

parser = argparse.ArgumentParser()
parser.add_argument("--bundles", required=True)
bundles = parser.parse_args().bundles

flare.init()
site = flare.get_site_name()
root = f"{bundles}/{site}/afire"  # each site has its own copy, so that runs do not overwrite each other
settings = {
    "bundle_root": root,
    "output_dir": f"{root}/output",
    "items::phantom::folder": f"{root}/data/phantom",
    # rounds x local epochs: the schedules run over all rounds
    "train::lr_schedule::epochs": 2,
    "train::weight_decay_schedule::epochs": 2,
    "train::teacher_decay_schedule::epochs": 2,
    # replace the next two lines with the images of the site: "dataset_dir", "datalist"
    "phantom::seed": int(site.rsplit("-", 1)[-1]),
    "phantom::num_patients": {"training": 32, "validation": 8},
    "train::run::val_interval": 1,
}
algo = MonaiAlgo(
    bundle_root=root,
    local_epochs=1,
    send_weight_diff=False,
    train_kwargs=dict(settings),
    config_evaluate_filename="configs/train.json",
    eval_kwargs=dict(settings),
)
algo.initialize({ExtraItems.CLIENT_NAME: site})
while flare.is_running():
    message = flare.receive()
    # the first round starts from the seed's weights
    weights = message.params or algo.get_weights().weights
    metrics = algo.evaluate(ExchangeObject(weights=weights)).metrics
    algo.train(ExchangeObject(weights=weights))
    images = len(algo.train_workflow.train_dataset_data)
    flare.send(
        flare.FLModel(
            params=algo.get_weights().weights,
            metrics={name: float(value) for name, value in metrics.items()},
            meta={"NUM_STEPS_CURRENT_ROUND": images},  # the weight in the average
        )
    )
algo.finalize()
