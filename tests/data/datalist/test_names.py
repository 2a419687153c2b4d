# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names beside a model's weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from monai_afire.data import save_class_names, saved_class_names


def test_names_come_back_in_their_order(tmp_path: Path) -> None:
    save_class_names(("b", "a", "Ödem"), tmp_path / "new")
    assert saved_class_names(tmp_path / "new" / "model.pt", default=["x"]) == ["b", "a", "Ödem"]
    save_class_names(["c"], tmp_path / "new")
    assert saved_class_names(tmp_path / "new" / "another.pt") == ["c"]


def test_default_stands_in_for_a_missing_file(tmp_path: Path) -> None:
    assert saved_class_names(tmp_path / "model.pt", ["x"]) == ["x"]
    with pytest.raises(ValueError, match=r"class_names\.json"):
        saved_class_names(tmp_path / "model.pt")


@pytest.mark.parametrize("content", ["{", "{}", "[]", '["a", 1]', '"a"'])
def test_damaged_files_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "class_names.json").write_text(content)
    with pytest.raises(ValueError, match=r"class_names\.json"):
        saved_class_names(tmp_path / "model.pt", ["x"])
