# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks for other programs: ONNX and torch.export, and encoders by the names of other libraries."""

from __future__ import annotations

from monai_afire.apps.exchange.encoder_export import export_encoder
from monai_afire.apps.exchange.network_export import export_network

__all__ = ["export_encoder", "export_network"]
