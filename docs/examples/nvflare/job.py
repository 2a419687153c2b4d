# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Two rounds of federated averaging of AFiRe on two simulated sites: ``PYTHONPATH=. python job.py``."""

from __future__ import annotations

import os
import shutil

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv

for site in ("site-1", "site-2"):
    shutil.copytree("bundles/afire", f"federation/{site}/afire", dirs_exist_ok=True)
recipe = FedAvgRecipe(
    name="afire",
    min_clients=2,
    num_rounds=2,
    model={
        "class_path": "bundle_network.BundleNetwork",
        "args": {"config": os.path.abspath("bundles/afire/configs/train.json")},
    },
    train_script="client.py",
    train_args=f"--bundles {os.path.abspath('federation')}",
    server_expected_format="pytorch",
    key_metric="restoration_gain",
)
run = recipe.execute(SimEnv(num_clients=2, workspace_root="federation/workspace"))
print("status", run.get_status(), "result", run.get_result())
