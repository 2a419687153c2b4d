# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pre-trained encoder weights: in from other formats (:func:`load_encoder_weights`), out (:func:`export_encoder`)."""

from __future__ import annotations

from monai_afire.networks.weights.description import describe
from monai_afire.networks.weights.model_file import (
    ModelFile,
    load_network,
    pretrained_afire,
    read_description,
    save_network,
    saved_network,
)
from monai_afire.networks.weights.ready_encoder import load_encoder
from monai_afire.networks.weights.released_files import released_encoder
from monai_afire.networks.weights.report import LoadReport
from monai_afire.networks.weights.starting_encoder import described, starting_encoder
from monai_afire.networks.weights.state_dict_export import export_encoder
from monai_afire.networks.weights.weight_loading import load_encoder_weights

__all__ = [
    "LoadReport",
    "ModelFile",
    "describe",
    "described",
    "pretrained_afire",
    "read_description",
    "export_encoder",
    "load_encoder",
    "load_encoder_weights",
    "load_network",
    "released_encoder",
    "save_network",
    "saved_network",
    "starting_encoder",
]
