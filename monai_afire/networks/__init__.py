# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks: ``blocks`` to build with, whole ``nets``, and ``weights`` to load into them."""

from __future__ import annotations

from monai_afire.networks.blocks.composition_heads import Composer, Decomposer
from monai_afire.networks.blocks.heads import DistillationHead
from monai_afire.networks.blocks.patches import patch_labels, patchify, unpatchify
from monai_afire.networks.blocks.prototype_bank import PrototypeBank
from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder
from monai_afire.networks.blocks.sinkhorn import sinkhorn_knopp
from monai_afire.networks.blocks.token_head import TokenProbabilityHead
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.ace import ACE
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.dino import DINO
from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import EfficientNetLiteEncoder
from monai_afire.networks.nets.encoders.encoder_building import build_encoder
from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.monai_encoder import MONAIEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.residual_encoder import ResidualEncoder
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.lung_finder import LungFinder
from monai_afire.networks.nets.mae import MAE
from monai_afire.networks.nets.peac import PEAC
from monai_afire.networks.nets.pose_classifier import PoseClassifier
from monai_afire.networks.nets.raw_pixels import RAW_PIXELS, RawPixels, with_raw_pixels
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.networks.nets.uper_net import UPerNet
from monai_afire.networks.nets.view_classifier import ViewClassifier
from monai_afire.networks.weights.finding import find_weights
from monai_afire.networks.weights.model_file import ModelFile, save_network
from monai_afire.networks.weights.pretrained import (
    described,
    load_encoder,
    seen_images,
    starting_encoder,
)
from monai_afire.networks.weights.pretrained_afire import pretrained_afire
from monai_afire.networks.weights.weight_loading import load_encoder_weights

__all__ = [
    "ACE",
    "AFiRe",
    "Composer",
    "DINO",
    "Decomposer",
    "DistillationHead",
    "EfficientNetLiteEncoder",
    "HuggingFaceEncoder",
    "LungFinder",
    "MAE",
    "MONAIEncoder",
    "ModelFile",
    "PEAC",
    "PoseClassifier",
    "PrototypeBank",
    "RAW_PIXELS",
    "RadiographEncoder",
    "RawPixels",
    "ResidualEncoder",
    "RestorationDecoder",
    "SwinEncoder",
    "TimmEncoder",
    "TokenProbabilityHead",
    "TransferClassifier",
    "UPerNet",
    "ViTEncoder",
    "ViewClassifier",
    "as_encoder",
    "build_encoder",
    "described",
    "find_weights",
    "keeps_arguments",
    "load_encoder",
    "load_encoder_weights",
    "patch_labels",
    "patchify",
    "pretrained_afire",
    "save_network",
    "sinkhorn_knopp",
    "seen_images",
    "starting_encoder",
    "unpatchify",
    "with_raw_pixels",
]
