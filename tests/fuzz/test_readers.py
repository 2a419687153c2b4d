# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Damaged radiographs give a picture in [0, 1] or an error of one line with the file's name, and nothing else."""

from __future__ import annotations

import gzip
import io
import warnings
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pydicom
import pytest
import tifffile
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutations import Mutation, bounded, mutated, mutations
from PIL import Image
from unit.transforms.radiograph_files import write_dicom

from monai_afire.transforms import LoadRadiograph, RadiographError

PIXELS = np.random.default_rng(0).integers(0, 4096, (40, 36)).astype(np.uint16)


def picture(file_format: str, **options: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray((PIXELS // 16).astype(np.uint8)).save(stream, format=file_format, **options)
    return stream.getvalue()


def tiff(pixels: np.ndarray, **options: str) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **options)
    return stream.getvalue()


def dicom(syntax: str) -> bytes:
    stream = io.BytesIO()
    elements: dict[str, Any] = {
        "PhotometricInterpretation": "MONOCHROME1",
        "RescaleSlope": 2,
        "RescaleIntercept": -7,
    }
    elements |= {"WindowCenter": 2000, "WindowWidth": 3000}
    write_dicom(stream, PIXELS, syntax, bits=12, **elements)
    return stream.getvalue()


EXTREMES = [
    sign * value for sign in (-1, 1) for value in (1e308, 3.4e38, 1e20, 2.0**63, 65535, 1e-310, 0.5)
]
NIFTI = nib.Nifti1Image(PIXELS.astype(np.float32), np.eye(4)).to_bytes()
FILES = {
    "a.png": picture("PNG"),
    "a.jpg": picture("JPEG"),
    "a.bmp": picture("BMP"),
    "a.tif": picture("TIFF"),
    "lzw.tif": picture("TIFF", compression="tiff_lzw"),
    "float64.tif": tiff(PIXELS * 0.5),
    "white.tif": tiff(PIXELS.astype(np.uint64), photometric="miniswhite"),
    "a.nii": NIFTI,
    "a.nii.gz": gzip.compress(NIFTI, mtime=0),
    "a.dcm": dicom(pydicom.uid.ExplicitVRLittleEndian),
    "implicit.dcm": dicom(pydicom.uid.ImplicitVRLittleEndian),
    "deflated.dcm": dicom(pydicom.uid.DeflatedExplicitVRLittleEndian),
}


def check(path: Path, scaling: str) -> None:
    reason = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = LoadRadiograph(scaling=scaling)(path)
        except RadiographError as error:
            reason = str(error)
    if reason:
        assert str(path) in reason
        assert "\n" not in reason
        return
    assert image.dtype == torch.float32
    assert image.ndim == 3
    assert image.shape[0] == 1
    assert bool(image.isfinite().all())
    assert scaling == "none" or (image.min() >= 0 and image.max() <= 1)


@pytest.mark.parametrize("name", FILES)
@bounded
@given(steps=mutations, scaling=st.sampled_from(["depth", "range", "none"]))
def test_damaged_files(name: str, steps: list[Mutation], scaling: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(mutated(FILES[name], steps))
    check(tmp_path / name, scaling)


@bounded
@given(
    numbers=st.lists(st.one_of(st.floats(), st.sampled_from(EXTREMES)), min_size=4, max_size=12),
    dtype=st.sampled_from(["f4", "f8", "u8", "i8", "i4", "c8"]),
    photometric=st.sampled_from(["minisblack", "miniswhite"]),
    scaling=st.sampled_from(["depth", "range", "none"]),
)
def test_any_numbers(
    numbers: list[float], dtype: str, photometric: str, scaling: str, tmp_path: Path
) -> None:
    with np.errstate(all="ignore"):
        values = np.resize(np.array(numbers), (32, 33)).astype(dtype)
    (tmp_path / "a.tif").write_bytes(tiff(values, photometric=photometric))
    nib.Nifti1Image(values, np.eye(4), dtype=values.dtype).to_filename(tmp_path / "a.nii")
    check(tmp_path / "a.tif", scaling)
    check(tmp_path / "a.nii", scaling)
