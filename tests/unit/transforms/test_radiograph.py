# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""LoadRadiograph and LoadRadiographd: intensities, metadata, batches, files that are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.data import DataLoader, Dataset, set_track_meta
from monai.transforms import Compose, EnsureChannelFirstd, Resized
from PIL import Image

from monai_afire.transforms import (
    LoadRadiograph,
    LoadRadiographd,
    RadiographError,
    RadiographWarning,
)
from unit.transforms.radiograph_files import (
    GRAY8,
    GRAY12,
    GRAY16,
    HEIGHT,
    UNIT,
    WIDTH,
    load,
    metadata,
    refused,
    write_dicom,
)

pytestmark = pytest.mark.filterwarnings("error::monai_afire.transforms.RadiographWarning")


def good(folder: Path) -> str:
    Image.fromarray(GRAY8).save(folder / "good.png")
    return str(folder / "good.png")


# ---- intensities


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], (0, 255)),
        ([0, 256], (0, 511)),
        ([0, 4095], (0, 4095)),
        ([0, 4096], (0, 8191)),
        ([0, 65535], (0, 65535)),
        ([-1000, 2000], (-1000, 3095)),
        ([0.0, 1.0], (0, 1)),
        ([-0.004, 1.0], (0, 1)),
        ([0.0, 1.5], (0, 1.5)),
        ([-2.0, 2.5], (-2, 2.5)),
        ([0.0, 3.0], (0, 255)),  # whole numbers: 8 bits
        ([0.0, 200.5], (0, 255)),
        ([0.0, 4096.5], (0, 4095)),  # overshoot of an interpolation
    ],
)
def test_depth_is_the_range_of_the_detector(values: list, expected: tuple[float, float]) -> None:
    """The fewest bits, at least 8, that hold the picture; fractions do not change."""
    image: Any = LoadRadiograph(min_size=1).from_memory(np.array([values]))
    np.testing.assert_allclose(image.meta["intensity_range"], expected)
    shown = (np.array(values) - expected[0]) / (expected[1] - expected[0])
    np.testing.assert_allclose(image[0, 0], np.clip(shown, 0, 1), atol=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["depth", "range"]), st.sampled_from("uif"))
def test_scaling_reports_its_range(seed: int, scaling: str, kind: str) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.integers(*((0, 60000) if kind == "u" else (-3000, 30000)), 2))
    values = rng.integers(low, high + 2, (8, 9)).astype(f"{kind}{4 if kind == 'f' else 2}")
    values[0, :2] = low, high + 1
    before = values.copy()
    image: Any = LoadRadiograph(scaling, min_size=1).from_memory(values)
    np.testing.assert_array_equal(values, before)
    black, white = image.meta["intensity_range"]
    expected = np.clip((values.astype(float) - black) / (white - black), 0, 1)
    np.testing.assert_allclose(image[0], expected, atol=1e-5)
    assert scaling == "depth" or (black, white) == (low, high + 1)


def test_bad_pixels_are_repaired_and_counted(tmp_path: Path) -> None:
    values = 0.2 + 0.5 * UNIT
    bad = values.copy()
    bad[0, :3], bad[5, 5], bad[6, 6] = np.nan, np.inf, -np.inf
    nib.Nifti1Image(bad.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    with pytest.warns(RadiographWarning, match="5 pixels"):
        found = load(tmp_path / "a.nii")
    finite = values[np.isfinite(bad)]
    np.testing.assert_allclose(found[np.isfinite(bad)], finite, atol=1e-6)
    assert found[5, 5] == pytest.approx(finite.max(), abs=1e-6)
    assert found[6, 6] == found[0, 0] == pytest.approx(finite.min(), abs=1e-6)


@pytest.mark.parametrize("last", [np.inf, 1e308])
def test_numbers_whose_difference_is_infinite_are_refused(tmp_path: Path, last: float) -> None:
    """They made the picture NaN, which a detector called normal."""
    values = np.full((40, 40), -last)
    values[:20] = last
    nib.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / "a.nii")
    refused(tmp_path / "a.nii")


def test_label_maps_keep_their_numbers(tmp_path: Path) -> None:
    labels = (GRAY8 // 60).astype(np.uint8)
    palette = Image.fromarray(labels).convert("P")
    palette.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255] + [0] * 756)
    palette.putdata(labels.ravel().tolist())
    palette.save(tmp_path / "palette.png")
    Image.fromarray(labels).save(tmp_path / "gray.png")
    nib.Nifti1Image(labels.T, np.eye(4)).to_filename(tmp_path / "a.nii")
    for name in ("palette.png", "gray.png", "a.nii"):
        found = LoadRadiograph(scaling="none", dtype=torch.uint8)(tmp_path / name)
        assert found.dtype == torch.uint8
        np.testing.assert_array_equal(np.asarray(found)[0], labels)
    rescale = {"RescaleSlope": 2, "RescaleIntercept": -7, "WindowCenter": 9, "WindowWidth": 9}
    path = write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, **rescale)
    np.testing.assert_allclose(load(path, scaling="none"), 2.0 * GRAY12 - 7)


# ---- arguments, metadata, memory


@pytest.mark.parametrize(
    "arguments",
    [{"scaling": "auto"}, {"min_size": 0}, {"max_pixels": 0}, {"max_aspect": 0.5}, {"channels": 2}],
)
def test_wrong_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        LoadRadiograph(**arguments)


def test_sizes_are_limited(tmp_path: Path) -> None:
    path = Path(good(tmp_path))
    odd = {"min_size": HEIGHT + 1, "max_aspect": 1.2, "max_pixels": WIDTH * HEIGHT - 1}
    for name, value in odd.items():
        assert name in refused(path, **{name: value})
    load(path, min_size=HEIGHT, max_aspect=1.4, max_pixels=WIDTH * HEIGHT)


def test_output(tmp_path: Path) -> None:
    path = Path(good(tmp_path))
    meta = metadata([str(path)])
    assert (meta["filename_or_obj"], meta["original_channel_dim"]) == (str(path), 0)
    np.testing.assert_array_equal(meta["spatial_shape"], (HEIGHT, WIDTH))
    set_track_meta(False)
    try:
        assert type(LoadRadiograph()(path)) is torch.Tensor
    finally:
        set_track_meta(True)


def test_pictures_in_memory_are_those_of_files(tmp_path: Path) -> None:
    colors = np.stack([GRAY8, GRAY8[::-1], 255 - GRAY8], axis=-1)
    for picture in (GRAY8, GRAY8[None], torch.as_tensor(GRAY8), Image.fromarray(GRAY8), GRAY16):
        np.testing.assert_allclose(LoadRadiograph().from_memory(picture)[0], UNIT, atol=1e-6)
    expected = np.moveaxis(colors, -1, 0) / 255
    for picture in (colors, np.moveaxis(colors, -1, 0), Image.fromarray(colors)):
        image = LoadRadiograph(channels=3).from_memory(picture)
        np.testing.assert_allclose(image, expected, atol=1e-6)
    for wrong in ([1, 2], GRAY8[0], GRAY8[:5], np.zeros((40, 40, 4)), GRAY8 * 1j):
        with pytest.raises(RadiographError):
            LoadRadiograph().from_memory(wrong)


# ---- items and batches


def test_dictionary_version(tmp_path: Path) -> None:
    path = good(tmp_path)
    item: dict[Any, Any] = {"image": path, "prior": path, "label": 1}
    before = dict(item)
    loaded = LoadRadiographd(("image", "prior"), scaling="range", file_key="file")(item)
    assert item == before
    assert (loaded["label"], loaded["file"]) == (1, path)
    for key in ("image", "prior"):
        np.testing.assert_array_equal(loaded[key], LoadRadiograph(scaling="range")(path))


def test_good_and_bad_files_of_all_formats_make_one_batch(tmp_path: Path) -> None:
    content = Path(good(tmp_path)).read_bytes()
    (tmp_path / "bad.png").write_bytes(content[: len(content) // 2])
    write_dicom(tmp_path / "a.dcm", GRAY12, bits=12, PixelSpacing=[0.2, 0.1])
    nib.Nifti1Image(GRAY16.T, np.eye(4)).to_filename(tmp_path / "a.nii.gz")
    names = ["good.png", "bad.png", "a.dcm", "missing.png", "a.nii.gz"]
    paths = [str(tmp_path / name) for name in names]
    items = [{"image": path, "rejected": "of an earlier run"} for path in paths]
    load_image = LoadRadiographd("image", rejected_key="rejected")
    steps = Compose([load_image, EnsureChannelFirstd("image"), Resized("image", (32, 48))])
    [batch] = DataLoader(Dataset(items, steps), batch_size=5)
    assert batch["image"].shape == (5, 1, 32, 48)
    assert batch["image"].meta["filename_or_obj"] == paths
    np.testing.assert_allclose(batch["image"].meta["spacing"][2], (0.2, 0.1))
    bad = [tmp_path / name for name in ("bad.png", "missing.png")]
    assert [not image.any() for image in batch["image"]] == [Path(path) in bad for path in paths]
    assert batch["rejected"] == ["", refused(bad[0]), "", refused(bad[1]), ""]
    with pytest.raises(RadiographError):
        LoadRadiographd("image")(items[1])
