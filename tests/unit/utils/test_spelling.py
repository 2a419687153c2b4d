# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names as other systems spell them: backslashes of Windows, letters that macOS takes apart."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.utils.files import spelling_on_disk

pytestmark = pytest.mark.skipif(os.sep != "/", reason="backslashes separate folders on this system")


def save(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)).save(path)
    return path


@pytest.mark.parametrize(("listed", "there"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_another_form_is_named(tmp_path: Path, listed: str, there: str) -> None:
    name = "é/Ångström.png"
    save(tmp_path / unicodedata.normalize(there, name))
    wanted = unicodedata.normalize(listed, name)
    assert there in spelling_on_disk(tmp_path / wanted)
    (tmp_path / "list.json").write_text(json.dumps({"test": [wanted]}))
    with pytest.raises(DatalistError, match="another Unicode form"):
        load_radiograph_datalist(datalist=tmp_path / "list.json", section="test")


def test_backslashes_are_named(tmp_path: Path) -> None:
    save(tmp_path / "im" / "a.png")
    (tmp_path / "list.json").write_text(json.dumps({"test": ["im\\a.png"]}))
    with pytest.raises(DatalistError, match="backslashes"):
        load_radiograph_datalist(datalist=tmp_path / "list.json", section="test")


def test_what_is_not_there_has_no_other_spelling(tmp_path: Path) -> None:
    for name in ("a.png", "ü.png", "im\\b.png", "no/ü.png"):
        assert spelling_on_disk(tmp_path / name) == ""
