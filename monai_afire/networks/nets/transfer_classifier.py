# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Classification of radiographs with a pre-trained encoder."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.networks.blocks.transformer import init_linear
from monai_afire.networks.definition import keeps_arguments
from monai_afire.networks.nets.transfer_network import TransferNetwork
from monai_afire.utils.precision import without_autocast
from monai_afire.utils.uncertain_labels import check_label_kind


@keeps_arguments
class TransferClassifier(TransferNetwork):
    r"""
    One linear layer on the mean token of an encoder: fine-tuning, or with a frozen encoder a linear probe.

    .. math:: \text{logits} = W \cdot \text{dropout}\Big(s\Big(\frac{1}{L} \sum_{j=1}^{L} z_j\Big)\Big) + b

    for the encoder's tokens :math:`z_j`. Mean tokens of radiographs are nearly the same for all, as radiographs are;
    s, a batch normalization without parameters of its own, takes off what they share and brings what is left to unit
    variance. Without it the linear layer learns hundreds of steps before it sees a difference.

    There is no sigmoid or softmax, so it serves several findings per image (``BCEWithLogitsLoss``) as well as exclusive
    classes (``CrossEntropyLoss``). The buffer ``thresholds`` holds, per finding, the probability from which it is
    called present: 0.5 until :class:`monai_afire.handlers.ThresholdFit` chooses it on validation images. Exclusive
    classes have none, that is NaN, by which saved weights tell what they were trained for.

    Args:
        encoder: used as it is, not copied; pre-trained weights come from ``load_encoder_weights``.
        num_classes: number of findings or classes.
        freeze_encoder: train the linear layer only, see :class:`TransferNetwork`.
        dropout_rate: dropout of the mean token.
        standardize_features: whether there is s; training then needs batches of 2 or more. False is the plain linear
            layer on the mean token, as the papers print it.
        label_kind: "multilabel" (findings) or "multiclass" (exclusive classes), which changes the thresholds alone.

    Raises:
        TypeError: when the encoder is none, see :func:`monai_afire.networks.as_encoder`.
        ValueError: when there is no class (of exclusive ones: fewer than two), or the kind of labels is unknown; in
            training, for a batch of one image that is to be standardized.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=2, num_heads=2)
        >>> classifier = TransferClassifier(encoder, num_classes=14)
        >>> images = torch.rand(2, 1, 32, 32)
        >>> classifier(images).shape, classifier.features(images).shape
        (torch.Size([2, 14]), torch.Size([2, 24]))
        >>> probe = TransferClassifier(encoder, num_classes=14, freeze_encoder=True)
        >>> [name for name, parameter in probe.named_parameters() if parameter.requires_grad]
        ['classifier.weight', 'classifier.bias']
    """

    thresholds: torch.Tensor

    def __init__(
        self,
        encoder: nn.Module,
        num_classes: int,
        freeze_encoder: bool = False,
        dropout_rate: float = 0.0,
        standardize_features: bool = True,
        label_kind: str = "multilabel",
    ) -> None:
        super().__init__(encoder, num_classes, freeze_encoder)
        check_label_kind(label_kind, num_classes)
        self.label_kind = label_kind
        width = self.encoder.hidden_size
        self.standardize = (
            nn.BatchNorm1d(width, affine=False) if standardize_features else nn.Identity()
        )
        self.dropout = nn.Dropout(dropout_rate)
        self.classifier = nn.Linear(width, num_classes)
        self.register_buffer(
            "thresholds",
            torch.full((num_classes,), torch.nan if label_kind == "multiclass" else 0.5),
        )
        init_linear(self.classifier)
        self.train()

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """The mean of the tokens ``(B, D)`` of images ``(B, C, H, W)`` in [0, 1], for nearest neighbors and plots."""
        with self.encoder_gradient():
            return self.encoder(images).mean(dim=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images ``(B, C, H, W)`` in [0, 1]: logits ``(B, num_classes)``."""
        if self.training and len(images) == 1 and not isinstance(self.standardize, nn.Identity):
            raise ValueError(
                "one image cannot be standardized in training: set batch_size to 2 or more"
            )
        features = self.features(images).to(self.classifier.weight.dtype)
        # a rare finding's logits differ by less than bfloat16 resolves beside a bias of -4: images would tie
        with without_autocast(images):
            return self.classifier(self.dropout(self.standardize(features)))
