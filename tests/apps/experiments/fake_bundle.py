# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
A bundle whose training is one number, and a program in place of ``monai.bundle run`` that starts in no time.

The program is this file: ``python fake_bundle.py --config_file FILE --key value ...``. It must import nothing slow.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import time
from pathlib import Path

TRAIN = {
    "imports": ["$import json", "$import pathlib"],
    "output_dir": "out",
    "ckpt_dir": "$@output_dir + '/models'",
    "encoder_weights": "not overridden",
    "seed": 0,
    "items": {"label_fraction": 1.0, "fold": None, "num_folds": None},
    "quality": 0.5,
    "write": "$lambda path, content: (pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True), "
    "pathlib.Path(path).write_text(json.dumps(content)))",
    "run": [
        "$@write(@ckpt_dir + '/model.json', {'seed': @seed, 'weights': @encoder_weights, 'quality': @quality, "
        "'label_fraction': @items::label_fraction, 'fold': @items::fold, 'num_folds': @items::num_folds})"
    ],
}
EVALUATE = {
    "model": "$json.loads(pathlib.Path(@ckpt_dir + '/model.json').read_text())",
    "run": [
        "$@write(@output_dir + '/metrics.json', {'mean_auc': @model['quality'] + 0.01 * @model['seed'], "
        "'num_images': 12, 'from_scratch': @encoder_weights is None, "
        "'trained_with': @model, 'seed_seen': @seed})"
    ],
}


def write_bundle(folder: Path) -> str:
    """The bundle on disk; the path of its train.json."""
    configs = folder / "bundle" / "configs"
    configs.mkdir(parents=True)
    (configs / "train.json").write_text(json.dumps(TRAIN))
    (configs / "evaluate.json").write_text(json.dumps(EVALUATE))
    return str(configs / "train.json")


def main(words: list[str]) -> None:
    options = dict(zip(words[::2], words[1::2], strict=True))
    evaluating = options["--config_file"].startswith("[")
    files = ast.literal_eval(options["--config_file"]) if evaluating else [options["--config_file"]]
    assert Path(files[-1]).name == ("evaluate.json" if evaluating else "train.json")
    folder = Path(options["--output_dir"])
    models = folder / "models"
    is_random = "--encoder_def::pretrained" in options
    seed, weights = (
        int(options["--seed"]),
        "$None" if is_random else options.get("--encoder_weights", ""),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit((folder / "terminated").write_text("")))
    environment = {
        "threads": os.environ["OMP_NUM_THREADS"],
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    with open(options["--calls"], "a") as calls:  # an append of one line is atomic
        calls.write(json.dumps({"folder": folder.name, "options": options, **environment}) + "\n")
    print(f"training with {weights}\rstep 1\rstep 2")
    broken = options.get("--broken") == folder.name
    if broken and options["--how"] == "exit":
        sys.exit("Traceback of many lines\nThe cause: no such label\n\n")
    if broken and options["--how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(options.get("--sleep", 0)))
    if not evaluating:
        models.mkdir(exist_ok=True)
        (models / "model.json").write_text(json.dumps(seed))
        (models / "model.pt").write_bytes(b"weights")
    elif not broken:
        assert json.loads((models / "model.json").read_text()) == seed
        fraction = float(options.get("--items::label_fraction", 1))
        value = (
            0.9 * fraction**0.1
            - 0.2 * (weights == "$None")
            + 0.003 * (seed * (seed + 1)) * (1 + len(weights) % 3)
        )
        figures = {
            "mean_auc": value,
            "num_images": 12,
            "per_class": {"Mass": {"auc": value / 2}},
            "undefined": None,
        }
        (folder / "metrics.json").write_text(json.dumps(figures))
    elif options["--how"] == "garbage":
        (folder / "metrics.json").write_text('{"mean_auc": ')


if __name__ == "__main__":
    main(sys.argv[1:])
