# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Parameter groups with and without weight decay, with learning rates by layer, and the rate that fits a batch size."""

from __future__ import annotations

from typing import Any

from torch import nn

from monai_afire.utils.distributed import world_size

# learned tokens and positions: cls_token, mask_tokens, register_tokens, pos_embed and so on
_NOT_DECAYED = ("token", "tokens", "position_embeddings", "pos_embed")
_REFERENCE_BATCH = 256


def is_decayed(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies to a parameter."""
    return parameter.ndim > 1 and not name.endswith(_NOT_DECAYED)


def weight_decay_groups(
    network: nn.Module, weight_decay: float | None = 0.04
) -> list[dict[str, Any]]:
    """
    Split the trainable parameters into those with weight decay and those without, by :func:`is_decayed`.

    Args:
        network: only its parameters with ``requires_grad`` count.
        weight_decay: decay of the first group; None leaves it to the optimizer.

    Returns:
        Two groups for an optimizer: decayed first, not decayed second. A schedule of the decay sets the first.

    Example:
        >>> groups = weight_decay_groups(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)), weight_decay=0.1)
        >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
        [(1, 0.1), (3, 0.0)]
    """
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            group = decayed if is_decayed(name, parameter) else exempt
            group.append(parameter)
    own = {} if weight_decay is None else {"weight_decay": weight_decay}
    return [{"params": decayed, **own}, {"params": exempt, "weight_decay": 0.0}]


def layer_decay_groups(
    network: nn.Module, learning_rate: float, weight_decay: float = 0.05, layer_decay: float = 0.75
) -> list[dict[str, Any]]:
    r"""
    Parameter groups with one learning rate per layer, as BEiT (Bao et al., ICLR 2022) and MAE are fine-tuned.

    The learning rate of block l of n in the encoder is

    .. math:: \eta_l = \eta \, d^{\,n + 1 - l}, \qquad l = 1, \dots, n

    with the rate :math:`\eta` of the heads and the decay d; patch and position embedding are l = 0. The encoder's last
    norm and everything outside of it (heads, necks) have :math:`\eta` itself. A Swin's blocks are counted through its
    stages, a merge of patches belongs to the block before it. Weight decay follows
    :func:`monai_afire.optimizers.parameter_groups.is_decayed`.

    Args:
        network: a network with an encoder anywhere in it, or an encoder. Only its parameters with ``requires_grad``
            count, so a frozen encoder or teacher has no group.
        learning_rate: η, of the heads.
        weight_decay: of the parameters that are decayed.
        layer_decay: d in (0, 1]; 1 gives every layer the same rate.

    Returns:
        Groups for an optimizer, lowest rate first, each with "params", "lr", "weight_decay" and "lr_scale", the
        factor :math:`d^{n + 1 - l}`, by which a schedule that sets rates must multiply them (PyTorch's need not).

    Raises:
        ValueError: when the layer decay is not in (0, 1], or the network has no encoder.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=2, num_heads=2)
        >>> groups = layer_decay_groups(nn.ModuleDict({"encoder": encoder}), 1e-3, layer_decay=0.5)
        >>> [(group["lr_scale"], group["weight_decay"]) for group in groups]
        [(0.125, 0.05), (0.125, 0.0), (0.25, 0.05), (0.25, 0.0), (0.5, 0.05), (0.5, 0.0), (1.0, 0.0)]
    """
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay must be in (0, 1], got {layer_decay}")
    layers_above = _layers_above(network) if layer_decay < 1 else {}
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        above, decayed = layers_above.get(id(parameter), 0), is_decayed(name, parameter)
        scale = layer_decay**above
        new_group = {
            "params": [],
            "lr": learning_rate * scale,
            "weight_decay": weight_decay if decayed else 0.0,
            "lr_scale": scale,
        }
        groups.setdefault((-above, not decayed), new_group)["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def _layers_above(network: nn.Module) -> dict[int, int]:
    """By the parameter's id: from the patch embedding n + 1, the first block n, ... to the last block 1."""
    encoders: list[Any] = [
        module for module in network.modules() if hasattr(module, "parameters_by_depth")
    ]
    if not encoders:
        found = f"{type(network).__name__} has no ViTEncoder, SwinEncoder or adapted encoder"
        raise ValueError(f"{found}: use weight_decay_groups for other networks")
    layers_above: dict[int, int] = {}
    for encoder in encoders:
        for above, parameters in enumerate(reversed(encoder.parameters_by_depth()), start=1):
            layers_above.update({id(parameter): above for parameter in parameters})
    return layers_above


def scaled_lr(base: float, batch_size: int, accumulation_steps: int = 1) -> float:
    r"""
    Linear scaling rule: the learning rate grows with the global batch.

    .. math:: base \cdot batch\_size \cdot accumulation\_steps \cdot processes / 256

    Goyal et al., *Accurate, Large Minibatch SGD*, 2017.

    Args:
        base: learning rate for 256 images.
        batch_size: images per process and pass.
        accumulation_steps: passes per optimizer step.

    Returns:
        The learning rate for all processes of the run.

    Example:
        >>> scaled_lr(0.0005, 512)
        0.001
    """
    return base * batch_size * accumulation_steps * world_size() / _REFERENCE_BATCH
