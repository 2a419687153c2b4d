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

from monai_afire.apps.readers.__main__ import main
from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.utils.files import spelling_on_disk

FORMS = [("NFC", "NFD"), ("NFD", "NFC")]
pytestmark = pytest.mark.skipif(os.sep != "/", reason="backslashes separate folders on this system")


def save(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)).save(path)
    return path


@pytest.mark.parametrize(("listed", "there"), FORMS)
@pytest.mark.parametrize("name", ["Müller.png", "é/Ångström/a.png"])
def test_another_form_is_named_everywhere(
    tmp_path: Path, listed: str, there: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / unicodedata.normalize(there, name))
    wanted = unicodedata.normalize(listed, name)
    assert there in spelling_on_disk(tmp_path / wanted)
    (tmp_path / "list.json").write_text(json.dumps({"test": [wanted]}))
    with pytest.raises(DatalistError, match="another Unicode form"):
        load_radiograph_datalist(datalist=tmp_path / "list.json", section="test")
    (tmp_path / "t.csv").write_text(f"image,label,patient_id\n{wanted},0,p1\n", encoding="utf-8")
    words = [
        "table",
        "--root",
        str(tmp_path),
        "--table",
        "t.csv",
        "--output",
        str(tmp_path / "l.json"),
    ]
    assert main(words) != 0
    assert "another Unicode form" in capsys.readouterr().err


def test_backslashes_are_named(tmp_path: Path) -> None:
    save(tmp_path / "im" / "a.png")
    (tmp_path / "list.json").write_text(json.dumps({"test": ["im\\a.png"]}))
    with pytest.raises(DatalistError, match="backslashes"):
        load_radiograph_datalist(datalist=tmp_path / "list.json", section="test")


def test_what_is_not_there_has_no_other_spelling(tmp_path: Path) -> None:
    for name in ("a.png", "ü.png", "im\\b.png", "no/ü.png"):
        assert spelling_on_disk(tmp_path / name) == ""
