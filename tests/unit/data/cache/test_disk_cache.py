# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The choice of a cache: the same items from all, never a stale one, and only the deterministic part."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine, Events
from monai.data import DataLoader, Dataset, MetaTensor
from monai.transforms import (
    Compose,
    EnsureTyped,
    Lambdad,
    RandFlipd,
    RandGaussianNoised,
    Resized,
    Transform,
)
from PIL import Image

from monai_afire.data import cached_dataset
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.transforms import LoadRadiographd, StandardizeContrastd

CHOICES = ("memory", "disk", "disk16", "disk8", "none")
EXACT = ("memory", "disk", "none")


def write_image(path: Path, seed: int) -> dict[str, Any]:
    pixels = np.random.default_rng(seed).integers(0, 256, (48, 40), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return {"image": str(path), "label": [1, None, 0], "patient_id": f"p{seed}", "abnormal": 0}


@pytest.fixture
def items(tmp_path: Path) -> list[dict[str, Any]]:
    return [write_image(tmp_path / f"{number}.png", number) for number in range(4)]


def steps(size: int = 16, random: bool = True) -> Compose:
    fixed = [
        LoadRadiographd("image"),
        Resized("image", [size, size], mode="area", anti_aliasing=False),
    ]
    noise = [RandGaussianNoised("image", prob=1.0, std=0.1), RandFlipd("image", prob=0.5)]
    return Compose([*fixed, *(noise if random else [])])


def make(items: list[dict[str, Any]], choice: str, folder: Path, transform: Any = None) -> Dataset:
    transform = steps() if transform is None else transform
    return cached_dataset(items, transform, choice, folder / "cache", progress=False)


def texts_beside(path: str) -> str:
    """What the small files below the folder of a file hold."""
    files = sorted(Path(path).parent.rglob("*.*"))
    return "".join(file.read_text() for file in files if file.suffix != ".pt")


def stored(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("*.pt"))


def same(one: Any, other: Any) -> bool:
    """Equal in values and types, metadata included, whatever the nesting."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, MetaTensor) and not same(dict(one.meta), dict(other.meta)):
        return False
    if isinstance(one, (torch.Tensor, np.ndarray, np.generic)):
        is_close = np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")
        return one.dtype == other.dtype and is_close
    return one == other


# ---- the same items


@pytest.mark.parametrize("choice", EXACT)
def test_all_exact_choices_give_the_same_items_in_every_pass(
    choice: str, items: list[dict[str, Any]], tmp_path: Path
) -> None:
    expected = [steps(random=False)(dict(item)) for item in items]
    for _ in range(2):  # a second run finds the files of the first
        dataset = make(items, choice, tmp_path, steps(random=False))
        for _ in range(2):
            assert all(same(dataset[number], expected[number]) for number in range(4))
    assert len(stored(tmp_path)) == (4 if choice == "disk" else 0)


@pytest.mark.parametrize(("choice", "levels"), [("disk16", 65535), ("disk8", 255)])
def test_rounded_choices(
    choice: str, levels: int, items: list[dict[str, Any]], tmp_path: Path
) -> None:
    chain = steps(128, random=False)
    for made_or_read in range(2):
        for number, item in enumerate(make(items, choice, tmp_path, chain)):
            exact = chain(dict(items[number]))
            assert 0 < (item["image"] - exact["image"]).abs().max() <= 0.5001 / levels, made_or_read
            assert item["image"].dtype == torch.float32
            assert same(item["label"], exact["label"])
    # a picture of 8 bits that is not scaled is stored without loss
    loaded = Compose([LoadRadiographd("image")])
    for _ in range(2):
        assert same(make(items, choice, tmp_path, loaded)[0], loaded(dict(items[0])))


class Replace(Transform):
    """Gives the same item for each image."""

    def __init__(self, item: dict[Any, Any]) -> None:
        self.item = item

    def __call__(self, item: dict[str, Any]) -> dict[Any, Any]:
        return dict(self.item)


def test_items_of_every_kind_survive(tmp_path: Path) -> None:
    meta = {"spacing": np.array([np.nan, 1.0]), "space": "RAS"}
    item = {
        "nested": {"list": [1, 2.5, "text", None, True], "tuple": (np.float32(0.1), np.int64(3))},
        "array": np.arange(6, dtype=np.uint16).reshape(2, 3)[:, ::2],
        "view": torch.rand(100, 100)[:2, :2],
        "wide": torch.tensor([[[0.1, 1.5]]]),  # no image in [0, 1]: not rounded
        "negative": torch.tensor([[[-0.1, 0.5]]]),
        "vector": torch.tensor([0.1, 0.3]),
        3: torch.tensor([1, 2]),
        "meta": MetaTensor(torch.rand(2, 4), meta=meta),
    }
    dataset = make([{"image": "a"}], "disk8", tmp_path, Compose([Replace(item)]))
    for _ in range(2):  # made, and read
        assert same(dataset[0], item)
    assert stored(tmp_path)[0].stat().st_size < 20_000
    with pytest.raises(TypeError, match="cache='memory'"):
        make([{"image": "a"}], "disk", tmp_path, Compose([Replace({"a": {1, 2}})]))[0]


# ---- never stale


class Darken(Transform):
    """A deterministic transform with a setting."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "image": item["image"] * self.factor}


def test_a_changed_setting_or_transform_makes_new_files(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    load, resize = steps(random=False).transforms
    chains = [
        [load],
        [load, resize],
        steps(17, False).transforms,
        [load, resize, StandardizeContrastd("image", window=0.2)],
        [load, resize, Darken(0.5)],
        [load, resize, Darken(0.25)],
    ]
    for count, chain in enumerate(chains, start=1):
        dataset = make(items, "disk", tmp_path, Compose(chain))
        for _ in range(2):
            assert same(dataset[0], Compose(chain)(dict(items[0])))
        assert len(stored(tmp_path)) == count


def test_changed_code_makes_new_files(
    items: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "own_transforms.py"
    source.write_text("def change(image):\n    return image\n")
    change = import_module("own_transforms").change
    chain = Compose([LoadRadiographd("image"), Lambdad("image", change)])
    for comment, count in (("", 1), ("", 1), ("# changed\n", 2)):
        source.write_text(source.read_text() + comment)
        make(items, "disk", tmp_path, chain)[0]
        assert len(stored(tmp_path)) == count


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_changed_image_or_item_is_read_again(
    items: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "relative":
        monkeypatch.chdir(tmp_path)
        items = [{**item, "image": Path(item["image"]).name} for item in items]
    make(items, "disk", tmp_path)[0]
    path = Path(items[0]["image"])
    before = path.stat()
    write_image(path, seed=99)
    # even if the clock has not moved
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    chain = steps(random=False)
    assert same(make(items, "disk", tmp_path, chain)[0], chain(dict(items[0])))
    relabeled = [{**items[1], "label": [0, 0, 0]}]
    assert make(items, "disk", tmp_path)[1]["label"] == [1, None, 0]
    assert make(relabeled, "disk", tmp_path)[0]["label"] == [0, 0, 0]


@pytest.mark.parametrize("pixels", ["a.raw", "a.zraw"])
def test_pixels_beside_the_named_file_are_read_again(pixels: str, tmp_path: Path) -> None:
    contents = []
    for content in ("before", "after it"):
        for name in ("a.mhd", pixels):
            (tmp_path / name).write_text("before" if name == "a.mhd" else content)
        chain = Compose([Lambdad("image", texts_beside)])
        dataset = make([{"image": str(tmp_path / "a.mhd")}], "disk", tmp_path, chain)
        contents.append(dataset[0]["image"])
    assert contents[0] != contents[1]


@pytest.mark.parametrize("damage", [b"no archive", "cut", "zeros"])
def test_damaged_files_are_made_anew(
    damage: bytes | str, items: list[dict[str, Any]], tmp_path: Path
) -> None:
    expected = make(items, "disk", tmp_path, steps(random=False))[0]
    [path] = stored(tmp_path)
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-300], "zeros": bytes(len(content))}.get(damage, damage))  # type: ignore[call-overload]
    with pytest.warns(UserWarning, match="damaged, made anew"):
        assert same(make(items, "disk", tmp_path, steps(random=False))[0], expected)
    assert same(make(items, "disk", tmp_path, steps(random=False))[0], expected)


def test_a_file_with_code_in_it_is_not_run(items: list[dict[str, Any]], tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "hacked"),)

    make(items, "disk", tmp_path)[0]
    torch.save(Hostile(), stored(tmp_path)[0])
    with pytest.warns(UserWarning, match="damaged, made anew"):
        make(items, "disk", tmp_path)[0]
    assert not (tmp_path / "hacked").exists()


# ---- the random part


def epochs(
    dataset: Dataset, count: int, after: int = 0, num_workers: int = 0
) -> list[torch.Tensor]:
    """The images of each epoch, from the epoch behind ``after`` on."""
    loader = DataLoader(dataset, batch_size=2, shuffle=True, num_workers=num_workers)
    batches: list[torch.Tensor] = []
    engine = Engine(lambda engine, batch: batches.append(torch.as_tensor(batch["image"]).clone()))
    EpochSeed(3).attach(engine)
    if after:
        state = {"epoch": after, "epoch_length": 2, "max_epochs": count}
        engine.add_event_handler(Events.STARTED, lambda: engine.load_state_dict(state))
    engine.run(loader, max_epochs=count)
    return [torch.cat(batches[i : i + 2]) for i in range(0, len(batches), 2)]


@pytest.mark.parametrize("choice", CHOICES)
def test_random_part_differs_by_epoch_and_resumes(
    choice: str, items: list[dict[str, Any]], tmp_path: Path
) -> None:
    plain = [{"image": item["image"]} for item in items]
    chain = Compose([*steps().transforms, EnsureTyped("image", track_meta=False)])
    first, second, third = epochs(make(plain, choice, tmp_path, chain), 3)
    assert not torch.equal(first, second)
    expected = make(plain, "none" if choice in EXACT else choice, tmp_path, chain)
    assert torch.equal(*epochs(expected, 3, after=2), third)


# ---- errors


def test_settings_that_make_no_cache_are_refused(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="memory"):
        cached_dataset(items, steps(), "ram")
    with pytest.raises(ValueError, match="cache_dir"):
        cached_dataset(items, steps(), "disk")
    with pytest.raises(ValueError, match="lambda"):
        make(items, "disk", tmp_path, Compose([Lambdad("image", lambda image: image)]))
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        make(items, "disk", tmp_path)


def test_nested_compositions_are_cached_like_one_list(items: list[dict[str, Any]]) -> None:
    counted: list[Any] = []
    reading = Compose([LoadRadiographd("image"), Compose([])])
    count = Lambdad("image", lambda image: counted.append(0) or image)
    nested = Compose([reading, count, RandFlipd("image", prob=0.5)])
    dataset = cached_dataset(items, nested, "memory", num_workers=1, progress=False)
    for _ in range(3):
        _ = dataset[0]
    assert len(counted) == len(items)
