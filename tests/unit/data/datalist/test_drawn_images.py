# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Drawn images say so in their headers, wherever they are; nothing else does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from monai_afire.data import image_kind
from monai_afire.data.datalist.drawn_images import is_drawn
from monai_afire.data.phantom import export_phantom


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phantom")
    export_phantom(folder, {"test": 2}, image_size=64, progress=False)
    return folder


def test_a_phantom_is_known_by_its_file_alone(phantom: Path, tmp_path: Path) -> None:
    entries = json.loads((phantom / "datalist.json").read_text())["test"]
    items = [{"image": str(phantom / entry["image"])} for entry in entries]
    assert image_kind(items) == "phantoms"
    copy = shutil.copyfile(items[0]["image"], tmp_path / "renamed.bin")
    assert is_drawn(copy)
    with Image.open(copy) as picture:  # an independent reader of PNG finds the mark, too
        assert picture.info["Source"] == "drawn by monai_afire"
    # one other image makes a set of radiographs
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "radiograph.png")
    assert image_kind([*items, {"image": str(tmp_path / "radiograph.png")}]) == "radiographs"


@pytest.mark.parametrize("content", [b"", b"\x89PNG", b"Source\0drawn by monai_afire"])
def test_other_files_are_not_drawn(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.png"
    file.write_bytes(content)
    assert not any(is_drawn(each) for each in (file, tmp_path, np.zeros(3)))
