# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Texts that MONAI's config parser leaves as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from monai.bundle import ConfigParser

from monai_afire_cli.options.words import literal

STRANGE = (
    *("ward #3", "#", "a#b#c", "x@#y", "a::b", "me@host", "cost $5", "it's", '"quoted"', "b\\s"),
    *("@home", "$new", "$1 + 1", "$import os", "%done", "%::a", "a @::b", "\\x23", "\u5fc3 #1"),
)


@pytest.mark.parametrize("text", STRANGE)
def test_monai_reads_a_literal_as_the_text(text: str) -> None:
    config = {"own": literal(text), "below": {"deeper": literal([text, {"a": text}])}}
    parser = ConfigParser(json.loads(json.dumps(config)))  # as MLflow stores it
    assert parser.get_parsed_content("own") == text
    assert parser.get_parsed_content("below") == {"deeper": [text, {"a": text}]}


@pytest.mark.parametrize("value", [3, 1.5, None, True, "plain/path.png", "C:\\images", ["a", 2]])
def test_other_values_stay_as_they_are(value: Any) -> None:
    assert literal(value) == value
