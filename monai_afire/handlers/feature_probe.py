# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""k-nearest-neighbor probe of a network's features during pre-training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
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
from monai_afire.utils.uncertain_labels import check_uncertain_policy, resolve_uncertain

logger = logging.getLogger(__name__)

Batches = Iterable[Mapping[str, Any]]


@dataclass(eq=False)
class KNNProbe:
    """
    Evaluate frozen features after every few epochs, by the labels of each image's nearest neighbors.

    The mean AUC over the labels goes to ``engine.state.metrics[name]`` and to the log. Nothing is trained, and the run
    goes on as if there were no probe: mode of the network and random state are restored. See
    :func:`monai_afire.metrics.knn_predict` for the vote.

    Attach it to a trainer, before the handlers that write its metrics. The batches are dictionaries with "image"
    ``(B, C, *S)`` and "label" ``(B, K)``, 1, 0, -1 (uncertain) or NaN (missing); ``(B,)`` is one label. Give loaders of
    their own, whose transforms are not random. Under distributed training each process computes the same figure.

    Args:
        network: the network that is trained, unwrapped (neither compiled nor ``DistributedDataParallel``).
        train_batches: loader of the images that vote.
        test_batches: loader of the images to classify.
        features: called with network and images for features ``(B, D)``; None for :func:`mean_token`.
        num_neighbors: how many vote.
        temperature: the smaller, the more the nearest count.
        interval: probe after every so many epochs.
        name: of the metric.
        uncertain: what the label -1 counts as, see ``resolve_uncertain``.

    Raises:
        ValueError: for an option out of range, and when the probe runs for loaders without batches or with
            labels that do not fit.
        TypeError: when ``features`` is None and the network has no encoder.

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
    features: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None
    num_neighbors: int = 20
    temperature: float = 0.07
    interval: int = 1
    name: str = "knn_auc"
    uncertain: str = "ignore"

    def __post_init__(self) -> None:
        if min(self.num_neighbors, self.interval) < 1 or not self.temperature > 0:
            given = f"{self.num_neighbors}, {self.interval} and {self.temperature}"
            raise ValueError(
                f"num_neighbors and interval must be >= 1 and temperature > 0, got {given}"
            )
        check_uncertain_policy(self.uncertain)
        if self.features is None:
            _encoder_of(self.network)

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.EPOCH_COMPLETED(every=self.interval), self)

    def __call__(self, engine: Any) -> None:
        """Probe the network as it is now."""
        with unchanged_random_state(), eval_mode(self.network), torch.no_grad():
            auc = self.evaluate()
        engine.state.metrics[self.name] = auc
        if not global_rank():
            logger.info("epoch %d: %s %.4f", engine.state.epoch, self.name, auc)

    def evaluate(self) -> float:
        """
        Extract the features of both loaders and let the neighbors vote, in the network's present mode.

        Returns:
            Mean AUC in [0, 1]; NaN when no label has both values, or the features are not finite.
        """
        train_features, train_labels = self._extract(self.train_batches, "train_batches")
        features, labels = self._extract(self.test_batches, "test_batches")
        if not (train_features.isfinite().all() and features.isfinite().all()):
            logger.warning("%s: the features are not finite, the network has diverged", self.name)
            return float("nan")
        if train_labels.shape[1] != labels.shape[1]:
            counts = (
                f"{train_labels.shape[1]} labels each and those of test_batches {labels.shape[1]}"
            )
            raise ValueError(f"the images of train_batches have {counts}: give both the same")
        votes = train_labels.to(train_features.device)
        probabilities = knn_predict(
            train_features, votes, features, self.num_neighbors, self.temperature
        ).cpu()
        # a label that no training image has gets no vote
        return mean_auc(
            labels.where(~probabilities.isnan(), torch.nan), probabilities.nan_to_num(0.0)
        )

    def _extract(self, batches: Batches, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        device = next(
            (parameter.device for parameter in self.network.parameters()), torch.device("cpu")
        )
        features = partial(self.features or mean_token, self.network)
        return labeled_features(features, batches, device, name, self.uncertain)


def labeled_features(
    features_of: Callable[[torch.Tensor], torch.Tensor],
    batches: Batches,
    device: torch.device,
    name: str,
    uncertain: str,
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
        labels.append(_labels(batch))
    if not features:
        raise ValueError(
            f"{name} has no batch: give a loader that can be gone through in every epoch"
        )
    return torch.cat(features), resolve_uncertain(torch.cat(labels), uncertain)


def mean_token(network: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """
    The mean token of a network's encoder; of the teacher's, where there is one, since it is the better of the two.

    Args:
        network: with an ``encoder`` or ``teacher_encoder`` that gives tokens ``(B, L, D)``.
        images: ``(B, C, *S)`` in [0, 1].

    Returns:
        ``(B, D)``.

    Raises:
        TypeError: when the network has neither.

    Example:
        >>> mean_token(nn.ModuleDict({"encoder": nn.Identity()}), torch.tensor([[[1.0, 2.0], [3.0, 2.0]]]))
        tensor([[2., 2.]])
    """
    return _encoder_of(network)(images).mean(1)


def _labels(batch: Mapping[str, Any]) -> torch.Tensor:
    labels = convert_to_tensor(batch[CommonKeys.LABEL], track_meta=False)
    if not isinstance(labels, torch.Tensor) or labels.ndim not in (1, 2):
        given = f"{type(labels).__name__} {tuple(getattr(labels, 'shape', ()))}"
        raise ValueError(
            f"the labels of a batch must be a tensor (B, K) or (B,), with NaN for null, got {given}"
        )
    return labels.cpu().reshape(len(labels), -1)


def _encoder_of(network: nn.Module) -> nn.Module:
    parts = dict(network.named_children())
    for name in ("teacher_encoder", "encoder"):
        if name in parts:
            return parts[name]
    names = f"its parts: {', '.join(parts) or 'none'}"
    found = f"{type(network).__name__} has neither 'teacher_encoder' nor 'encoder' ({names})"
    raise TypeError(
        f"{found}: pass the network before it is distributed or compiled, or give `features`"
    )
