# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly detector: a pre-trained AFiRe network with the statistics of normal images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn import functional as F

from monai_afire.anomaly.gaussian import TokenDensity
from monai_afire.anomaly.masked_restoration import MaskedRestorationInferer
from monai_afire.anomaly.memory_bank import NormalMemory
from monai_afire.anomaly.scores import aggregate_tokens, anomaly_score, prototype_distance
from monai_afire.metrics.binary_classification import best_f1_threshold
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.utils.precision import at_least_float32, without_autocast

__all__ = ["MAP_NAMES", "SCORE_NAMES", "AnomalyDetector"]

MAP_NAMES = (
    "restoration",
    "masked_restoration",
    "prototype_distance",
    "token_density",
    "token_neighbors",
    "residual_neighbors",
)
SCORE_NAMES = (*MAP_NAMES, "restoration_mean", "fused")

_TOKEN_DIRECTIONS = 32
_RESIDUAL_CELLS = 4  # along each axis of a patch


class AnomalyDetector(nn.Module):
    r"""
    Scores, heat map and decision for radiographs, from a network that has learned what normal ones look like.

    Image scores, the larger the more abnormal, in the order of ``SCORE_NAMES``:

    * "restoration": Eq. 51, :func:`monai_afire.anomaly.anomaly_score`;
    * "masked_restoration": squared error of the restoration of each token from the others;
    * "prototype_distance": cross-entropy of each token to its prototype;
    * "token_density": Mahalanobis distance of each token to the normal images' tokens at its position;
    * "token_neighbors": distance of each token to the nearest ones of normal images at its position
      (:class:`monai_afire.anomaly.NormalMemory`);
    * "residual_neighbors": distance of the coarse error of the masked restoration, with its sign, to the nearest ones
      of normal images at its position: what the decoder cannot know, such as the ribs' exact course, is in their
      errors too, a lesion is not;
    * "restoration_mean": squared error of the restoration, the mean over the pixels in place of Eq. 51;
    * "fused": of the mean of the ``fusion`` maps.

    Token maps are in standard deviations of the normal images at the same position: otherwise positions that are
    always hard to restore, such as the ribs' edges, outshine a lesion in the lung. All image scores but the two of the
    restoration are aggregates of these maps.

    :meth:`fit` takes all statistics from normal images, :meth:`fit_thresholds` the thresholds from validation scores.
    Both are buffers of the state dict, as are ``heat_range``, the fused heat that normal tokens seldom and never reach,
    between which a picture of the heat map is to be coloured, and ``normal_scores``, ``(101, 8)``: what 0, 1, ..., 100 %
    of the normal validation images stay below. Those and not the images of :meth:`fit`, which the network has been
    trained on and whose scores are lower.

    Args:
        network: the pre-trained network.
        fusion: maps that are fused.
        aggregation: of the token maps, "mean", "max" or "top_k", see :func:`monai_afire.anomaly.aggregate_tokens`.
        k_fraction: share of the tokens for "top_k".
        similarity: of the contrastive losses that the network was trained with.
        masked_restoration: how tokens are hidden.
        memory_size: normal images that the neighbours are searched in, and that :meth:`fit` takes at most.

    Raises:
        ValueError: for a fusion of no or unknown maps, and for a network without teacher or decoder.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> detector = AnomalyDetector(network).eval()
        >>> detector.fit([torch.rand(8, 1, 32, 32)])
        >>> outputs = detector(torch.rand(2, 1, 32, 32))
        >>> {name: tuple(value.shape) for name, value in outputs.items()}
        {'scores': (2, 8), 'maps': (2, 7, 16), 'tokens': (2, 16, 24)}
    """

    map_mean: torch.Tensor
    map_std: torch.Tensor
    thresholds: torch.Tensor
    normal_scores: torch.Tensor
    heat_range: torch.Tensor

    def __init__(
        self,
        network: AFiRe,
        fusion: Sequence[str] = ("prototype_distance", "token_neighbors", "residual_neighbors"),
        aggregation: str = "top_k",
        k_fraction: float = 0.03,
        similarity: str = "paper",
        masked_restoration: MaskedRestorationInferer | None = None,
        memory_size: int = 1024,
    ) -> None:
        super().__init__()
        if not fusion or not set(fusion) <= set(MAP_NAMES):
            raise ValueError(f"fusion must name some of {MAP_NAMES}, got {tuple(fusion)}")
        if not (network.contrast and network.restore):
            raise ValueError("the detector needs teacher and decoder: build the network with contrast and restore True")
        self.network = network
        num_tokens = network.bank.prototypes.shape[0]
        self.patch_pixels = network.encoder.in_channels * math.prod(network.encoder.patch_size)
        self.density = TokenDensity(num_tokens, network.encoder.hidden_size)
        cells = _RESIDUAL_CELLS ** len(network.encoder.grid_size)
        width = network.encoder.hidden_size
        self.token_memory = NormalMemory(num_tokens, width, min(_TOKEN_DIRECTIONS, width), memory_size)
        self.residual_memory = NormalMemory(num_tokens, cells, cells, memory_size)
        self.fusion = [MAP_NAMES.index(name) for name in fusion]
        self.aggregation = aggregation
        self.k_fraction = k_fraction
        self.similarity = similarity
        self.masked_restoration = masked_restoration or MaskedRestorationInferer()
        for name in ("map_mean", "map_std"):
            self.register_buffer(name, torch.full((len(MAP_NAMES), num_tokens), float(name == "map_std")))
        self.register_buffer("thresholds", torch.full((len(SCORE_NAMES),), torch.nan))
        self.register_buffer("normal_scores", torch.full((101, len(SCORE_NAMES)), torch.nan))
        self.register_buffer("heat_range", torch.tensor([0.0, 1.0]))

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """
        Judge radiographs.

        Args:
            image: ``(B, C, *S)`` in [0, 1].

        Returns:
            "scores" ``(B, 8)`` in the order of ``SCORE_NAMES``; "maps" ``(B, 7, L)``, those of ``MAP_NAMES`` and the
            fused one; "tokens" ``(B, L, D)`` of the teacher.

        Raises:
            RuntimeError: before :meth:`fit`, or loading a fitted one.
        """
        raw, eq_51, tokens = self._token_maps(image)
        maps = (raw - self.map_mean) / self.map_std
        maps = torch.cat([maps, maps[:, self.fusion].mean(1, keepdim=True)], 1)
        scores = [aggregate_tokens(maps[:, i], self.aggregation, self.k_fraction) for i in range(1, maps.shape[1])]
        restoration_mean = raw[:, 0].mean(-1) / self.patch_pixels
        scores = [eq_51, *scores[:-1], restoration_mean, scores[-1]]
        return {"scores": torch.stack(scores, 1), "maps": maps, "tokens": at_least_float32(tokens)}

    def heat_map(self, token_map: torch.Tensor) -> torch.Tensor:
        """
        Upsample token maps to the size of the images.

        Args:
            token_map: ``(B, L)``.

        Returns:
            ``(B, 1, *S)``, linearly interpolated.
        """
        encoder = self.network.encoder
        mode = {2: "bilinear", 3: "trilinear"}[len(encoder.grid_size)]
        return F.interpolate(token_map.unflatten(1, encoder.grid_size).unsqueeze(1), size=encoder.img_size, mode=mode)

    @torch.no_grad()
    def fit(self, batches: Iterable[torch.Tensor], shrinkage: float = 0.05) -> None:
        """
        Take the statistics of normal tokens, maps and scores from normal images.

        In a process group every rank fits its own detector: give all of them the same images.

        Args:
            batches: images ``(B, C, *S)`` in [0, 1]; iterated twice, so not a generator.
            shrinkage: of the token density's covariance.

        Raises:
            RuntimeError: for fewer than two images, or when all tokens are equal.
        """
        for part in (self.density, self.token_memory, self.residual_memory):
            part.reset()
        for image in self._first(batches):
            student, (_, masked, target) = self._restored(image)
            self.density.update(self.network.teacher_encoder(image))
            self.token_memory.update(student)
            self.residual_memory.update(self._coarse_error(masked, target))
        self.density.finalize(shrinkage, all_ranks=False)
        self.token_memory.finalize()
        self.residual_memory.finalize()
        every = [self._token_maps(image, remembered=True)[0] for image in self._first(batches)]
        if sum(len(raw) for raw in every) < self.density.num_images:
            raise RuntimeError("the normal images can be iterated only once: give a list or a loader")
        maps = torch.cat(every)
        self.map_mean.copy_(maps.mean(0))
        # positions outside of the chest can be the same in all images
        spread = maps.std(0)
        self.map_std.copy_(spread.clamp_min(1e-6).maximum(1e-3 * spread.mean(1, keepdim=True)))
        fused = ((maps - self.map_mean) / self.map_std)[:, self.fusion].mean(1).flatten().sort().values
        # what one normal token in twenty reaches is not worth a colour; the strongest is for what none reaches
        self.heat_range.copy_(torch.stack([fused[int(0.95 * (len(fused) - 1))], fused[-1] + 1e-6]))

    @torch.no_grad()
    def fit_thresholds(
        self, scores: torch.Tensor, labels: torch.Tensor | None = None, specificity: float | None = 0.95
    ) -> None:
        """
        Choose the threshold of each score on validation images.

        Args:
            scores: ``(M, 8)`` of validation images.
            labels: ``(M,)`` of 0 (normal) and 1; None: all are normal.
            specificity: share of the normal images that may stay below the threshold, which is their quantile; None
                takes the best F1, for which abnormal images are needed.

        Raises:
            ValueError: for scores that are no finite numbers, without a normal image, or without an abnormal one for
                the best F1.

        Example:
            >>> from monai_afire.networks import ViTEncoder
            >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
            >>> detector = AnomalyDetector(AFiRe(encoder, 8, 16, 16, 1, 2))
            >>> detector.fit_thresholds(torch.arange(101.0)[:, None].expand(-1, 8), specificity=0.9)
            >>> detector.thresholds[0]
            tensor(90.)
        """
        scores = scores.detach().float().cpu()
        if bad := int((~scores.isfinite()).any(1).sum()):
            raise ValueError(
                f"the scores of {bad} of {len(scores)} validation images are NaN or infinite, so that no threshold "
                "follows from them: look at the images' intensities and at the weights"
            )
        abnormal = torch.zeros(len(scores), dtype=torch.bool) if labels is None else labels.flatten().cpu() > 0
        if abnormal.all():
            raise ValueError("no normal validation image to fit a threshold on: add some with label 0")
        shares = torch.linspace(0, 1, len(self.normal_scores))
        self.normal_scores.copy_(torch.quantile(scores[~abnormal], shares, dim=0))
        if specificity is not None:
            self.thresholds.copy_(torch.quantile(scores[~abnormal], specificity, dim=0))
        elif abnormal.any():
            best = [best_f1_threshold(abnormal.numpy(), column.numpy()) for column in scores.T]
            self.thresholds.copy_(torch.tensor(best))
        else:
            raise ValueError("the best F1 needs abnormal validation images: add some, or give a specificity")

    def normal_percentiles(self, scores: ArrayLike, name: str = "fused") -> NDArray[np.float64]:
        """
        Share of the normal validation images whose score is lower, in per cent, exact to 1.

        Args:
            scores: ``(M,)``.
            name: which of ``SCORE_NAMES`` they are.

        Returns:
            ``(M,)`` in [0, 100]; NaN before :meth:`fit_thresholds`.

        Example:
            >>> from monai_afire.networks import ViTEncoder
            >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
            >>> detector = AnomalyDetector(AFiRe(encoder, 8, 16, 16, 1, 2))
            >>> detector.fit_thresholds(torch.arange(11.0)[:, None].expand(-1, len(SCORE_NAMES)))
            >>> detector.normal_percentiles([-1, 9.5, 99]).tolist()
            [0.0, 95.0, 100.0]
        """
        normal = self.normal_scores[:, SCORE_NAMES.index(name)].double().cpu().numpy()
        return np.interp(scores, normal, np.linspace(0, 100, len(normal)))

    def _token_maps(
        self, image: torch.Tensor, remembered: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps ``(B, 6, L)`` as measured, Eq. 51 ``(B,)`` and the teacher's tokens."""
        network = self.network
        student, (restored, masked, target) = self._restored(image)
        teacher = network.teacher_encoder(image)
        # the distances are differences of like numbers: half precision would leave little of them
        with without_autocast(image.device.type):
            q = network.token_probabilities(at_least_float32(student))
            eq_51, distances = anomaly_score(restored, target)
            _, masked_distances = anomaly_score(masked, target)
            prototypes = prototype_distance(q, network.bank.prototypes, self.similarity)
            density = self.density(teacher)
            tokens = self.token_memory(student, remembered)
            residuals = self.residual_memory(self._coarse_error(masked, target), remembered)
        maps = [distances, masked_distances, prototypes, density, tokens, residuals]
        return torch.stack(maps, 1), eq_51, teacher

    def _restored(self, image: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """The student's tokens; the restored patches, those restored with themselves hidden, and the image's own."""
        network = self.network
        student = network.encoder(image)
        target = patchify(network.encoder.normalize(image), network.encoder.patch_size)
        return student, (network.decoder(student), self.masked_restoration.restore_patches(student, network), target)

    def _coarse_error(self, restored: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Signed error of each patch, averaged over a few cells along each axis: ``(B, L, cells)``."""
        encoder = self.network.encoder
        error = at_least_float32(target) - at_least_float32(restored)
        pixels = error.unflatten(-1, (encoder.in_channels, *encoder.patch_size)).mean(2)
        pool = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(encoder.patch_size)]
        return pool(pixels, _RESIDUAL_CELLS).flatten(2)

    def _first(self, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """As many images as the memory takes."""
        room = self.token_memory.capacity
        for image in batches:
            if room <= 0:
                return
            yield image[:room]
            room -= len(image)
