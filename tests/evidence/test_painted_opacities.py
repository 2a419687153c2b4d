# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Opacities painted into lungs: where they lie, how bright they are, and that an encoder learns to tell them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import pytest
import torch
from evidence.made_child_set import SHAPE as CHILD_SHAPE
from evidence.made_child_set import make_child_set

from monai_afire.networks import ViTEncoder
from tests.evidence.painted_opacities import (
    SCORES,
    clouds,
    compared,
    differences,
    lung_squares,
    mean_of_runs,
    painted,
    stored_scores,
    trained_further,
    verdicts,
)
from tests.evidence.real_encoders import SHAPE, encoder


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_clouds_are_soft_and_cover_a_part() -> None:
    shapes = clouds(40, 32, generator())
    assert shapes.shape == (40, 1, 32, 32)
    assert shapes.min() == 0
    assert shapes.max() == 1
    covered = (shapes > 0).float().mean((1, 2, 3))
    assert covered.min() > 0.05
    assert covered.max() < 0.6
    assert ((shapes > 0) & (shapes < 1)).any()


def test_nothing_is_painted_off_the_lungs_and_dark_lungs_become_brighter() -> None:
    images, lungs = torch.full((16, 1, 32, 32), 0.6), torch.zeros(16, 1, 32, 32)
    lungs[..., 8:24, 8:24] = 1
    images = torch.where(lungs > 0, 0.2, images)
    difference = painted(images, lungs, generator()) - images
    assert (difference[lungs == 0] == 0).all()
    assert (difference >= 0).all()
    assert (difference.flatten(1).amax(1) > 0.01).float().mean() > 0.8
    assert difference.max() <= 0.4  # never brighter than what is dense


def test_the_lungs_move_with_the_picture() -> None:
    images = torch.rand(3, 1, 64, 64, generator=generator())
    squares, lungs = lung_squares(images)
    assert squares.shape == lungs.shape == images.shape
    assert ((lungs >= 0) & (lungs <= 1)).all()


def test_an_encoder_learns_what_is_painted_and_the_first_one_stays() -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    images, lungs = 0.2 + 0.02 * torch.rand(32, 1, 32, 32), torch.ones(32, 1, 32, 32)
    images[..., :8, :] = 0.9
    lungs[..., :8, :] = 0
    options = argparse.Namespace(hidden_size=24, learning_rate=3e-3, steps=60, bf16=False)
    network, head = trained_further(encoder, images, lungs, options, seed=0)
    copies = painted(images, lungs, torch.Generator().manual_seed(7))
    assert (verdicts(network, head, copies) > verdicts(network, head, images)).float().mean() > 0.8
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    again, _ = trained_further(encoder, images, lungs, options, seed=0)
    assert all(
        torch.equal(*pair) for pair in zip(network.parameters(), again.parameters(), strict=True)
    )
    with pytest.raises(AssertionError):
        torch.testing.assert_close(network.state_dict(), encoder.state_dict())


def test_other_settings_are_not_taken_for_the_same_run(tmp_path: Path) -> None:
    def stored(seed: int = 0, **changed: object) -> Path:
        settings = {
            "encoder": "a.pt",
            "normals": None,
            "every": 3,
            "steps": 900,
            "learning_rate": 1e-4,
            "bf16": False,
            **SHAPE,
        }
        return stored_scores(argparse.Namespace(output=tmp_path, **{**settings, **changed}), seed)

    assert stored() == stored()
    assert (
        len(
            {
                stored(),
                stored(1),
                stored(steps=90),
                stored(encoder="b.pt"),
                stored(normals=tmp_path),
            }
        )
        == 5
    )


def test_runs_count_alike_whatever_their_scale() -> None:
    shown = {"section": ["validation"] * 3 + ["test"] * 2, "label": [0, 0, 1, 0, 1]}
    small = pd.DataFrame({**shown, **{name: [0.0, 2.0, 9.0, 1.0, 3.0] for name in SCORES}})
    large = pd.DataFrame({**shown, **{name: [100.0, 300.0, 0.0, 200.0, 200.0] for name in SCORES}})
    together = mean_of_runs([small, large])
    # of the two validation normals of the first; the second's is a hundred times that
    deviation = 2**0.5
    expected = pd.Series([-1.0, 1.0, 3.0, 0.0, 1.0]) / deviation  # the third: (8 - 2) / 2
    for name in SCORES:
        pd.testing.assert_series_equal(together[name], expected, check_names=False)
    assert together["label"].tolist() == shown["label"]


def test_the_command_compares_encoders_and_keeps_what_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = []
    for number in range(2):
        weights.append(str(tmp_path / f"{number}.pt"))
        torch.save(encoder("", CHILD_SHAPE, seed=number).state_dict(), weights[-1])
    options = argparse.Namespace(
        data=make_child_set(tmp_path / "set"),
        output=tmp_path / "output",
        weights=weights,
        seeds=[0],
        normals=None,
        every=3,
        steps=10,
        learning_rate=1e-4,
        bf16=False,
        test=False,
        **CHILD_SHAPE,
    )
    found = compared(options)
    assert len(found) == 2 * len(SCORES)
    assert found.loc["verdict", "AUC"].count("±") == 1
    assert found.loc["verdict, all runs together", "AUC"].count("±") == 0
    assert len(list(options.output.glob("painted_*.csv"))) == 2
    assert differences(options).str.match(r"[+-]0\.\d{3} \([+-]0\.\d{3} to [+-]0\.\d{3}\)").all()
    # nothing is computed again
    monkeypatch.setattr("tests.evidence.painted_opacities.with_scores", None)
    options.weights = weights[1:]
    assert len(compared(options)) == len(SCORES)
