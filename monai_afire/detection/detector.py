# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly detector: a pre-trained AFiRe network, or any encoder, with the statistics of normal images."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.detection.field_of_view import (
    MAX_VIEWS,
    field_of_view_module,
    fixed_view,
    random_views,
)
from monai_afire.detection.masked_restoration import MaskedRestorationInferer
from monai_afire.detection.normal_statistics import (
    ImageDensity,
    NormalMemory,
    NormalStatistics,
    TokenDensity,
)
from monai_afire.detection.score_thresholds import ScoreThresholds
from monai_afire.detection.scores import (
    MAP_NAMES,
    SCORE_NAMES,
    aggregate_tokens,
    anomaly_score,
    check_names,
    interior_tokens,
    possible_maps,
    possible_scores,
    prototype_distance,
)
from monai_afire.detection.token_features import FrozenEncoder, feature_width, tokens_and_features
from monai_afire.networks.blocks.feature_pyramid import resize_features
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.definition import definition_of, keeps_arguments
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.utils.few_images import warn_if_few
from monai_afire.utils.precision import at_least_float32, without_autocast

HEAT_UNIT = "standard deviations of normal images"
_TOKEN_DIRECTIONS = 32
_SHRINKAGE = 0.05  # of the token density's covariance
_RESIDUAL_CELLS = 4  # along each axis of a patch
_FUSION = ("prototype_distance", "token_neighbors", "residual_neighbors")
_OF_THE_DECODER = frozenset({"restoration", "masked_restoration", "residual_neighbors"})


@keeps_arguments
class AnomalyDetector(ScoreThresholds):
    r"""
    Scores, heat map and decision for radiographs, from a network that has learned what normal ones look like.

    Image scores, the larger the more abnormal, in the order of ``SCORE_NAMES``:

    * "restoration": Eq. 51, :func:`monai_afire.detection.anomaly_score`;
    * "masked_restoration": squared error of the restoration of each token from the others;
    * "prototype_distance": cross-entropy of each token to its prototype;
    * "token_density": Mahalanobis distance of each token to the normal images' tokens at its position;
    * "token_neighbors": distance of each token to the nearest ones of normal images at its position
      (:class:`monai_afire.detection.NormalMemory`);
    * "residual_neighbors": distance of the coarse error of the masked restoration, with its sign, to the nearest ones
      of normal images at its position: what the decoder cannot know, such as the ribs' exact course, is in their
      errors too, a lesion is not;
    * "restoration_mean": squared error of the restoration, the mean over the pixels in place of Eq. 51;
    * "token_mean_density": Mahalanobis distance of the mean token off the border to those of normal images
      (:class:`monai_afire.detection.ImageDensity`), for disease that is spread over the lungs;
    * "focal": the strongest ``k_fraction`` of the mean of the ``fusion`` maps, for a single small lesion;
    * "fused": mean of the ``score_fusion`` scores, each in standard deviations of the normal images.

    An encoder alone, of any library and without any training (:func:`monai_afire.networks.as_encoder`), has the scores
    that need neither decoder nor prototypes: "token_density", "token_neighbors", "token_mean_density", "focal" and
    "fused"; ``map_names`` and ``score_names`` say which a detector has.

    Token maps are in standard deviations of the normal images at the same position: otherwise positions that are
    always hard to restore, such as the ribs' edges, outshine a lesion in the lung. All image scores but the two of the
    restoration and the token mean's are aggregates of these maps.

    :meth:`fit` takes all statistics from normal images, :meth:`fit_thresholds` the thresholds and percentiles from the
    scores of other normal images. All are buffers of the state dict, as is ``heat_range``, the fused heat that normal
    tokens seldom and never reach, between which a picture of the heat map is to be colored.

    Args:
        network: the pre-trained network, or an encoder, which is then frozen.
        fusion: maps that are fused to the heat map; None for "token_neighbors" and, of a pre-trained network,
            "prototype_distance" and "residual_neighbors".
        aggregation: of the token maps to their image scores, "interior_mean", "mean" or "top_k", see
            :func:`monai_afire.detection.aggregate_tokens`.
        k_fraction: share of the tokens for "focal" and "top_k".
        similarity: of the contrastive losses that the network was trained with; None takes "cosine" for a network that
            contrasts features, and "paper" for any other.
        masked_restoration: how tokens are hidden.
        memory_size: normal images that the neighbors are searched in.
        score_fusion: image scores that are fused.
        copies: of each normal image, with another field of view (:func:`monai_afire.detection.random_views`), that
            :meth:`fit` adds to it, where normal images are few or alike.
        views: fields of view in which an image is scored (:func:`monai_afire.detection.fixed_view`), of which the one
            most like normal anatomy counts: the smallest of "fused" and of each score in it. Maps and other scores are
            of the image as it is.
        layers: what "token_density", "token_neighbors" and "token_mean_density" are measured by: "last" for the tokens,
            "all" for the encoder's feature maps, see :func:`monai_afire.detection.tokens_and_features`.
        field_of_view: "lungs" scores the square around the lungs (:class:`monai_afire.detection.LungView`) of frontal
            radiographs, "image" all of it. Maps are of the image in both cases.

    Raises:
        TypeError: for a network that is neither AFiRe nor an encoder.
        ValueError: for a fusion of no, unknown or impossible maps or scores, for views or copies out of range, unknown
            layers, and for a pre-trained network without teacher or decoder.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> network = AFiRe(encoder, num_clusters=8, head_dim=16, decoder_dim=16, decoder_layers=1, decoder_heads=2)
        >>> detector = AnomalyDetector(network).eval()
        >>> detector.fit([torch.rand(8, 1, 32, 32)])
        >>> outputs = detector(torch.rand(2, 1, 32, 32))
        >>> {name: tuple(value.shape) for name, value in outputs.items()}
        {'scores': (2, 10), 'maps': (2, 7, 16), 'tokens': (2, 16, 24)}
        >>> AnomalyDetector(encoder).score_names
        ('token_density', 'token_neighbors', 'token_mean_density', 'focal', 'fused')
    """

    map_mean: torch.Tensor
    map_std: torch.Tensor
    score_mean: torch.Tensor
    score_std: torch.Tensor
    heat_range: torch.Tensor
    interior: torch.Tensor
    in_views: torch.Tensor

    def __init__(
        self,
        network: nn.Module,
        fusion: Sequence[str] | None = None,
        aggregation: str = "interior_mean",
        k_fraction: float = 0.03,
        similarity: str | None = None,
        masked_restoration: MaskedRestorationInferer | None = None,
        memory_size: int = 1024,
        score_fusion: Sequence[str] = ("token_mean_density", "token_neighbors"),
        copies: int = 0,
        views: int = 1,
        layers: str = "last",
        field_of_view: str = "image",
    ) -> None:
        maps = possible_maps(network)
        super().__init__(possible_scores(maps))
        self.map_names = maps
        fusion = [name for name in _FUSION if name in maps] if fusion is None else fusion
        check_names("fusion", fusion, maps, MAP_NAMES)
        check_names("score_fusion", score_fusion, self.score_names[:-1], SCORE_NAMES[:-1])
        if copies < 0 or not 1 <= views <= MAX_VIEWS:
            raise ValueError(
                f"copies must be at least 0 and views in [1, {MAX_VIEWS}], got {copies} and {views}"
            )
        if isinstance(network, AFiRe) and not (network.contrast and network.restore):
            raise ValueError(
                "the detector needs teacher and decoder: build the network with contrast and restore True"
            )
        self.network: Any = network if isinstance(network, AFiRe) else FrozenEncoder(network)
        encoder = self.network.encoder
        num_tokens, width = math.prod(encoder.grid_size), feature_width(encoder, layers)
        self.patch_pixels = encoder.in_channels * math.prod(encoder.patch_size)
        self.density = TokenDensity(num_tokens, width)
        self.image_density = ImageDensity(width)
        cells = _RESIDUAL_CELLS ** len(encoder.grid_size)
        self.token_memory = NormalMemory(
            num_tokens, width, min(_TOKEN_DIRECTIONS, width), memory_size
        )
        self.residual_memory: NormalMemory | None = None
        if "residual_neighbors" in maps:
            self.residual_memory = NormalMemory(num_tokens, cells, cells, memory_size)
        self.layers = layers
        self.fusion = [maps.index(name) for name in fusion]
        self.score_fusion = [self.score_names.index(name) for name in score_fusion]
        self.aggregation = aggregation
        self.k_fraction = k_fraction
        compares_features = getattr(network, "contrast_space", None) == "features"
        self.similarity = similarity or ("cosine" if compares_features else "paper")
        self.masked_restoration = masked_restoration or MaskedRestorationInferer()
        self.copies = copies
        self.views = views
        self.field_of_view = field_of_view_module(field_of_view, len(encoder.grid_size))
        # what another view is measured by, and which scores it can lower
        measured = {*score_fusion, *(fusion if "focal" in score_fusion else ())}
        self.view_maps = {
            "restoration" if name == "restoration_mean" else name for name in measured
        } & set(maps)
        for name in ("map_mean", "map_std"):
            self.register_buffer(
                name, torch.full((len(maps), num_tokens), float(name == "map_std"))
            )
        for name in ("score_mean", "score_std"):
            self.register_buffer(
                name, torch.full((len(self.score_names) - 1,), float(name == "score_std"))
            )
        self.register_buffer("heat_range", torch.tensor([0.0, 1.0]))
        in_views = torch.tensor([name in {*score_fusion, "fused"} for name in self.score_names])
        self.register_buffer("in_views", in_views, persistent=False)
        self.register_buffer("interior", interior_tokens(encoder.grid_size), persistent=False)

    def changed_arguments(self) -> dict[str, Any]:
        """The adapter around an encoder of another library, whose file can be built again."""
        return (
            {}
            if isinstance(self.network, AFiRe)
            else {"network": definition_of(self.network.encoder)}
        )

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """
        Score radiographs.

        Args:
            image: ``(B, C, *S)`` in [0, 1].

        Returns:
            "scores" ``(B, 10)`` in the order of ``score_names``; "maps" ``(B, 7, L)``, those of ``map_names`` and the
            fused one; "tokens" ``(B, L, D)`` of the teacher. Of an encoder alone there are 5 scores and 3 maps.

        Raises:
            RuntimeError: before :meth:`fit`, or loading a fitted one.
        """
        image, field = self._in_field_of_view(image)
        raw, eq_51, mean_token, tokens = self._token_maps(image)
        maps = self._standardized(raw)
        scores = self._scores(raw, maps, eq_51, self.image_density(mean_token))
        for number in range(1, self.views):
            raw, eq_51, mean_token, _ = self._token_maps(
                fixed_view(image, number), needed=self.view_maps
            )
            other = self._scores(
                raw, self._standardized(raw), eq_51, self.image_density(mean_token)
            )
            scores = torch.where(self.in_views, scores.minimum(other), scores)
        if self.field_of_view is not None:
            maps = self.field_of_view.to_picture(maps, self.network.encoder.grid_size, field)
        return {"scores": scores, "maps": maps, "tokens": at_least_float32(tokens)}

    @torch.no_grad()
    def heat_map(self, image: torch.Tensor, token_map: torch.Tensor) -> torch.Tensor:
        """
        Upsample the token maps of images to their size, where the image scores count them.

        Elsewhere, as at the border, normal images are hot, too, and heat means nothing.

        Args:
            image: ``(B, C, *S)`` in [0, 1].
            token_map: ``(B, L)`` of these images.

        Returns:
            ``(B, 1, *S)``, linearly interpolated; 0 where no score looks, see :meth:`judged_tokens`.
        """
        encoder = self.network.encoder
        maps = torch.stack([self.judged_tokens(image).to(token_map), token_map], 1)
        judged, heat = resize_features(
            maps.unflatten(2, encoder.grid_size), encoder.img_size
        ).split(1, 1)
        return judged * heat

    @torch.no_grad()
    def judged_tokens(self, image: torch.Tensor) -> torch.Tensor:
        """
        Which tokens of a picture the image scores count: by "interior_mean" those off the border of what is scored.

        Args:
            image: ``(B, C, *S)``.

        Returns:
            ``(B, L)``, 1 where a token counts and 0 where not; between the two where it does in part, since a field of
            view need not end where a token does.
        """
        if self.aggregation == "interior_mean":
            judged = self.interior.float()
        else:
            judged = torch.ones(len(self.interior), device=image.device)
        judged = judged.expand(len(image), 1, -1)
        if self.field_of_view is not None:
            _, field = self.field_of_view(image)
            judged = self.field_of_view.to_picture(judged, self.network.encoder.grid_size, field)
        return judged[:, 0]

    def describe_outputs(self) -> dict[str, list]:
        """Names of the scores and maps in their order, and the thresholds, for an exported graph."""
        return {
            "scores": list(self.score_names),
            "maps": [*self.map_names, "fused"],
            "thresholds": self.thresholds.tolist(),
        }

    @torch.no_grad()
    def fit(self, batches: Iterable[torch.Tensor]) -> None:
        """
        Take the statistics of normal tokens, maps and scores from normal images and their copies.

        In a process group every rank fits its own detector: give all of them the same images.

        Args:
            batches: images ``(B, C, *S)`` in [0, 1]; iterated twice, so not a generator.

        Raises:
            RuntimeError: for fewer images than the neighbors need, or when all tokens are equal.
        """
        statistics: list[NormalStatistics] = [self.density, self.image_density, self.token_memory]
        statistics += [] if self.residual_memory is None else [self.residual_memory]
        for part in statistics:
            part.reset()
        owners = []
        for image, owner in self._with_copies(batches):
            student, features = self._described(image)
            self.density.update(self._described_by_teacher(image, student, features)[1])
            self.image_density.update(self._mean_token(features))
            self.token_memory.update(features, owner)
            if self.residual_memory is not None:
                masked, target = self._restored(image, student)
                self.residual_memory.update(self._coarse_error(masked, target), owner)
            owners.append(owner)
        warn_if_few(len(torch.cat(owners).unique()), "the detector is fitted")
        self.density.finalize(_SHRINKAGE)
        distances = self.image_density.held_out_distances(torch.cat(owners))
        for part in statistics[1:]:
            part.finalize()
        every = [self._token_maps(image, owner)[:2] for image, owner in self._with_copies(batches)]
        if sum(len(raw) for raw, _ in every) < self.density.num_images:
            raise RuntimeError(
                "the normal images can be iterated only once: give a list or a loader"
            )
        self._fit_scales(
            torch.cat([raw for raw, _ in every]),
            torch.cat([eq_51 for _, eq_51 in every]),
            distances,
        )

    def _fit_scales(self, raw: torch.Tensor, eq_51: torch.Tensor, distances: torch.Tensor) -> None:
        """Mean and spread of maps ``(N, 6, L)`` and image scores ``(N,)`` of normal images, and the heat's range."""
        self.map_mean.copy_(raw.mean(0))
        # positions outside of the chest can be the same in all images
        spread = raw.std(0)
        self.map_std.copy_(spread.clamp_min(1e-6).maximum(1e-3 * spread.mean(1, keepdim=True)))
        maps = self._standardized(raw)
        scores = self._scores(raw, maps, eq_51, distances)[:, :-1]
        self.score_mean.copy_(scores.mean(0))
        self.score_std.copy_(scores.std(0).clamp_min(1e-6))
        fused = maps[:, -1].flatten().sort().values
        # what one normal token in twenty reaches is not worth a color; the strongest is for what none reaches
        self.heat_range.copy_(torch.stack([fused[int(0.95 * (len(fused) - 1))], fused[-1] + 1e-6]))

    def _standardized(self, raw: torch.Tensor) -> torch.Tensor:
        """Maps ``(B, 6, L)`` as measured -> ``(B, 7, L)`` in standard deviations of normal images, fused one last."""
        maps = (raw - self.map_mean) / self.map_std
        return torch.cat([maps, maps[:, self.fusion].mean(1, keepdim=True)], 1)

    def _scores(
        self, raw: torch.Tensor, maps: torch.Tensor, eq_51: torch.Tensor, distances: torch.Tensor
    ) -> torch.Tensor:
        """Image scores ``(B, 10)`` from maps as measured and standardized, and the two that no map gives ``(B,)``."""
        scores = {
            name: aggregate_tokens(maps[:, i], self.aggregation, self.k_fraction, self.interior)
            for i, name in enumerate(self.map_names)
        }
        scores["restoration"] = eq_51
        scores["restoration_mean"] = raw[:, 0].mean(-1) / self.patch_pixels
        scores["token_mean_density"] = distances
        scores["focal"] = aggregate_tokens(maps[:, -1], "top_k", self.k_fraction)
        every = torch.stack([scores[name] for name in self.score_names[:-1]], 1)
        fused = ((every - self.score_mean) / self.score_std)[:, self.score_fusion].mean(
            1, keepdim=True
        )
        return torch.cat([every, fused], 1)

    def _in_field_of_view(self, image: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The part of the images that is scored, and where it lies in them."""
        return (image, None) if self.field_of_view is None else self.field_of_view(image)

    def _mean_token(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean over the tokens off the border, ``(B, D)``; a product, since a graph wants no choice by a mask."""
        weights = self.interior.to(at_least_float32(tokens)) / self.interior.sum()
        return weights @ at_least_float32(tokens)

    def _described(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The student's tokens and features."""
        return tokens_and_features(self.network.encoder, image, self.layers)

    def _described_by_teacher(
        self, image: torch.Tensor, tokens: torch.Tensor, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The teacher's; an encoder alone is its own."""
        if not isinstance(self.network, AFiRe):
            return tokens, features
        return tokens_and_features(self.network.teacher_encoder, image, self.layers)

    def _token_maps(
        self,
        image: torch.Tensor,
        owners: torch.Tensor | None = None,
        needed: Collection[str] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps ``(B, 6, L)`` as measured, Eq. 51 ``(B,)``, the student's mean token and its or the teacher's tokens."""
        needed = self.map_names if needed is None else needed
        student, features = self._described(image)
        maps = dict(
            zip(
                self.map_names,
                self.map_mean.unsqueeze(1).expand(-1, image.shape[0], -1),
                strict=True,
            )
        )
        eq_51, tokens = maps[self.map_names[0]][:, 0], student
        # the distances are differences of like numbers: half precision would leave little of them
        if self.residual_memory is not None and not _OF_THE_DECODER.isdisjoint(needed):
            masked, target = self._restored(image, student)
            restored = self.network.decoder(student) if "restoration" in needed else None
            with without_autocast(image.device.type):
                if restored is not None:
                    eq_51, maps["restoration"] = anomaly_score(restored, target)
                _, maps["masked_restoration"] = anomaly_score(masked, target)
                maps["residual_neighbors"] = self.residual_memory(
                    self._coarse_error(masked, target), owners
                )
        described = features
        if "token_density" in needed:
            tokens, described = self._described_by_teacher(image, student, features)
        with without_autocast(image.device.type):
            if "token_density" in needed:
                maps["token_density"] = self.density(described)
            if "prototype_distance" in self.map_names:
                q = self.network.token_probabilities(at_least_float32(student))
                maps["prototype_distance"] = prototype_distance(
                    q, self.network.bank.prototypes, self.similarity
                )
            maps["token_neighbors"] = self.token_memory(features, owners)
            mean_token = self._mean_token(features)
        return torch.stack([maps[name] for name in self.map_names], 1), eq_51, mean_token, tokens

    def _restored(
        self, image: torch.Tensor, student: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """From the student's tokens the patches, each restored while it is hidden, and the image's own."""
        network = self.network
        target = patchify(network.encoder.normalize(image), network.encoder.patch_size)
        return self.masked_restoration.restore_patches(student, network), target

    def _coarse_error(self, restored: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Signed error of each patch, averaged over a few cells along each axis: ``(B, L, cells)``."""
        encoder = self.network.encoder
        error = at_least_float32(target) - at_least_float32(restored)
        pixels = error.unflatten(-1, (encoder.in_channels, *encoder.patch_size)).mean(2)
        pool = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(encoder.patch_size)]
        return pool(pixels, _RESIDUAL_CELLS).flatten(2)

    def _with_copies(
        self, batches: Iterable[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of images and then of their copies, with the image's number."""
        seen = 0
        for batch in batches:
            image, _ = self._in_field_of_view(batch)
            numbers = torch.arange(seen, seen + len(image))
            seen += len(image)
            yield image, numbers
            for copy in range(self.copies):
                yield random_views(image, numbers, seed=copy), numbers
