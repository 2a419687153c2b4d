# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly detector: a pre-trained AFiRe network, or any encoder, with the statistics of normal images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from monai_afire.detection.field_of_view import field_of_view_module
from monai_afire.detection.network_outputs import (
    LAYERS,
    RESIDUAL_CELLS,
    FrozenEncoder,
    NetworkOutputs,
    feature_width,
)
from monai_afire.detection.normal_statistics import ImageDensity, MemoryBank, TokenDensity
from monai_afire.detection.score_equations import interior_tokens
from monai_afire.detection.score_thresholds import ScoreThresholds
from monai_afire.detection.scores import FUSED, IMAGE_SCORES, TOKEN_MAPS, MeasuredImages, TokenMap
from monai_afire.networks.blocks.feature_pyramid import resize_features
from monai_afire.networks.definition import definition_of, keeps_arguments
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.utils.few_images import warn_if_few
from monai_afire.utils.precision import at_least_float32

HEAT_UNIT = "standard deviations of normal images"
_TOKEN_DIRECTIONS = 32  # principal components of the tokens in the memory


@keeps_arguments
class AnomalyDetector(ScoreThresholds):
    r"""
    Scores, heat map and decision for radiographs, from a network that has learned what normal ones look like.

    The image scores, the larger the more abnormal, are the means of the ``TOKEN_MAPS`` off the border, then the
    ``IMAGE_SCORES``, and at last "fused": the mean of the ``score_fusion`` scores, each in standard deviations of the
    normal images. ``monai_afire.detection.scores`` says what each of them is. A subclass may have other
    ``token_maps``, see :class:`monai_afire.detection.TokenMap`.

    An encoder alone, of any library and without any training (:func:`monai_afire.networks.as_encoder`), has the scores
    that need neither decoder nor prototypes: "token_density", "token_neighbors", "token_mean_density", "focal" and
    "fused"; ``map_names`` and ``score_names`` say which a detector has.

    Token maps are in standard deviations of the normal images at the same position: otherwise positions that are
    always hard to restore, such as the ribs' edges, outshine a lesion in the lung.

    :meth:`fit` takes all statistics from normal images, :meth:`fit_thresholds` the thresholds and percentiles from the
    scores of other normal images. All are buffers of the state dict, as is ``heat_range``, the fused heat that normal
    tokens seldom and never reach, between which a picture of the heat map is to be colored.

    Args:
        network: the pre-trained network, or an encoder, which is then frozen.
        fusion: maps that are fused to the heat map; None for "token_neighbors" and, of a pre-trained network,
            "prototype_distance" and "residual_neighbors".
        k_fraction: share of the tokens for "focal".
        memory_size: normal images that the neighbors are searched in.
        score_fusion: image scores that are fused.
        layers: what "token_density", "token_neighbors" and "token_mean_density" are measured by: "last" for the tokens,
            "all" for the encoder's feature maps, see ``tokens_and_features``.
        field_of_view: "lungs" scores the square around the lungs (``LungView``) of frontal radiographs, "image" all of
            it. Maps are of the image in both cases.

    Raises:
        TypeError: for a network that is neither AFiRe nor an encoder.
        ValueError: for a setting that no detector can have, and for a pre-trained network without teacher or decoder.

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

    token_maps: ClassVar[Mapping[str, TokenMap]] = TOKEN_MAPS

    map_mean: torch.Tensor
    map_std: torch.Tensor
    score_mean: torch.Tensor
    score_std: torch.Tensor
    heat_range: torch.Tensor
    interior: torch.Tensor

    def __init__(
        self,
        network: nn.Module,
        fusion: Sequence[str] | None = None,
        k_fraction: float = 0.03,
        memory_size: int = 1024,
        score_fusion: Sequence[str] = ("token_neighbors",),
        layers: str = "last",
        field_of_view: str = "image",
    ) -> None:
        pretrained = isinstance(network, AFiRe)
        maps = self.token_maps.items()
        self.map_names = tuple(name for name, each in maps if pretrained or not each.pretrained)
        image_scores = IMAGE_SCORES if pretrained else ("token_mean_density", "focal")
        super().__init__(tuple(dict.fromkeys([*self.map_names, *image_scores, FUSED])))
        _check_arguments(network, k_fraction, layers)
        self.network: Any = network if pretrained else FrozenEncoder(network)
        self.k_fraction = k_fraction
        self.layers = layers
        self.field_of_view = field_of_view_module(field_of_view)
        if fusion is None:
            fusion = [name for name in self.map_names if self.token_maps[name].in_heat_map]
        self.fusion = self._chosen("fusion", fusion, self.map_names)
        self.score_fusion = self._chosen("score_fusion", score_fusion, self.score_names[:-1])
        encoder: Any = self.network.encoder
        self.register_buffer("interior", interior_tokens(encoder.grid_size), persistent=False)
        self._add_statistics(memory_size)
        self._add_scales()

    def _chosen(
        self, argument: str, names: Sequence[str], possible: Sequence[str]
    ) -> tuple[str, ...]:
        """The names, unless there are none, or some of what there is not."""
        if names and set(names) <= set(possible):
            return tuple(names)
        alone = "" if isinstance(self.network, AFiRe) else " of an encoder alone"
        raise ValueError(f"{argument} must name some of {possible}{alone}, got {tuple(names)}")

    def _add_statistics(self, memory_size: int) -> None:
        """Statistics of normal images, which :meth:`fit` fills."""
        num_tokens, width = len(self.interior), feature_width(self.network.encoder, self.layers)
        kept = min(_TOKEN_DIRECTIONS, width)
        self.density = TokenDensity(num_tokens, width)
        self.token_memory = MemoryBank(num_tokens, width, kept, memory_size)
        self.image_density = ImageDensity(width)
        if isinstance(self.network, AFiRe):
            cells = RESIDUAL_CELLS**2
            self.residual_memory = MemoryBank(num_tokens, cells, cells, memory_size)

    def _add_scales(self) -> None:
        """Buffers for mean and spread of the maps and scores of normal images, and for the heat's range."""
        num_maps, num_tokens = len(self.map_names), len(self.interior)
        num_scores = len(self.score_names) - 1
        self.register_buffer("map_mean", torch.zeros(num_maps, num_tokens))
        self.register_buffer("map_std", torch.ones(num_maps, num_tokens))
        self.register_buffer("score_mean", torch.zeros(num_scores))
        self.register_buffer("score_std", torch.ones(num_scores))
        self.register_buffer("heat_range", torch.tensor([0.0, 1.0]))

    def changed_arguments(self) -> dict[str, Any]:
        """The adapter around an encoder of another library, whose file can be built again."""
        if isinstance(self.network, AFiRe):
            return {}
        return {"network": definition_of(self.network.encoder)}

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """
        Score radiographs.

        Args:
            image: ``(B, C, H, W)`` in [0, 1].

        Returns:
            "scores" ``(B, 10)`` in the order of ``score_names``; "maps" ``(B, 7, L)``, those of ``map_names`` and the
            fused one; "tokens" ``(B, L, D)`` of the teacher. Of an encoder alone there are 5 scores and 3 maps.

        Raises:
            RuntimeError: before :meth:`fit`, or loading a fitted one.
        """
        image, field = self._in_field_of_view(image)
        outputs = NetworkOutputs(self, image)
        images = self._measured(outputs)
        scores = self._scores(images)
        maps = torch.stack([*map(images.standard, self.map_names), images.fused_map], 1)
        if self.field_of_view is not None:
            maps = self.field_of_view.to_picture(maps, self.network.encoder.grid_size, field)
        return {
            "scores": torch.stack([scores[name] for name in self.score_names], 1),
            "maps": maps,
            "tokens": at_least_float32(outputs.teacher_tokens),
        }

    @torch.no_grad()
    def heat_map(self, image: torch.Tensor, token_map: torch.Tensor) -> torch.Tensor:
        """
        Upsample the token maps of images to their size, where the image scores count them.

        Elsewhere, as at the border, normal images are hot, too, and heat means nothing.

        Args:
            image: ``(B, C, H, W)`` in [0, 1].
            token_map: ``(B, L)`` of these images.

        Returns:
            ``(B, 1, H, W)``, linearly interpolated; 0 where no score looks, see :meth:`judged_tokens`.
        """
        encoder = self.network.encoder
        maps = torch.stack([self.judged_tokens(image).to(token_map), token_map], 1)
        maps = resize_features(maps.unflatten(2, encoder.grid_size), encoder.img_size)
        judged, heat = maps.split(1, 1)
        return judged * heat

    @torch.no_grad()
    def judged_tokens(self, image: torch.Tensor) -> torch.Tensor:
        """
        Which tokens of a picture ``(B, C, H, W)`` the image scores count: those off the border of what is scored.

        Returns:
            ``(B, L)``, 1 where a token counts and 0 where not; between the two where it does in part, since a field of
            view need not end where a token does.
        """
        judged = self.interior.float().expand(len(image), 1, -1)
        if self.field_of_view is not None:
            _, field = self.field_of_view(image)
            judged = self.field_of_view.to_picture(judged, self.network.encoder.grid_size, field)
        return judged[:, 0]

    def describe_outputs(self) -> dict[str, list]:
        """Names of the scores and maps in their order, and the thresholds, for an exported graph."""
        return {
            "scores": list(self.score_names),
            "maps": [*self.map_names, FUSED],
            "thresholds": self.thresholds.tolist(),
        }

    @torch.no_grad()
    def fit(self, batches: Iterable[torch.Tensor], held_out: int = 0) -> None:
        """
        Take the statistics of normal tokens, maps and scores from normal images.

        In a process group every rank fits its own detector: give all of them the same images.

        Args:
            batches: images ``(B, C, H, W)`` in [0, 1]; iterated twice, so not a generator.
            held_out: number of further images that are kept for validation, for the warning that there are few.

        Raises:
            ValueError: for images whose features are NaN or infinite.
            RuntimeError: for fewer images than the neighbors need, or when all tokens are equal.
        """
        statistics = self._fitted_to()
        features = self._features(batches, statistics.values())
        count = len(features["mean_feature"])
        warn_if_few(count, "the detector is fitted", held_out)
        for name, output in statistics.items():
            self.get_submodule(name).fit(features[output])  # type: ignore[operator]
        # a Gaussian of the images themselves would be too near to say what is usual
        distances = self.image_density.held_out_distances(features.pop("mean_feature"))
        features.clear()  # they are large
        maps = [self._raw_maps(image, numbers) for image, numbers in self._numbered(batches)]
        if sum(map(len, maps)) < count:
            raise RuntimeError("normal images can be iterated only once: give a list or a loader")
        self._fit_scales(torch.cat(maps), distances)

    def _fitted_to(self) -> dict[str, str]:
        """Of each of the statistics the output of the network that it is fitted to."""
        maps = (self.token_maps[name] for name in self.map_names)
        outputs = {each.statistics: each.output for each in maps if each.statistics}
        return {**outputs, "image_density": "mean_feature"}

    def _features(
        self, batches: Iterable[torch.Tensor], names: Iterable[str]
    ) -> dict[str, torch.Tensor]:
        """These outputs of the network for all normal images, ``(N, ...)``."""
        parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
        for image, numbers in self._numbered(batches):
            outputs = NetworkOutputs(self, image)
            for name, found in parts.items():
                found.append(at_least_float32(getattr(outputs, name)))
            is_number = outputs.mean_feature.isfinite().all(1).cpu()
            if not is_number.all():
                bad = numbers[~is_number].tolist()
                raise ValueError(f"normal images {bad} give NaN or infinity: exclude them")
        return {name: torch.cat(found) for name, found in parts.items()}

    def _raw_maps(self, image: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """All maps of normal images as measured, ``(B, maps, L)``."""
        outputs = NetworkOutputs(self, image, numbers)
        return torch.stack([self.token_maps[name](self, outputs) for name in self.map_names], 1)

    def _fit_scales(self, maps: torch.Tensor, mean_distances: torch.Tensor) -> None:
        """Mean and spread of maps ``(N, maps, L)`` and scores of normal images, and the heat's range."""
        self.map_mean.copy_(maps.mean(0))
        # positions outside of the chest can be the same in all images
        spread = maps.std(0)
        self.map_std.copy_(spread.clamp_min(1e-6).maximum(1e-3 * spread.mean(1, keepdim=True)))
        measured = dict(zip(self.map_names, maps.unbind(1), strict=True))
        measured["token_mean_density"] = mean_distances
        normal = MeasuredImages(self, measured.__getitem__)
        scores = torch.stack([normal.score(name) for name in self.score_names[:-1]], 1)
        self.score_mean.copy_(scores.mean(0))
        self.score_std.copy_(scores.std(0).clamp_min(1e-6))
        fused = normal.fused_map.flatten().sort().values
        # what one normal token in twenty reaches is not worth a color; the strongest is for what none reaches
        self.heat_range.copy_(torch.stack([fused[int(0.95 * (len(fused) - 1))], fused[-1] + 1e-6]))

    def _measured(self, outputs: NetworkOutputs) -> MeasuredImages:
        """Images that are measured when a score asks for it."""

        def measure(name: str) -> torch.Tensor:
            if name in self.token_maps:
                return self.token_maps[name](self, outputs)
            return self.image_density(outputs.mean_feature)

        return MeasuredImages(self, measure)

    def _scores(self, images: MeasuredImages) -> dict[str, torch.Tensor]:
        """Scores ``(B,)`` of images by name, and the fused one."""
        scores = {name: images.score(name) for name in self.score_names[:-1]}
        columns = [self.score_names.index(name) for name in self.score_fusion]
        fused = torch.stack([scores[name] for name in self.score_fusion], 1)
        standard = (fused - self.score_mean[columns]) / self.score_std[columns]
        return {**scores, FUSED: standard.mean(1)}

    def _in_field_of_view(self, image: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The part of the images that is scored, and where it lies in them."""
        return (image, None) if self.field_of_view is None else self.field_of_view(image)

    def _numbered(
        self, batches: Iterable[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The part of normal images that is scored, and their numbers."""
        seen = 0
        for batch in batches:
            image, _ = self._in_field_of_view(batch)
            yield image, torch.arange(seen, seen + len(image))
            seen += len(image)


def _check_arguments(network: nn.Module, k_fraction: float, layers: str) -> None:
    """Refuse what no detector can be built of."""
    if not 0 < k_fraction <= 1:
        raise ValueError(f"k_fraction must be in (0, 1], got {k_fraction}")
    if layers not in LAYERS:
        raise ValueError(f"layers must be one of {LAYERS}, got {layers!r}")
    if isinstance(network, AFiRe) and not (network.contrast and network.restore):
        raise ValueError("the detector needs teacher and decoder: build AFiRe with both")
