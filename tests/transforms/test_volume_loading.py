# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Volumes and colors: what is loaded, in which order of axes, and how it becomes the network's input."""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path

import itk
import nibabel
import numpy as np
import pydicom
import pytest
import torch
from monai.data import MetaTensor
from PIL import Image
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from monai_afire.transforms import (
    DescribeRadiographd,
    LoadMasksd,
    LoadRadiograph,
    LoadVolume,
    NoteAffined,
    RadiographError,
    SoftNodule,
    controlled_lesion,
    fit_images,
    image_loader,
)
from monai_afire.utils.file_geometry import FileGeometry

HU = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
# columns to the left, rows to the front, slices down: two axes run against RAS
AFFINE = np.array([[-2.0, 0, 0, 10], [0, 1.0, 0, -3], [0, 0, -3.0, 7], [0, 0, 0, 1]])


def write_nifti(path: Path, values: np.ndarray = HU, affine: np.ndarray = AFFINE) -> str:
    nibabel.save(nibabel.Nifti1Image(values, affine), path)
    return str(path)


def write_series(folder: Path) -> str:
    folder.mkdir()
    series, study = generate_uid(), generate_uid()
    for number in range(HU.shape[2]):
        data = pydicom.Dataset()
        data.file_meta = FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
        data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid()
        data.SeriesInstanceUID, data.StudyInstanceUID, data.Modality = series, study, "CT"
        data.PatientID = data.PatientName = "x"
        data.Rows, data.Columns, data.SamplesPerPixel = HU.shape[1], HU.shape[0], 1
        data.PhotometricInterpretation, data.PixelRepresentation = "MONOCHROME2", 1
        data.BitsAllocated = data.BitsStored = 16
        data.HighBit, data.InstanceNumber = 15, number + 1
        data.PixelSpacing, data.SliceThickness = [1.0, 2.0], 3.0
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.ImagePositionPatient = [0.0, 0.0, 3.0 * number]
        data.RescaleIntercept, data.RescaleSlope = "-1000", "1"
        data.PixelData = np.ascontiguousarray(HU[:, :, number].T).tobytes()
        data.save_as(folder / f"{number}.dcm", enforce_file_format=True)
    return str(folder)


def test_axes_run_right_front_and_up_and_the_window_is_applied(tmp_path: Path) -> None:
    volume = LoadVolume(intensity_window=(10, 60))(write_nifti(tmp_path / "a.nii.gz"))
    expected = np.clip((HU[::-1, :, ::-1].astype(float) - 10) / 50, 0, 1)
    np.testing.assert_allclose(volume[0], expected, atol=1e-6)
    assert volume.affine.diagonal().tolist() == [2, 1, 3, 1]
    np.testing.assert_allclose(volume.meta["original_affine"], AFFINE)


@pytest.mark.parametrize("extension", ["mha", "nrrd"])
def test_itk_formats_give_the_same(extension: str, tmp_path: Path) -> None:
    image = itk.image_from_array(np.ascontiguousarray(HU.transpose(2, 1, 0)))
    image.SetSpacing([2.0, 1.0, 3.0])
    path = str(tmp_path / f"a.{extension}")
    itk.imwrite(image, path)
    # ITK's axes run left, back and up: two turn round
    np.testing.assert_allclose(LoadVolume(raw=True)(path)[0], HU[::-1, ::-1])


def test_a_series_is_one_volume(tmp_path: Path) -> None:
    volume = LoadVolume(raw=True)(write_series(tmp_path / "series"))
    np.testing.assert_allclose(volume[0], HU[::-1, ::-1] - 1000.0)
    assert volume.affine.diagonal().tolist() == [2, 1, 3, 1]


def test_what_is_no_volume_is_refused(tmp_path: Path) -> None:
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    with pytest.raises(RadiographError, match="PNG picture where a volume is expected"):
        LoadVolume()(str(tmp_path / "a.png"))
    with pytest.raises(RadiographError, match="three axes are expected"):
        LoadVolume()(write_nifti(tmp_path / "b.nii.gz", np.zeros((4, 4, 4, 2), np.int16)))
    item = image_loader("image", spatial_dims=3, rejected_key="rejected")({"image": str(tmp_path / "no.nii.gz")})
    assert "does not exist" in item["rejected"]
    with pytest.raises(ValueError, match="one channel"):
        image_loader("image", spatial_dims=3, channels=3)
    with pytest.raises(ValueError, match="for volumes"):
        image_loader("image", intensity_window=(0, 1))


def test_spacing_crops_about_the_middle_and_results_return_to_the_file(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii.gz")
    item = DescribeRadiographd("image", picture_size=8)(image_loader("image", spatial_dims=3)({"image": path}))
    whole = NoteAffined("image")(fit_images("image", (4, 5, 6), 3)(item))
    restored = FileGeometry.of({key: [value] for key, value in whole.items()}, 0).to_file(np.asarray(whole["image"][0]))
    np.testing.assert_allclose(restored, (HU - HU.min()) / float(np.ptp(HU)), atol=1e-5)
    cropped = NoteAffined("image")(fit_images("image", 4, 3, spacing=(2, 1, 3))(item))
    assert cropped["image"].shape == (1, 4, 4, 4)
    geometry = FileGeometry.of({key: [value] for key, value in cropped.items()}, 0)
    inside = geometry.to_file(np.ones((4, 4, 4)), outside="zeros") > 0.5
    assert inside.shape == HU.shape
    assert inside.sum() == 4 * 4 * 4
    back = geometry.positions_in_file(np.array([[0.0, 0.0, 0.0]]))
    point = tuple(np.rint(back[0]).astype(int))
    expected = (HU[point] - HU.min()) / float(np.ptp(HU))
    assert float(cropped["image"][0, 0, 0, 0]) == pytest.approx(expected, abs=1e-5)


def test_results_lie_on_the_picture_of_the_whole_volume(tmp_path: Path) -> None:
    values = np.zeros((12, 8, 10), np.int16)
    values[7, 5, 3] = 100
    path = str(tmp_path / "a.nii.gz")
    nibabel.save(nibabel.Nifti1Image(values, np.diag([-2.0, 1.0, 3.0, 1.0])), path)
    item = DescribeRadiographd("image")(image_loader("image", spatial_dims=3)({"image": path}))
    for fit in (fit_images("image", (12, 8, 10), 3), fit_images("image", (8, 6, 8), 3, spacing=(2, 1, 3))):
        fitted = NoteAffined("image")(fit(item))
        geometry = FileGeometry.of({key: [value] for key, value in fitted.items()}, 0)
        found = fitted["image"][0].numpy()
        same = geometry.on_picture(found, (12, 8, 10))
        np.testing.assert_allclose(same, item["image"][0], atol=1e-5)
        # twice as fine: voxel i becomes 2 i and 2 i + 1, and its middle lies between them
        finer = geometry.on_picture(found, (24, 16, 20))
        assert np.unravel_index(finer.argmax(), finer.shape) in list(product((8, 9), (10, 11), (6, 7)))
        peak = np.array([np.unravel_index(found.argmax(), found.shape)], dtype=float)
        np.testing.assert_allclose(geometry.positions_on_picture(peak, (24, 16, 20)), [[8.5, 10.5, 6.5]])
    # where the input did not reach, the smallest of its values
    outside = geometry.on_picture(np.full((8, 6, 8), 5.0) + np.eye(8)[:, :6, None], (12, 8, 10))
    assert outside[0, 0, 0] == 5


def test_masks_of_volumes_lie_on_them(tmp_path: Path) -> None:
    mask = (HU > 40).astype(np.uint8)
    item = {
        "image": write_nifti(tmp_path / "a.nii.gz"),
        "mask": [write_nifti(tmp_path / "m.nii.gz", mask), write_nifti(tmp_path / "e.nii.gz", mask * 0)],
    }
    item = LoadMasksd("mask", spatial_dims=3)(image_loader("image", spatial_dims=3)(item))
    assert torch.equal(item["mask"][0] > 0, torch.as_tensor(mask[::-1, :, ::-1].copy() > 0))
    assert not item["mask"][1].any()
    small = {**item, "image": MetaTensor(torch.zeros(1, 3, 3, 3)), "mask": str(tmp_path / "m.nii.gz")}
    with pytest.raises(RadiographError, match="resample one of them"):
        LoadMasksd("mask", spatial_dims=3)(small)


def test_colors_are_kept_or_reduced_as_asked(tmp_path: Path) -> None:
    pixels = np.zeros((40, 48, 3), np.uint8)
    pixels[..., 0], pixels[:20, :, 1] = 200, 100
    Image.fromarray(pixels).save(tmp_path / "c.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = LoadRadiograph(channels=3)(str(tmp_path / "c.png"))
    np.testing.assert_allclose(image, np.moveaxis(pixels, -1, 0) / 255.0, atol=1e-6)
    with pytest.warns(UserWarning, match="channels 3 keeps the colors"):
        assert LoadRadiograph()(str(tmp_path / "c.png")).shape == (1, 40, 48)
    Image.fromarray(pixels[..., 0]).save(tmp_path / "g.png")
    gray = LoadRadiograph(channels=3)(str(tmp_path / "g.png"))
    assert gray.shape == (3, 40, 48)
    assert torch.equal(gray[0], gray[2])
    assert image_loader("image", channels=3)({"image": str(tmp_path / "c.png")})["image"].shape == (3, 40, 48)


def test_lesions_are_painted_into_volumes() -> None:
    volume = torch.full((1, 24, 24, 24), 0.5)
    painted, mask = SoftNodule(0.3, 0.5).set_random_state(0)(volume)
    assert float(painted.max()) == pytest.approx(0.8)
    # a ball of diameter 12 voxels
    assert int(mask.sum()) == pytest.approx(4 / 3 * np.pi * 6**3, rel=0.1)
    assert torch.equal(painted[~mask], painted[~mask])
    assert float((painted - volume)[~mask].max()) < 0.03
    pasted, box = controlled_lesion(torch.rand(1, 16, 16, 16), "CutPaste", 1.0, 0.25, seed=1)
    assert int(box.sum()) == 4**3
    assert pasted.shape == (1, 16, 16, 16)
    with pytest.raises(ValueError, match="2-D radiographs"):
        controlled_lesion(volume, "AnatPaste", 0.5, 0.2, seed=0)
