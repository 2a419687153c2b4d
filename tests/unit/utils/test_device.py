# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The device of a run, on machines that this one is not."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY_ROOT

from monai_afire.inferers import AutocastInferer
from monai_afire.utils.device import half_precision, has_bfloat16


@pytest.mark.parametrize(
    ("capability", "half"),
    [((9, 0), torch.bfloat16), ((7, 5), torch.float16), ((6, 1), None)],
)
def test_an_imitated_bfloat16_does_not_count(
    capability: tuple[int, int], half: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own question, with the answers of a machine that has such a GPU."""
    properties = SimpleNamespace(major=capability[0], minor=capability[1])
    answers = {"is_available": True, "current_device": 0}
    answers |= {"get_device_properties": properties, "get_device_capability": capability}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    assert half_precision("cuda") == half
    assert AutocastInferer().precision("cuda") == half
    assert AutocastInferer(enabled=False).precision("cuda") is None


@pytest.mark.parametrize("has_it", [False, True])
def test_a_processor_has_bfloat16_by_its_instructions(
    has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    instructions = {"avx512_f": True, "avx512_bf16": has_it, "amx_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions, raising=False)
    assert has_bfloat16("cpu") == has_it
    result = AutocastInferer()(torch.rand(2, 3), torch.nn.Linear(3, 4))
    assert result.dtype == (torch.bfloat16 if has_it else torch.float32)


def test_configs_ask_in_one_place() -> None:
    for path in REPOSITORY_ROOT.glob("bundles/*/configs/**/*.json"):
        text = path.read_text()
        assert "cuda" not in text, path
        if path.stem in ("train", "inference"):
            assert json.loads(text)["device"] == "$monai_afire.utils.run_device()", path
