# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders and classifiers of one architecture with the weights that a report compares."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from monai_afire.data.datalist.names import saved_class_names
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.networks.weights import load_encoder_weights, load_network
from monai_afire.utils.saved_options import read_options

__all__ = ["classifiers_of", "encoders_of"]


def encoders_of(
    encoder: RadiographEncoder,
    weights: Mapping[str, str | None],
    branch: str = "teacher",
    device: torch.device | str = "cpu",
) -> dict[str, RadiographEncoder]:
    """
    Copies of an encoder with different weights, to be compared.

    Args:
        encoder: the architecture; untouched.
        weights: by the name to show, a file for :func:`monai_afire.networks.load_encoder_weights` (of AFiRe, PEAC, ACE,
            timm, DINO, MAE, Hugging Face), or None for the encoder as it is: untrained.
        branch: "teacher" or "student", for files that hold both.
        device: where the encoders work.

    Returns:
        The encoders by name, in evaluation mode.

    Raises:
        ValueError: without any name, or for a file that does not fit the architecture.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> list(encoders_of(encoder, {"untrained": None}))
        ['untrained']
    """
    if not weights:
        raise ValueError('no encoder is named: give weights, e.g. {"AFiRe": "model.pt", "untrained": None}')
    named = {}
    for name, path in weights.items():
        named[name] = copy.deepcopy(encoder)
        if path is not None:
            load_encoder_weights(named[name], path, branch=branch)
        named[name].to(device).eval()
    return named


def classifiers_of(
    encoder: RadiographEncoder, weights: Mapping[str, str], device: torch.device | str = "cpu"
) -> dict[str, TransferClassifier]:
    """
    Classifiers that were fine-tuned by the bundle ``radiograph_classification``, to be compared.

    Args:
        encoder: the architecture that they were fine-tuned with; untouched.
        weights: the file of each by the name to show; the names of its classes lie beside it.
        device: where the classifiers work.

    Returns:
        The classifiers by name, in evaluation mode.

    Raises:
        ValueError: when the names of the classes are missing.
        RuntimeError: when a file is missing or does not fit.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> classifiers_of(encoder, {})
        {}
    """
    classifiers = {}
    for name, path in weights.items():
        standardized = read_options(path).get("standardize_features") is not False
        network = TransferClassifier(
            copy.deepcopy(encoder), num_classes=len(saved_class_names(path)), standardize_features=standardized
        )
        load_network(network, path, "fine-tune with bundles/radiograph_classification first")
        classifiers[name] = network.to(device).eval()
    return classifiers
