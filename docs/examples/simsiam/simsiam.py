# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""SimSiam (Chen and He, CVPR 2021) as a method of your own: a network, a loss, and metrics for its validation."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from monai_afire.losses import CompositeLoss, LossTerm, global_mean
from monai_afire.metrics import PretrainingMetrics, embedding_spread
from monai_afire.networks import as_encoder, keeps_arguments


@keeps_arguments  # the network is saved, resumed and loaded like those of the package
class SimSiam(nn.Module):
    """
    Two crops of an image, one encoder; each crop predicts the embedding of the other.

    Args:
        encoder: the encoder to pre-train.
        dim: width of the embeddings.
        predictor_dim: width between the layers of the predictor, a quarter of ``dim`` in the paper.
    """

    def __init__(self, encoder: nn.Module, dim: int = 256, predictor_dim: int = 64) -> None:
        super().__init__()
        self.encoder = as_encoder(encoder)
        self.projector = nn.Sequential(
            nn.Linear(self.encoder.hidden_size, dim, bias=False),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.Linear(dim, dim, bias=False),
            nn.BatchNorm1d(dim, affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(dim, predictor_dim, bias=False),
            nn.BatchNorm1d(predictor_dim),
            nn.ReLU(),
            nn.Linear(predictor_dim, dim),
        )

    def forward(self, image: Tensor) -> Tensor | dict[str, Tensor]:
        """
        Embed and predict; given images alone, the encoder's feature map.

        Args:
            image: two crops of each image ``(B, 2, C, H, W)``, or images ``(B, C, H, W)``, in [0, 1].

        Returns:
            "embedding" and "prediction", each ``(B, 2, D)``; or a feature map ``(B, D, *grid)``.
        """
        if image.ndim == 4:
            return self.encoder.to_map(self.encoder(image))
        tokens = self.encoder(image.flatten(0, 1))
        embedding = self.projector(tokens.mean(1))
        prediction = self.predictor(embedding)
        return {
            "embedding": embedding.unflatten(0, image.shape[:2]).detach(),  # the stop-gradient
            "prediction": prediction.unflatten(0, image.shape[:2]),
        }


class SimSiamLoss(CompositeLoss):
    r"""
    Negative cosine of each crop's prediction and the other's embedding (Eq. 1 and 2), averaged over both.

    .. math:: L = -\frac{1}{2} \big(\cos(p_1, z_2) + \cos(p_2, z_1)\big)
    """

    def __init__(self) -> None:
        needs = ("prediction", "embedding")
        super().__init__({"similarity": LossTerm(1.0, self._similarity, needs)})

    def _similarity(self, prediction: Tensor, embedding: Tensor) -> Tensor:
        other = embedding.flip(1)
        return -global_mean(F.cosine_similarity(prediction.float(), other.float(), dim=-1))


def simsiam_metrics(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The alarm for a collapse: the spread of the embeddings, 0 when all images have the same."""
    return {"embedding_spread": embedding_spread(outputs["embedding"].flatten(0, 1))}


class SimSiamMetrics(PretrainingMetrics):
    """The values of :func:`simsiam_metrics` over a validation."""

    names = ("embedding_spread",)
    batch_metrics = staticmethod(simsiam_metrics)
