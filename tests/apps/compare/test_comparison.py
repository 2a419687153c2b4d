# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The command: page, table and numbers agree; what cannot be compared is named; the page in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from html_pages import Elements
from PIL import Image

from monai_afire.apps.compare import encoders as compared
from monai_afire.apps.compare.__main__ import main
from monai_afire.data.phantom import draw_chest_phantom

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def datalist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn chests, of which every second is brighter and abnormal."""
    folder = tmp_path_factory.mktemp("images")
    sections: dict[str, list[dict[str, object]]] = {"training": [], "test": []}
    for number in range(64):
        picture = draw_chest_phantom(number, 64).image[0] * 0.7 + 0.2 * (number % 2)
        Image.fromarray(np.rint(255 * picture).astype(np.uint8)).save(folder / f"{number}.png")
        item = {"image": f"{number}.png", "label": [number % 2, int(number % 3 == 0)]}
        item |= {"patient_id": f"p{number}", "abnormal": number % 2}
        item |= {"scanner": HOSTILE if number % 5 else "Acme", "view": "AP" if number % 4 else "PA"}
        sections["training" if number < 44 else "test"].append(item)
    content = {"finding_names": ["Bright", "Third"], **sections}
    (folder / "list.json").write_text(json.dumps(content))
    return folder / "list.json"


@pytest.fixture(scope="module")
def output(datalist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared, "_SIDE", 128)  # nodules are painted four times as fast
        assert main([str(datalist), "mine=released", "--output_dir", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_all_questions_are_answered_by_all(output: Path) -> None:
    table = pd.read_csv(output / "compare.csv")
    settings = table.groupby("question")["setting"].nunique().to_dict()
    assert settings == {
        "Detection": 1,
        "Linear probe": 1,  # a tenth of the labels would be of four patients
        "Nearest neighbors": 1,
        "Painted nodules": 4,
    }
    baselines = {"pixels", "darkness", "sharpness", "view alone"}
    assert set(table["name"]) == {*baselines, "mine"}
    encoders = table[table["is_encoder"]]
    assert ((table["low"] <= table["high"]) & table["auc"].between(0, 1)).all()
    assert encoders["p_value"].isna().all()  # of 20 patients
    assert not encoders["better"].any()
    # the controls see what was made bright
    assert table.loc[table["name"] == "darkness", "auc"].iloc[0] > 0.9


def test_page_table_and_numbers_agree(output: Path) -> None:
    numbers = json.loads((output / "compare.json").read_text())
    table = pd.read_csv(output / "compare.csv")
    page = (output / "compare.html").read_text(encoding="utf-8")
    assert len(numbers["results"]) == len(table)
    assert numbers["results"][-1]["auc"] == pytest.approx(table["auc"].iloc[-1])
    assert (numbers["images"], numbers["patients"], numbers["learned_from"]) == (20, 20, 44)
    for auc in table["auc"]:
        assert f"{auc:.3f}" in page
    assert numbers["sentence"] in page


def test_a_list_without_normal_images_is_compared_without_detection(
    datalist: Path, tmp_path: Path
) -> None:
    content = json.loads(datalist.read_text())
    few: dict[str, list] = {"finding_names": [*content["finding_names"], "Never"]}
    for name in ("training", "test"):
        few[name] = [
            {**item, "abnormal": 1, "label": [*item["label"], 0]} for item in content[name][:16]
        ]
    (datalist.parent / "few.json").write_text(json.dumps({**content, **few}))
    few_list = str(datalist.parent / "few.json")
    assert main([few_list, "untrained", "--output_dir", str(tmp_path)]) == 0
    questions = set(pd.read_csv(tmp_path / "compare.csv")["question"])
    assert questions == {"Linear probe", "Nearest neighbors"}
    assert json.loads((tmp_path / "compare.json").read_text())["unanswered"] == ["Never"]


@pytest.mark.parametrize("words", ["released released", "pixels=released", "gone.pt", "timm:none"])
def test_words_and_folders_that_cannot_be_used_are_named(
    datalist: Path, output: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*options: str) -> str:
        assert main([str(datalist), *options]) == 1
        return capsys.readouterr().err

    out = tmp_path / "out"
    assert re.split("[=: ]", words)[0] in said(*words.split(), "--output_dir", str(out))
    assert not out.exists()
    assert str(output) in said("untrained", "--output_dir", str(output))


def test_the_page_is_one_file_and_escapes_texts(output: Path) -> None:
    text = (output / "compare.html").read_text(encoding="utf-8")
    elements = Elements(text).found
    assert HOSTILE not in text
    assert not {"script", "link"} & {tag for tag, _ in elements}
    assert not re.search(r"https?://|@import", text)
    sources = [attributes["src"] or "" for tag, attributes in elements if tag == "img"]
    # four questions; pixels and the encoder by label, scanner and view
    assert len(sources) == 4 + 6
    assert all(source.startswith("data:image/png;base64,") for source in sources)
