# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The recipe for Orthanc in docs/deployment.md, as it is printed: results come to lie in the study of their source."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pydicom
import pytest
from apps.worklist.test_worklist import write_source
from bundles.bundle_runs import REPOSITORY_ROOT, environment

pytest.importorskip("highdicom")

MISSING = [name for name in ("Orthanc", "storescu") if shutil.which(name) is None]


def radiograph(path: Path, number: int) -> Path:
    """A study of one image of noise, in which something can be scored."""
    write_source(
        path, number, StudyInstanceUID=f"1.2.{number}", SeriesInstanceUID=f"1.2.{number}.1"
    )
    source, noise = (
        pydicom.dcmread(path),
        np.random.default_rng(number).integers(0, 4096, (64, 64), dtype=np.uint16),
    )
    source.set_pixel_data(noise, "MONOCHROME2", 12, generate_instance_uid=False)
    source.save_as(path)
    return path


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return str(listener.getsockname()[1])


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Archive, watcher and sender, all of them running; their ports by the printed ones."""
    text = (REPOSITORY_ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    section = text[text.index("### Orthanc") : text.index("## MONAI Deploy")]
    blocks = dict(re.findall(r"```(json|lua|bash)\n(.*?)```", section, re.DOTALL))
    ports = {"4242": free_port(), "8042": free_port()}
    command = f"{sys.executable} -m monai_afire watch --interval 0.5 --device cpu"
    others = {"sleep 10": "sleep 1", "monai-afire watch": command}
    for printed, used in {**ports, **others}.items():
        blocks = {language: block.replace(printed, used) for language, block in blocks.items()}
    (tmp_path / "orthanc.json").write_text(blocks["json"])
    (tmp_path / "export.lua").write_text(blocks["lua"])
    words = ["bash", "-c", blocks["bash"]]
    with (tmp_path / "log.txt").open("w") as log:
        process = subprocess.Popen(
            words, cwd=tmp_path, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield ports
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # of the session that was started above
        process.wait(30)


def answer(port: str, path: str) -> Any:
    with urlopen(f"http://localhost:{port}/{path}", timeout=10) as response:
        return json.load(response)


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (Debian packages orthanc, dcmtk)"
)
def test_results_land_in_the_study_of_their_source(tmp_path: Path, archive: dict[str, str]) -> None:
    sources = [radiograph(tmp_path / f"{number}.dcm", number) for number in (1, 2)]
    deadline = time.monotonic() + 120
    send = ["storescu", "-aec", "ARCHIVE", "localhost", archive["4242"], *map(str, sources)]
    while subprocess.run(
        send, capture_output=True, check=False
    ).returncode:  # until the archive listens
        assert time.monotonic() < deadline, (tmp_path / "log.txt").read_text()[-3000:]
        time.sleep(0.5)
    while len(answer(archive["8042"], "series")) < 6:
        assert time.monotonic() < deadline, (tmp_path / "log.txt").read_text()[-3000:]
        time.sleep(0.5)
    for study in answer(archive["8042"], "studies?expand"):
        series = [answer(archive["8042"], f"series/{each}") for each in study["Series"]]
        assert sorted(each["MainDicomTags"]["Modality"] for each in series) == ["DX", "OT", "SR"]
        assert [len(each["Instances"]) for each in series] == [1, 1, 1]
        uid = study["MainDicomTags"]["StudyInstanceUID"]
        [instance] = next(each for each in series if each["MainDicomTags"]["Modality"] == "SR")[
            "Instances"
        ]
        with urlopen(
            f"http://localhost:{archive['8042']}/instances/{instance}/file", timeout=10
        ) as response:
            (tmp_path / "report.dcm").write_bytes(response.read())
        report = pydicom.dcmread(tmp_path / "report.dcm")
        assert (report.StudyInstanceUID, report.PatientID) == (uid, "4711")
    time.sleep(5)  # results are no arrivals
    assert len(list((tmp_path / "in").iterdir())) == 2
    assert len(answer(archive["8042"], "instances")) == 6
