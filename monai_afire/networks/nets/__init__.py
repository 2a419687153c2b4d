# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole networks."""

from __future__ import annotations

from monai_afire.networks.nets.ace import ACE
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.dino import DINO
from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import EfficientNetLiteEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.residual_encoder import ResidualEncoder
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.lung_finder import LungFinder
from monai_afire.networks.nets.mae import MAE
from monai_afire.networks.nets.peac import PEAC
from monai_afire.networks.nets.pose_classifier import PoseClassifier
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.networks.nets.transfer_network import TransferNetwork
from monai_afire.networks.nets.uper_net import UPerNet
from monai_afire.networks.nets.view_classifier import ViewClassifier

__all__ = [
    "ACE",
    "AFiRe",
    "DINO",
    "LungFinder",
    "MAE",
    "PEAC",
    "RadiographEncoder",
    "EfficientNetLiteEncoder",
    "ResidualEncoder",
    "SwinEncoder",
    "TransferClassifier",
    "TransferNetwork",
    "UPerNet",
    "ViTEncoder",
    "PoseClassifier",
    "ViewClassifier",
]
