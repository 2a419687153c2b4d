# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""All options of the bundles, by section and by name."""

from __future__ import annotations

from monai_afire.options.method_options import METHOD_SECTIONS
from monai_afire.options.option import Option
from monai_afire.options.run_options import RUN_SECTIONS

__all__ = ["OPTIONS", "SECTIONS"]

SECTIONS: dict[str, tuple[Option, ...]] = {**RUN_SECTIONS, **METHOD_SECTIONS}
OPTIONS: dict[str, Option] = {option.name: option for options in SECTIONS.values() for option in options}
