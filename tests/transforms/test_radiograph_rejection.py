# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One bad file among thousands: a black picture and a reason in its place."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import DataLoader, Dataset, MetaTensor, set_track_meta
from monai.transforms import Compose, EnsureTyped, Resized
from PIL import Image
from radiograph_files import GRAY8, GRAY12, UNIT, refused, write_dicom

from monai_afire.apps.intake.radiograph_description import DescribeRadiographd
from monai_afire.transforms.radiograph_io.common import RadiographError
from monai_afire.transforms.radiograph_loading import LoadRadiograph, LoadRadiographd


def good(folder: Path) -> str:
    Image.fromarray(GRAY8).save(folder / "good.png")
    return str(folder / "good.png")


def cut(folder: Path) -> None:
    content = Path(good(folder)).read_bytes()
    (folder / "bad.png").write_bytes(content[: len(content) // 2])


def text(folder: Path) -> None:
    (folder / "bad.png").write_text("not a picture")


def empty(folder: Path) -> None:
    (folder / "bad.png").touch()


def is_folder(folder: Path) -> None:
    (folder / "bad.png").mkdir()


def tiny(folder: Path) -> None:
    Image.fromarray(GRAY8[:5, :5]).save(folder / "bad.png")


def no_pixels(folder: Path) -> None:
    write_dicom(folder / "bad.png", GRAY12[:0])


def missing(folder: Path) -> None:
    """Nothing is there."""


def broken_link(folder: Path) -> None:
    os.symlink(folder / "nowhere.png", folder / "bad.png")


MAKERS: list[Callable[[Path], None]] = [
    cut,
    text,
    empty,
    is_folder,
    tiny,
    no_pixels,
    missing,
    broken_link,
]


def loaded(path: Any, **arguments: Any) -> dict[Any, Any]:
    return LoadRadiographd("image", rejected_key="rejected", **arguments)(
        {"image": path, "label": 1}
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.filterwarnings("ignore::monai_afire.transforms.radiograph_io.common.RadiographWarning")
def test_bad_files_give_a_black_picture_and_the_reason(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path)
    path = tmp_path / "bad.png"
    item = loaded(str(path))
    # what the loader itself says, one line with the file's name
    assert item["rejected"] == refused(path)
    assert item["label"] == 1
    assert isinstance(item["image"], MetaTensor)
    assert item["image"].shape == (1, 32, 32)
    assert item["image"].dtype == torch.float32
    assert not item["image"].any()
    assert item["image"].meta["filename_or_obj"] == str(path)


def test_good_files_are_loaded_as_ever(tmp_path: Path) -> None:
    path = good(tmp_path)
    item = loaded(path)
    assert item["rejected"] == ""
    expected = LoadRadiographd("image")({"image": path})["image"]
    assert isinstance(expected, MetaTensor)
    assert torch.equal(item["image"].as_tensor(), expected.as_tensor())
    np.testing.assert_allclose(item["image"][0], UNIT, atol=1e-6)
    assert "rejected" not in LoadRadiographd("image")({"image": path})
    again = LoadRadiographd("image", rejected_key="rejected")(
        {"image": path, "rejected": "of an earlier run"}
    )
    assert again["rejected"] == ""


def test_without_the_key_bad_files_are_errors(tmp_path: Path) -> None:
    empty(tmp_path)
    with pytest.raises(RadiographError, match="is empty"):
        LoadRadiographd("image")({"image": str(tmp_path / "bad.png")})


@pytest.mark.parametrize("name", ["good.png", "good.dcm"])
def test_metadata_is_of_one_kind(tmp_path: Path, name: str) -> None:
    good(tmp_path)
    write_dicom(tmp_path / "good.dcm", GRAY12, bits=12)
    accepted = loaded(str(tmp_path / name))["image"].meta
    rejected = loaded(str(tmp_path / "bad.png"))["image"].meta
    assert list(rejected) == list(accepted)
    for key, value in accepted.items():
        assert type(rejected[key]) is type(value), key
        assert np.shape(rejected[key]) == np.shape(value), key
        assert getattr(rejected[key], "dtype", None) == getattr(value, "dtype", None), key


@pytest.mark.parametrize("num_workers", [0, 1])
def test_good_and_bad_files_make_one_batch(tmp_path: Path, num_workers: int) -> None:
    cut(tmp_path)
    write_dicom(tmp_path / "good.dcm", GRAY12, bits=12)
    paths = [str(tmp_path / name) for name in ("good.png", "bad.png", "good.dcm", "missing.png")]
    transform = Compose(
        [
            LoadRadiographd("image", rejected_key="rejected"),
            DescribeRadiographd("image", picture_size=16),
            Resized("image", (24, 24)),
        ]
    )
    items = [{"image": path, "index": number} for number, path in enumerate(paths)]
    first, second = DataLoader(Dataset(items, transform), batch_size=2, num_workers=num_workers)
    for batch, (accepted, rejected) in ((first, paths[:2]), (second, paths[2:])):
        assert batch["image"].shape == (2, 1, 24, 24)
        assert batch["image"][0].any()
        assert not batch["image"][1].any()
        assert batch["rejected"][0] == ""
        assert batch["rejected"][1].startswith(rejected)
        assert batch["image"].meta["filename_or_obj"] == [accepted, rejected]
        assert batch["spatial_shape"].tolist() == [[*UNIT.shape], [32, 32]]
        assert batch["picture"].shape == (2, 1, 16, 16)
    assert torch.cat([first["index"], second["index"]]).tolist() == [0, 1, 2, 3]


def test_batches_without_metadata(tmp_path: Path) -> None:
    transform = Compose(
        [
            LoadRadiographd("image", rejected_key="rejected"),
            Resized("image", (24, 24)),
            EnsureTyped("image", track_meta=False),
        ]
    )
    items = [{"image": good(tmp_path)}, {"image": "missing.png"}]
    (batch,) = DataLoader(Dataset(items, transform), batch_size=2)
    assert type(batch["image"]) is torch.Tensor
    assert batch["image"].shape == (2, 1, 24, 24)
    set_track_meta(False)
    try:
        assert type(loaded("missing.png")["image"]) is torch.Tensor
    finally:
        set_track_meta(True)


@pytest.mark.parametrize(
    "arguments", [{"min_size": 40}, {"scaling": "none", "dtype": torch.uint8}, {"min_size": 1}]
)
def test_black_picture_is_one_that_the_loader_accepts(arguments: dict[str, Any]) -> None:
    side = arguments.get("min_size", 32)
    image = loaded("missing.png", **arguments)["image"]
    assert image.shape == (1, side, side)
    assert image.dtype == arguments.get("dtype", torch.float32)
    assert image.meta["spatial_shape"].tolist() == [side, side]


ODD_NAMES: list[Any] = [
    None,
    3,
    "",
    "a\x00b.png",
    "\udcff.png",
    "\ud800.png",
    "new\nline.png",
    "x" * 5000 + ".png",
    [],
    ["a.png", "b.png"],
    [None],
    {"image": "a.png"},
    b"a.png",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_rejected_like_odd_files(name: Any) -> None:
    item = loaded(name)
    assert item["rejected"]
    assert "\n" not in item["rejected"].replace(str(name), "")
    assert not item["image"].any()
    with pytest.raises(RadiographError):
        LoadRadiograph()(name)


def test_a_list_of_one_file_is_the_file(tmp_path: Path) -> None:
    assert loaded([good(tmp_path)])["rejected"] == ""
    item = loaded([str(tmp_path / "missing.png")])
    assert item["rejected"].startswith(str(tmp_path / "missing.png"))
    assert item["image"].meta["filename_or_obj"] == str(tmp_path / "missing.png")


def test_several_keys(tmp_path: Path) -> None:
    transform = LoadRadiographd(["image", "mask"], rejected_key="rejected", allow_missing_keys=True)
    path = good(tmp_path)
    assert transform({"image": path})["rejected"] == ""
    for bad_key, good_key in (("image", "mask"), ("mask", "image")):
        item = transform({bad_key: "missing.png", good_key: path})
        assert "missing.png" in item["rejected"]
        assert item[good_key].any()
        assert not item[bad_key].any()
    assert transform({"label": 1}) == {"label": 1, "rejected": ""}
    with pytest.raises(KeyError):
        LoadRadiographd(["image", "mask"], rejected_key="rejected")({"image": path})


def test_item_is_left_as_it_is() -> None:
    item: dict[Any, Any] = {"image": "missing.png", "rejected": "of an earlier run"}
    LoadRadiographd("image", rejected_key="rejected")(item)
    assert item == {"image": "missing.png", "rejected": "of an earlier run"}


def test_every_bad_file_of_the_collection(shared_data: Path) -> None:
    """The same files are rejected as raise an error, and every one of them goes into a batch with a good one."""
    with open(shared_data / "bad" / "cases.csv", encoding="utf-8", newline="") as stream:
        names = [
            row["file"].rstrip("/") for row in csv.DictReader(stream) if row["kind"] == "image"
        ]
    assert len(names) > 20
    transform = Compose(
        [LoadRadiographd("image", rejected_key="rejected"), Resized("image", (16, 16))]
    )
    ok = {"image": str(shared_data / "bad" / "ok.png")}
    num_rejected = 0
    for name in names:
        path = str(shared_data / "bad" / name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (batch,) = DataLoader(Dataset([ok, {"image": path}], transform), batch_size=2)
            try:
                LoadRadiograph()(path)
                reason = ""
            except RadiographError as error:
                reason = str(error)
        assert batch["rejected"] == ["", reason]
        assert batch["image"].shape == (2, 1, 16, 16)
        num_rejected += bool(reason)
    assert 10 < num_rejected < len(names)
