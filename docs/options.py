# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writes docs/options.md, the page of all options, from their declarations and the bundles' configs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monai_afire.options import OPTIONS, SECTIONS, describe_default

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "options.md"
BUNDLES = {
    "afire": "AFiRe",
    "peac": "PEAC",
    "ace": "ACE",
    "mae": "MAE",
    "dino": "DINO",
    "radiograph_classification": "Classification",
    "radiograph_segmentation": "Segmentation",
    "radiograph_landmarks": "Landmarks",
}
# the order in which a reader meets them
CONFIGS = [
    *("train", "multi_gpu_train", "paper", "paper_vit", "radiograph", "vit_b", "swin_b"),
    *("paper_afire", "paper_peac", "paper_ace", "finetune_anomaly"),
    *("inference", "evaluate", "restore", "analysis"),
]
HEAD = """# Options

<!-- written by docs/options.py: change monai_afire/options or the bundles' configs, and run it -->

Every value at the top of a bundle's config is an option of its command, see [Configuration](configuration.md). They are
checked before anything is built or written: an option that does not exist or that nothing reads, or a value that it
cannot have, ends the run with an error that names all of them and the remedy. A run lists its own with

```bash
python -m monai.bundle run --config_file bundles/afire/configs/train.json --help
```

Switches are `true` or `false` (also `yes`, `no`, `1`, `0`). What may be null takes the word `null` on the command line.

What has a word under *In the weights* is saved with them, and later runs take it from there
([Configuration](configuration.md#what-travels-with-the-weights)): *for all* that uses their encoder, *for the network*
where that goes on as a whole, *for results* where it is used as it is.

## What they do
"""
DEFAULTS = """
## Defaults

One column for each config: `train` and `inference` are given alone, the others after one of the two in `--config_file`.
An empty cell leaves the value as it is. `@name` is the value of another option; longer expressions are in the config.
"""
LONGEST_DEFAULT = 60
_TRAVELS = {"encoder": "for all", "network": "for the network", "result": "for results", "names": "for reference"}


def options_page() -> str:
    """The page in Markdown."""
    parts = [HEAD]
    for section, options in SECTIONS.items():
        rows = [
            (f"`{option.name}`", option.meaning, option.values, _TRAVELS.get(option.travels or "", ""))
            for option in options
        ]
        parts += [f"### {section}\n", _table(("Option", "Meaning", "Values", "In the weights"), rows)]
    parts.append(DEFAULTS)
    for folder, title in BUNDLES.items():
        parts += [f"### {title}\n", _defaults(ROOT / "bundles" / folder / "configs")]
    return "\n".join(parts)


def _defaults(folder: Path) -> str:
    paths = {name: folder / f"{name}.json" for name in CONFIGS}
    configs = {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}
    configs = {name: config for name, config in configs.items() if OPTIONS.keys() & config.keys()}
    rows = []
    for name in OPTIONS:
        values = [_cell(config[name]) if name in config else "" for config in configs.values()]
        if any(values):
            rows.append((f"`{name}`", *values))
    return _table(("Option", *(f"`{name}`" for name in configs)), rows)


def _cell(value: Any) -> str:
    text = describe_default(value)
    return (
        f"`{text}`" if len(text) <= LONGEST_DEFAULT else "*computed*" if isinstance(value, str) else "*in the config*"
    )


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
