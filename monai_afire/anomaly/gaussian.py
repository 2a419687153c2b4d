# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Gaussian of the normal tokens of each position, with a covariance that all positions share (PaDiM-like)."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.utils.distributed import all_reduce, world_size
from monai_afire.utils.precision import at_least_float32

__all__ = ["TokenDensity"]


class TokenDensity(nn.Module):
    r"""
    Mahalanobis distance of each token to the normal training images' tokens at its position.

    .. math::
        d_{ij} = \sqrt{(x_{ij} - \mu_j)^\top \Sigma^{-1} (x_{ij} - \mu_j)}, \qquad
        \Sigma = \frac{1 - \lambda}{(n - 1) L} \sum_{i,j} (x_{ij} - \mu_j)(x_{ij} - \mu_j)^\top + \lambda \sigma^2 I

    with :math:`\mu_j` the mean of position j over the n normal images, λ the shrinkage and σ² the mean variance (the
    trace of the first term's covariance over D).

    This is PaDiM (Defard et al., PaDiM: a Patch Distribution Modeling Framework, ICPR 2021 workshops) on tokens of a
    transformer, with one covariance for all positions instead of one for each, which few images are enough for.

    Fit it by :meth:`update` on batches of normal images in any order and one :meth:`finalize`. `mean`, `precision`
    and `num_images` are buffers and travel with the network; the running sums are not part of the state dict
    (finalize before saving). In a process group the fit covers the images of all ranks, each counted once per rank
    that saw it, and :meth:`finalize` must be called by every rank; ``all_ranks=False`` turns this off.

    Args:
        num_tokens: L, number of token positions.
        dim: D, width of a token.

    Raises:
        ValueError: when a size is not positive.

    Example:
        >>> density = TokenDensity(num_tokens=1, dim=2)
        >>> density.update(torch.tensor([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, -1.0]], [[-1.0, -1.0]]]))
        >>> density.finalize(shrinkage=0.0)
        >>> density(torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]]]))
        tensor([[0.0000],
                [1.7321]])
    """

    mean: torch.Tensor
    precision: torch.Tensor
    num_images: torch.Tensor

    def __init__(self, num_tokens: int, dim: int) -> None:
        super().__init__()
        if num_tokens < 1 or dim < 1:
            raise ValueError(f"num_tokens and dim must be positive, got {num_tokens} and {dim}")
        self.register_buffer("mean", torch.zeros(num_tokens, dim))
        self.register_buffer("precision", torch.eye(dim))
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))
        self.reset()

    def reset(self) -> None:
        """Forget what :meth:`update` has seen; a finalized density stays as it is."""
        # plain attributes: as buffers, `.half()` or `.float()` of the network would round them
        self._count = 0
        self._running_mean = torch.zeros(self.mean.shape, dtype=torch.float64)
        self._scatter = torch.zeros(self.precision.shape, dtype=torch.float64)

    @torch.no_grad()
    def update(self, tokens: torch.Tensor) -> None:
        """
        Take in a batch of normal images, in float64 and without the cancellation of a plain sum of squares.

        Args:
            tokens: ``(B, L, D)``.

        Raises:
            ValueError: when L or D differ from the density's, or a token is NaN or infinite.
        """
        self._check_shape(tokens)
        finite = tokens.isfinite().flatten(1).all(1)
        if not finite.all():
            bad = (~finite).nonzero().flatten().tolist()
            raise ValueError(f"tokens of image(s) {bad} of the batch are NaN or infinite: exclude these images")
        if tokens.shape[0] == 0:
            return
        values = tokens.detach().to("cpu" if tokens.device.type == "mps" else tokens.device).double()
        mean, scatter = self._running_mean.to(values.device), self._scatter.to(values.device)
        batch_mean = values.mean(0)
        centred = (values - batch_mean).flatten(0, 1)
        shift = batch_mean - mean
        added = values.shape[0]
        total = self._count + added
        self._scatter = scatter + centred.T @ centred + (self._count * added / total) * (shift.T @ shift)
        self._running_mean = mean + shift * (added / total)
        self._count = total

    @torch.no_grad()
    def finalize(self, shrinkage: float = 0.01, all_ranks: bool = True) -> None:
        """
        Compute `mean` and `precision` from all updates so far; more updates and another call may follow.

        Args:
            shrinkage: λ in [0, 1], 0 for the plain covariance, 1 for a multiple of the identity.
            all_ranks: False covers the images of this process alone, for ranks that have all seen the same ones.

        Raises:
            ValueError: for a shrinkage out of range.
            RuntimeError: with fewer than two images, or when the covariance cannot be inverted.
        """
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage must be in [0, 1], got {shrinkage}")
        own = self._count, self._running_mean, self._scatter
        count, mean, scatter = self._of_all_ranks() if all_ranks and world_size() > 1 else own
        if count < 2:
            raise RuntimeError(f"the density has seen {count} image(s), a covariance needs at least 2: call update()")
        num_tokens, dim = mean.shape
        covariance = scatter / ((count - 1) * num_tokens)
        identity = torch.eye(dim, dtype=covariance.dtype, device=covariance.device)
        covariance = (1 - shrinkage) * covariance + shrinkage * covariance.trace() / dim * identity
        eigenvalues = torch.linalg.eigvalsh(covariance)
        if not eigenvalues[0] > dim * torch.finfo(torch.float64).eps * eigenvalues[-1]:
            raise RuntimeError(
                f"the covariance of {count} images' tokens is singular (eigenvalues from {eigenvalues[0]:.3g} to "
                f"{eigenvalues[-1]:.3g}, shrinkage {shrinkage}): fit on more images, or raise the shrinkage; if all "
                "tokens are equal, the network has collapsed"
            )
        self.mean.copy_(mean)
        self.precision.copy_(torch.cholesky_inverse(torch.linalg.cholesky(covariance)))
        self.num_images.fill_(count)

    @torch.no_grad()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Distances of new tokens: the larger, the more abnormal.

        Args:
            tokens: ``(B, L, D)``.

        Returns:
            ``(B, L)``, >= 0; float32 for half precision.

        Raises:
            RuntimeError: before :meth:`finalize` (or loading a finalized one).
            ValueError: when L or D differ from the density's.
        """
        # a graph cannot branch on a value
        if not torch.compiler.is_exporting() and self.num_images == 0:
            raise RuntimeError(
                "this TokenDensity has not been fitted: call update() on batches of normal images and then "
                "finalize(), or load the state dict of a finalized one"
            )
        self._check_shape(tokens)
        tokens = at_least_float32(tokens)
        difference = tokens - self.mean.to(tokens.dtype)
        # rounding must not turn a square root into NaN
        return ((difference @ self.precision.to(tokens.dtype)) * difference).sum(-1).clamp_min(0).sqrt()

    def extra_repr(self) -> str:
        """Sizes for ``print(network)``."""
        return f"num_tokens={self.mean.shape[0]}, dim={self.mean.shape[1]}, num_images={int(self.num_images)}"

    def _check_shape(self, tokens: torch.Tensor) -> None:
        if tokens.ndim != 3 or tokens.shape[1:] != self.mean.shape:
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)} instead of (B, L, D) with (L, D) = "
                f"{tuple(self.mean.shape)}: build the density for this encoder and leave out class tokens"
            )

    def _of_all_ranks(self) -> tuple[int, torch.Tensor, torch.Tensor]:
        # the collectives run where the module lives (a rank without images still has its sums on the CPU)
        running_mean = self._running_mean.to(self.mean.device)
        counts = all_reduce(torch.tensor([self._count], dtype=torch.float64, device=running_mean.device))
        mean = all_reduce(running_mean * self._count) / counts.clamp_min(1)
        shift = running_mean - mean
        scatter = all_reduce(self._scatter.to(shift.device) + self._count * (shift.T @ shift))
        return int(counts.item()), mean, scatter
