# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The phantom's volumes: the same patients, with a depth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from monai_afire.apps.phantom import (
    LANDMARK_NAMES,
    LESION_KINDS,
    ORGAN_NAMES,
    ChestPhantomDataset,
    draw_chest_phantom,
    draw_chest_volume,
    export_phantom,
)
from monai_afire.data import DatalistError, bundle_items, labeled_items, scan_volumes
from monai_afire.transforms import LoadVolume

AIR, LUNG, TISSUE = (-1100, -950), (-950, -600), (-150, 120)


def test_organs_have_the_density_and_place_of_a_ct() -> None:
    volume = draw_chest_volume(4, image_size=32)
    image = volume.image[0]
    organs = dict(zip(ORGAN_NAMES, volume.organs.astype(bool), strict=True))
    assert AIR[0] < np.median(image[:2]) < AIR[1]
    for side in ("right", "left"):
        assert LUNG[0] < np.median(image[organs[f"lung_{side}"]]) < LUNG[1]
    assert TISSUE[0] < np.median(image[organs["heart"]]) < TISSUE[1]
    right, left, heart = (np.argwhere(organs[name]).mean(axis=0) for name in ("lung_right", "lung_left", "heart"))
    # axes run right, front and up; the heart lies left of the middle and in front
    assert left[0] < heart[0] < right[0]
    assert heart[1] > right[1]
    points = dict(zip(LANDMARK_NAMES, volume.landmarks, strict=True))
    assert points["lung_apex_left"][2] > points["carina"][2] > points["costophrenic_angle_left"][2]
    assert ((volume.landmarks > -0.5) & (volume.landmarks < 31.5)).all()


def test_the_patient_is_that_of_the_radiograph() -> None:
    radiograph, volume = draw_chest_phantom(4, image_size=64), draw_chest_volume(4, image_size=24)
    assert radiograph.patient == volume.patient


@pytest.mark.parametrize("kind", LESION_KINDS)
def test_a_lesion_changes_its_own_place_alone(kind: str) -> None:
    plain, changed = draw_chest_volume(6, image_size=24), draw_chest_volume(6, image_size=24, lesions=[kind])
    mask = changed.lesion_mask[0].astype(bool)
    assert mask.any()
    assert changed.label[LESION_KINDS.index(kind)] == 1
    start, length = np.split(np.array(changed.lesions[0].box), 2)
    assert (np.argwhere(mask).min(axis=0) == start).all()
    assert (np.argwhere(mask).max(axis=0) == start + length - 1).all()
    difference = np.abs(changed.image - plain.image)[0]
    assert difference[mask].mean() > 3 * difference[~mask].mean()


def test_sizes_may_differ_along_the_axes() -> None:
    volume = draw_chest_volume(1, image_size=(24, 16, 20))
    assert volume.image.shape == (1, 24, 16, 20)
    assert volume.voxel_size[0] != volume.voxel_size[2]
    with pytest.raises(ValueError, match="16 or more"):
        draw_chest_volume(1, image_size=8)
    with pytest.raises(ValueError, match="no kind of lesion"):
        draw_chest_volume(1, image_size=16, lesions=["wart"])


def test_files_hold_what_the_data_set_holds(tmp_path: Path) -> None:
    dataset = ChestPhantomDataset(tmp_path / "cache", "test", num_patients=2, image_size=16, spatial_dims=3)
    path = export_phantom(tmp_path, {"test": 2}, image_size=16, progress=False, spatial_dims=3)
    item = dataset[1]
    entry = json.loads(path.read_text())["test"][1]
    assert set(item) <= set(entry)
    loaded = LoadVolume(raw=True)(str(tmp_path / entry["image"]))
    assert torch.equal(loaded.as_tensor(), item["image"].as_tensor().round())
    assert torch.allclose(loaded.affine.float(), torch.as_tensor(item["image"].affine).float(), atol=1e-4)
    assert entry["label"] == item["label"].astype(int).tolist()
    masks = np.concatenate([LoadVolume(raw=True)(str(tmp_path / name)) for name in entry["organs"]])
    np.testing.assert_array_equal(masks, item["organs"])
    assert "images/test_00001.nii.gz" in scan_volumes(tmp_path)


def test_a_list_may_name_series(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.dcm").touch()
    content = {"test": [{"image": "one", "label": [1]}, {"image": "two", "label": [0]}]}
    (tmp_path / "list.json").write_text(json.dumps(content))
    source = {"section": "test", "dataset_dir": str(tmp_path), "datalist": str(tmp_path / "list.json")}
    for items in (bundle_items(**source, spatial_dims=3), labeled_items(**source, spatial_dims=3)):
        assert [Path(item["image"]).name for item in items] == ["one", "two"]
    with pytest.raises(DatalistError, match="is a folder"):
        bundle_items(**source)
    searched = bundle_items("test", dataset_dir=str(tmp_path), spatial_dims=3)
    assert [Path(item["image"]).name for item in searched] == ["one", "two"]
