# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""k-nearest-neighbor probe of a network's features during pre-training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.utils import CommonKeys, convert_to_tensor
from torch import nn
from tqdm import tqdm  # that of tqdm.auto starts a loader's workers twice

from monai_afire.handlers.random_state import unchanged_random_state
from monai_afire.metrics.multilabel import mean_auc
from monai_afire.metrics.nearest_neighbors import knn_predict
from monai_afire.utils.distributed import global_rank
from monai_afire.utils.eval_mode import eval_mode
from monai_afire.utils.uncertain_labels import resolve_uncertain

logger = logging.getLogger(__name__)

Batches = Iterable[Mapping[str, Any]]


@dataclass(eq=False)
class KNNProbe:
    """
    Evaluate frozen features after every few epochs, by the labels of each image's nearest neighbors.

    The features are the mean tokens of the encoder, or of the teacher's, if there is one. The mean AUC over the labels
    of :func:`monai_afire.metrics.knn_predict` goes to ``engine.state.metrics["knn_auc"]`` and to the log. Nothing is
    trained, and the run goes on as if there were no probe: mode of the network and random state are restored.

    Attach it to a trainer, before the handlers that write its metrics. The batches are dictionaries with "image"
    ``(B, C, H, W)`` and "label" ``(B, K)`` or ``(B,)``: 1, 0, and -1 (uncertain) or NaN (missing), which do not count.
    Give loaders of their own, whose transforms are not random. Under distributed training each process computes the
    same figure.

    Args:
        network: the network that is trained, unwrapped (neither compiled nor ``DistributedDataParallel``).
        train_batches: loader of the images that vote.
        test_batches: loader of the images to classify.
        num_neighbors: how many vote.
        interval: probe after every so many epochs.

    Example:
        >>> network, labels = nn.ModuleDict({"encoder": nn.Identity()}), torch.tensor([[0.0], [0.0], [1.0], [1.0]])
        >>> batch = {"image": torch.tensor([[[2.0, 0.1]], [[3.0, 0.0]], [[0.0, 2.0]], [[0.1, 3.0]]]), "label": labels}
        >>> engine = Engine(lambda engine, batch: None)
        >>> KNNProbe(network, [batch], [batch], num_neighbors=2).attach(engine)
        >>> engine.run([0]).metrics
        {'knn_auc': 1.0}
    """

    network: nn.Module
    train_batches: Batches
    test_batches: Batches
    num_neighbors: int = 20
    interval: int = 1

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.EPOCH_COMPLETED(every=self.interval), self)

    def __call__(self, engine: Any) -> None:
        """Probe the network as it is now."""
        with unchanged_random_state(), eval_mode(self.network), torch.no_grad():
            auc = self.evaluate()
        engine.state.metrics["knn_auc"] = auc
        if not global_rank():
            logger.info(f"epoch {engine.state.epoch}: knn_auc {auc:.4f}")

    def evaluate(self) -> float:
        """Mean AUC in [0, 1]; NaN when no label has both values, or the features are not finite."""
        train_features, train_labels = self._extract(self.train_batches, "train_batches")
        features, labels = self._extract(self.test_batches, "test_batches")
        if not (train_features.isfinite().all() and features.isfinite().all()):
            logger.warning("knn_auc: the features are not finite, the network has diverged")
            return float("nan")
        votes = train_labels.to(train_features.device)
        probabilities = knn_predict(train_features, votes, features, self.num_neighbors).cpu()
        # a label that no training image has gets no vote
        return mean_auc(
            labels.where(~probabilities.isnan(), torch.nan), probabilities.nan_to_num(0.0)
        )

    def _extract(self, batches: Batches, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        device = next((each.device for each in self.network.parameters()), torch.device("cpu"))
        return labeled_features(self.mean_token, batches, device, name)

    def mean_token(self, images: torch.Tensor) -> torch.Tensor:
        """Features ``(B, D)`` of images: the teacher's, which is the better encoder, where there is one."""
        parts = dict(self.network.named_children())
        encoder = parts["teacher_encoder"] if "teacher_encoder" in parts else parts["encoder"]
        return encoder(images).mean(1)


def labeled_features(
    features_of: Callable[[torch.Tensor], torch.Tensor],
    batches: Batches,
    device: torch.device,
    name: str,
    uncertain: str = "ignore",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of all batches on their device, and labels without uncertain ones on the CPU."""
    features, labels = [], []
    for batch in tqdm(
        batches, desc=f"features of {name}", delay=3.0, leave=False, dynamic_ncols=True
    ):
        images = convert_to_tensor(batch[CommonKeys.IMAGE], track_meta=False).to(
            device, non_blocking=True
        )
        features.append(features_of(images).detach())
        of_batch = convert_to_tensor(batch[CommonKeys.LABEL], track_meta=False)
        labels.append(of_batch.cpu().reshape(len(of_batch), -1))
    return torch.cat(features), resolve_uncertain(torch.cat(labels), uncertain)
