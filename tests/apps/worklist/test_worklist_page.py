# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Page of the work-list: escaped texts, pictures, and marks that the package's own reader takes."""

from __future__ import annotations

import csv
import html
import json
import re
from pathlib import Path

import pandas as pd
from html_pages import Elements, needs_chromium, shown_by_chromium
from PIL import Image

from monai_afire.apps.readers.__main__ import main as write_datalist
from monai_afire.apps.worklist.worklist_page import write_worklist_page

HOSTILE = (
    '<script>alert("1")</script>.png',
    '" onerror="alert(2).png',
    "day 1/a&b #1%.png",
    "Ünïcode.png",
)


def written(folder: Path, rows: list[tuple[str, str, str]]) -> str:
    """The page of images, each with its decision and other view."""
    cells = {"score": "5", "p_value": "0.08", "discovery": "", "not_judged": "", "hottest": ""}
    groups = {"sex": "", "age": "", "view": "", "scanner": "", "seen_view": "PA", "lung_zone": ""}
    names = ["image", "decision", "other_view"]
    worklist = pd.DataFrame(rows, columns=names).assign(**cells, **groups)
    worklist["rank"] = range(1, len(rows) + 1)
    page = folder / "worklist.html"
    write_worklist_page(
        worklist, page, (folder / "thumbnails").joinpath, (folder / "overlays").joinpath
    )
    return page.read_text(encoding="utf-8")


def test_every_text_of_others_is_escaped(tmp_path: Path) -> None:
    rows = [(name, "above", "<b>ViewPosition</b> LL") for name in HOSTILE]
    elements = Elements(written(tmp_path, rows))
    assert [each["data-image"] for each in elements.named("li")] == list(HOSTILE)
    assert len(elements.named("script")) == 1
    assert not elements.named("b")
    assert not any("onerror" in attributes for _, attributes in elements.found)
    assert all(
        re.fullmatch(r"thumbnails/[\w./%~-]+", each["src"] or "")
        for each in elements.named("img")
        if "src" in each
    )


@needs_chromium
def test_marks_become_a_table_that_the_reader_takes(tmp_path: Path) -> None:
    images = ["a.png", "b.png", 'c, "3".png', "d.png", "e.png"]
    for name in images:
        Image.new("L", (8, 8)).save(tmp_path / name)
    decisions = ["above", "above", "below", "below", "above"]
    text = written(
        tmp_path, [(name, decision, "") for name, decision in zip(images, decisions, strict=True)]
    )
    marks = dict(zip(images, ["abnormal", "normal", "normal", "abnormal", "unsure"], strict=True))
    act = f"""<script>
        for (const [name, mark] of Object.entries({json.dumps(marks)}))
            [...document.querySelectorAll("li")].find(card => card.dataset.image === name)
                .querySelector(`input[value=${{mark}}]`).click();
        document.body.replaceChildren(document.createElement("pre"));
        document.querySelector("pre").textContent = table();
    </script>"""
    (tmp_path / "acted.html").write_text(text.replace("</body>", act + "</body>"), encoding="utf-8")
    shown = shown_by_chromium(tmp_path / "acted.html", tmp_path / "profile")
    found = html.unescape(shown.split("<pre>")[1].split("</pre>")[0])
    rows = {
        row["image"]: (row["abnormal"], row["mark"]) for row in csv.DictReader(found.splitlines())
    }
    labels = ["1", "0", "0", "1", "-1"]
    assert rows == {name: (label, marks[name]) for name, label in zip(images, labels, strict=True)}
    (tmp_path / "marks.csv").write_text(found)
    words = "table --table marks.csv --label_columns abnormal --num_classes 0 --split random"
    files = ["--root", str(tmp_path), "--output", str(tmp_path / "list.json")]
    write_datalist([*words.split(), *files])
    listed = json.loads((tmp_path / "list.json").read_text())
    found_labels = {
        item["image"]: item["label"]
        for section in ("training", "validation", "test")
        for item in listed[section]
    }
    assert found_labels == {name: [int(label)] for name, label in zip(images, labels, strict=True)}
