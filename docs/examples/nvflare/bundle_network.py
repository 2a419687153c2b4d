# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The network that NVFLARE's server starts from."""

from __future__ import annotations

from monai.bundle import ConfigParser
from torch import nn


class BundleNetwork:
    """Makes the network of a bundle's train.json: what the server starts from."""

    def __new__(cls, config: str) -> nn.Module:
        """Build it from the path of the config."""
        parser = ConfigParser()
        parser.read_config(config)
        return parser.get_parsed_content("network_def")
