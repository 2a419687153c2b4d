# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The message at the end of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from ignite.engine import Engine, Events

from monai_afire.apps.runs import ClosingMessage


def run(message: ClosingMessage, epochs: int = 1) -> None:
    engine = Engine(lambda engine, batch: None)
    message.attach(engine)
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: print("epoch"))
    engine.run([0], max_epochs=epochs)


def test_it_names_what_exists_once_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scores.csv").touch()
    files = {"scores": [str(tmp_path), "scores.csv"], "picture": [str(tmp_path), "picture.png"]}
    run(ClosingMessage(files), epochs=2)
    assert capsys.readouterr().out == f"epoch\nepoch\nscores:    {tmp_path}/scores.csv\n"


def test_other_ranks_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("monai_afire.apps.runs.closing_message.global_rank", lambda: 1)
    run(ClosingMessage({"results": str(tmp_path)}))
    assert "results" not in capsys.readouterr().out


def test_no_message_after_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def crash(engine: Engine, batch: int) -> None:
        raise RuntimeError("broken")

    engine = Engine(crash)
    ClosingMessage({"results": str(tmp_path)}).attach(engine)
    with pytest.raises(RuntimeError, match="broken"):
        engine.run([0])
    assert "results" not in capsys.readouterr().out
