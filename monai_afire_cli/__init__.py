# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
The command ``monai-afire``: finds, copies, explains and starts the bundles that come with ``monai_afire``.

It is a package of its own because ``import monai_afire`` loads all components, as short names in MONAI's configs need,
and with them MONAI and PyTorch: several seconds in which ``monai-afire --help`` would say nothing. Here only the
standard library is imported.
"""

from __future__ import annotations

from monai_afire_cli.bundles import bundles_folder
from monai_afire_cli.command import main

__all__ = ["bundles_folder", "main"]
