# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Every file of shared/data/samples and shared/data/bad gives what its README says."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest
from monai.data import MetaTensor

from monai_afire.transforms.radiograph_io.common import RadiographError, RadiographWarning
from monai_afire.transforms.radiograph_loading import LoadRadiograph, LoadRadiographd

# Largest difference from the reference in gray levels; the JPEG ones are lossy.
SAME_AS_GRAY8 = {
    "gray8.png": 0.01,
    "gray16.png": 0.6,
    "gray16_low12.png": 0.6,
    "rgb8.png": 0.01,
    "rgba8.png": 0.01,
    "la8.png": 0.01,
    "palette8.png": 0.01,
    "Näme with späces (PA).PNG": 0.01,
    "float32.tif": 0.6,
    "image_hw1.nii.gz": 0.6,
    "image_2d_float.nii": 0.6,
    "mono2_12bit_nowindow.dcm": 0.6,
    "mono2_16bit_signed.dcm": 0.6,
    "IM-0001-0001": 0.6,
    "no_preamble.dcm": 0.6,
    "mono2_12bit_rle.dcm": 0.6,
}
LOSSY = ("rgb8.jpg", "exif_orientation6.jpg", "mono2_8bit_jpeg.dcm", "mono1_8bit_jpeg.dcm")
WINDOWED = (
    "mono2_12bit_window.dcm",
    "mono1_12bit_window.dcm",
    "mono2_12bit_two_windows.dcm",
    "expected_window_8bit.png",
)
SHAPES = {
    "00000001_000.png": (512, 512),
    "00027426_000.png": (512, 512),
    "00001323_001.png": (1024, 1024),
    "00000773_001.png": (1024, 1024),
    "nonsquare16.tif": (512, 416),
    "landscape8.png": (320, 512),
}
REFUSED = {
    "zero_byte.png": "empty",
    "truncated.png": "cut or damaged",
    "truncated.jpg": "cut or damaged",
    "corrupt_idat.png": "cut or damaged",
    "text_as.png": "text file",
    "login_page.jpg": "web page",
    "unknown_extension.xyz": "unknown extension .xyz; supported: .dcm",
    "no_pixel_data.dcm": "without pixel data",
    "short_pixel_data.dcm": "less than expected",
    "no_photometric.dcm": "without PhotometricInterpretation",
    "multiframe.dcm": "holds 3 frames",
    "truncated.dcm": "less than expected",
    "all_nan.nii.gz": "no finite pixel",
    "volume_3d.nii.gz": "64 x 64 x 8",
    "truncated.nii.gz": "64 x 64 x 8",
    "1x1.png": "min_size",
    "8x5000.png": "min_size",
    "directory_named.png": "is a folder",
}
WARNED = {
    "jpeg_named.png": "is a JPEG file",
    "png_named.dcm": "is a PNG file",
    "rgb.dcm": "color",
    "nan_inf.nii.gz": "120 pixels",
    "all_black.png": "blank",
    "all_white_16bit.png": "blank",
}
READ = ("ok.png", "ok.jpg", "noise.png")


@pytest.fixture
def samples(shared_data: Path) -> Path:
    return shared_data / "samples"


@pytest.fixture
def bad(shared_data: Path) -> Path:
    return shared_data / "bad"


def load(path: Path) -> np.ndarray:
    """The picture in gray levels 0..255; any warning fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = LoadRadiograph()(path)
    assert image.dtype.is_floating_point
    assert image.shape[0] == 1
    array = np.asarray(image)[0]
    assert array.min() >= 0
    assert array.max() <= 1
    return array * 255


def test_every_sample_is_tested(samples: Path) -> None:
    with open(samples / "index.csv", encoding="utf-8", newline="") as stream:
        listed = {row["file"] for row in csv.DictReader(stream)}
    assert listed == {*SAME_AS_GRAY8, *LOSSY, *WINDOWED, *SHAPES}


def test_every_bad_image_is_tested(bad: Path) -> None:
    with open(bad / "cases.csv", encoding="utf-8", newline="") as stream:
        listed = {
            row["file"].rstrip("/") for row in csv.DictReader(stream) if row["kind"] == "image"
        }
    assert listed == {*REFUSED, *WARNED, *READ}


@pytest.mark.parametrize("name", SAME_AS_GRAY8)
def test_same_picture(samples: Path, name: str) -> None:
    assert np.abs(load(samples / name) - load(samples / "gray8.png")).max() <= SAME_AS_GRAY8[name]


@pytest.mark.parametrize("name", LOSSY)
def test_same_picture_but_for_jpeg(samples: Path, name: str) -> None:
    difference = np.abs(load(samples / name) - load(samples / "gray8.png"))
    assert np.percentile(difference, 99.9) <= 6  # single pixels at edges differ by up to 12
    assert difference.mean() < 1.5


@pytest.mark.parametrize("name", WINDOWED)
def test_windowed_picture(samples: Path, name: str) -> None:
    assert np.abs(load(samples / name) - load(samples / "expected_window_8bit.png")).max() <= 2


def test_twin_pictures_are_equal(samples: Path) -> None:
    difference = load(samples / "mono1_12bit_window.dcm") - load(samples / "mono2_12bit_window.dcm")
    assert np.abs(difference).max() <= 0.15  # the LINEAR window is open on one side
    mono1, mono2 = load(samples / "mono1_8bit_jpeg.dcm"), load(samples / "mono2_8bit_jpeg.dcm")
    assert np.abs(mono1 - mono2).max() <= 3


@pytest.mark.parametrize("name", SHAPES)
def test_shape_and_range(samples: Path, name: str) -> None:
    image = load(samples / name)
    assert image.shape == SHAPES[name]
    assert 180 < image.max() <= 255


def test_rgba_of_the_public_set_drops_alpha(samples: Path) -> None:
    from PIL import Image

    expected = np.asarray(Image.open(samples / "00000773_001.png"))[:, :, 0]
    assert np.abs(load(samples / "00000773_001.png") - expected).max() <= 1


def test_spacing_of_dicom_and_nifti(samples: Path) -> None:
    for name in ("mono2_12bit_window.dcm", "image_hw1.nii.gz"):
        image = LoadRadiograph()(samples / name)
        assert isinstance(image, MetaTensor)
        assert image.meta["spacing"].tolist() == pytest.approx([0.336, 0.336], rel=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(bad: Path, name: str) -> None:
    with pytest.raises(RadiographError) as caught:
        LoadRadiograph()(bad / name)
    message = str(caught.value)
    assert name in message
    assert REFUSED[name] in message
    assert "\n" not in message
    assert len(message.replace(str(bad), "")) < 220


def test_aspect_ratio_is_refused_on_its_own(bad: Path) -> None:
    with pytest.raises(RadiographError, match="max_aspect=8"):
        LoadRadiograph(min_size=1)(bad / "8x5000.png")
    assert LoadRadiograph(min_size=1, max_aspect=1000)(bad / "8x5000.png").shape == (1, 5000, 8)


@pytest.mark.parametrize("name", WARNED)
def test_read_with_a_warning(bad: Path, name: str) -> None:
    with pytest.warns(RadiographWarning, match=WARNED[name]) as caught:
        image = LoadRadiograph()(bad / name)
    assert all(name in str(warning.message) for warning in caught)
    assert bool(image.isfinite().all())


@pytest.mark.parametrize("name", READ)
def test_controls_are_read(bad: Path, name: str) -> None:
    load(bad / name)


def test_good_files_of_a_bad_list_are_kept(bad: Path) -> None:
    from monai_afire.data.datalist.loading import load_radiograph_datalist

    items = load_radiograph_datalist(datalist=bad / "list_bad_images.json", section="test")
    with pytest.warns(RadiographWarning, match="blank"):
        loaded = [LoadRadiographd("image", rejected_key="rejected")(item) for item in items]
    readable = [
        Path(item["image"]).name
        for item, result in zip(items, loaded, strict=True)
        if not result["rejected"]
    ]
    assert readable == ["ok.png", "all_black.png", "ok.jpg"]
    failures = [
        (number, result["rejected"]) for number, result in enumerate(loaded) if result["rejected"]
    ]
    assert [number for number, _ in failures] == [1, 2, 3, 4]
    assert "zero_byte.png: is empty" in failures[0][1]
