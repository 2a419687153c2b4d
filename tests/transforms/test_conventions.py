# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""MONAI's conventions: names in pairs, modules that say what is public, probabilities."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from monai.transforms import MapTransform, RandomizableTrait

import monai_afire
from monai_afire import transforms

IMAGE = torch.rand(1, 32, 48, generator=torch.Generator().manual_seed(0))
OCCASIONAL: dict[str, Callable[[float], Any]] = {
    "SynthLesionMask": lambda prob: transforms.SynthLesionMask(num_masks=2, prob=prob),
    "AnatPaste": lambda prob: transforms.AnatPaste(num_masks=2, prob=prob),
    "CutPaste": lambda prob: transforms.CutPaste(num_masks=2, prob=prob),
    "ShufflePatches": lambda prob: transforms.ShufflePatches(patch_size=8, prob=prob),
    "DistortAppearance": lambda prob: transforms.DistortAppearance(prob=prob),
    "SoftNodule": lambda prob: transforms.SoftNodule(contrast=0.9, diameter=0.4, prob=prob),
}


def public_classes() -> dict[str, type]:
    return {
        name: value
        for name in transforms.__all__
        if inspect.isclass(value := getattr(transforms, name))
    }


def first_image(outputs: Any) -> torch.Tensor:
    """The image of an array transform's outputs, the first one of several variants."""
    image = outputs[0] if isinstance(outputs, tuple) else outputs
    return image[0] if image.ndim == 4 else image


def test_all_modules_are_imported_and_packages_say_what_is_public() -> None:
    for info in pkgutil.walk_packages(monai_afire.__path__, "monai_afire."):
        if not info.name.endswith("__main__"):
            module = import_module(info.name)
            public = module.__all__ if info.name.count(".") == 1 else getattr(module, "__all__", [])
            assert [name for name in public if not hasattr(module, name)] == [], info.name


def test_dictionary_transforms_have_their_aliases() -> None:
    dictionary = {
        name: value for name, value in public_classes().items() if issubclass(value, MapTransform)
    }
    assert len(dictionary) > 45
    for name, value in dictionary.items():
        base = name.removesuffix("Dict") if name.endswith("Dict") else name[:-1]
        assert name in (f"{base}d", f"{base}D", f"{base}Dict")
        assert {dictionary.get(f"{base}{ending}") for ending in ("d", "D", "Dict")} == {value}


def test_random_transforms_are_seeded_as_monai_s_are() -> None:
    random = {value for value in public_classes().values() if issubclass(value, RandomizableTrait)}
    assert len(random) > 12
    for value in random:
        assert value.backend, value


@pytest.mark.parametrize("name", OCCASIONAL)
def test_probability_of_a_transform(name: str) -> None:
    make = OCCASIONAL[name]
    for prob, expected in ((0.0, 40), (1.0, 0)):
        transform = make(prob).set_random_state(seed=0)
        assert transform.prob == prob
        assert sum(torch.equal(first_image(transform(IMAGE)), IMAGE) for _ in range(40)) == expected
    transform = make(0.5).set_random_state(seed=0)
    unchanged = [torch.equal(first_image(transform(IMAGE)), IMAGE) for _ in range(40)]
    assert 8 <= sum(unchanged) <= 32
    again = torch.equal(first_image(transform(IMAGE, randomize=False)), IMAGE)
    assert again == unchanged[-1], "a repetition acts, or not, as the last call"


def test_what_is_left_alone_has_no_lesion_and_shares_no_memory() -> None:
    images, maps = transforms.CutPaste(num_masks=3, prob=0.0)(IMAGE)
    assert (tuple(images.shape), tuple(maps.shape), float(maps.max())) == (
        (3, 1, 32, 48),
        (3, 1, 32, 48),
        0.0,
    )
    copy, mask = transforms.SoftNodule(prob=0.0)(IMAGE)
    assert (mask.dtype, bool(mask.any())) == (torch.bool, False)
    before = IMAGE.clone()
    for result in (images, copy, transforms.DistortAppearance(prob=0.0)(IMAGE)):
        result += 1
    assert torch.equal(IMAGE, before)


def test_keys_of_a_dictionary_share_whether_to_act() -> None:
    transform = transforms.SynthLesionMaskd(
        ["a", "b"], prob=0.5, lesion_key=["la", "lb"], mask_key=["ma", "mb"]
    )
    transform.set_random_state(seed=0)
    acted = []
    for _ in range(20):
        data = transform({"a": IMAGE, "b": IMAGE})
        acted.append(bool(data["ma"].any()))
        assert bool(data["mb"].any()) == acted[-1]
    assert 0 < sum(acted) < 20
