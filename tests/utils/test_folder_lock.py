# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One run per folder, and none that waits for a dead one."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from handlers.lock_holder import holding_process

from monai_afire.utils.folder_lock import _held as held
from monai_afire.utils.folder_lock import folder_lock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="without locks")


def is_locked(folder: Path) -> bool:
    try:
        with folder_lock(folder):
            return False
    except RuntimeError:
        return True


def locked_for_others(folder: Path) -> bool:
    """What another process finds."""
    child = os.fork()
    if child == 0:
        held.clear()
        os._exit(int(is_locked(folder)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_folder_is_locked_until_its_process_ends(tmp_path: Path) -> None:
    with holding_process(tmp_path) as other:
        with pytest.raises(
            RuntimeError,
            match=rf"writing into {tmp_path} \(process {other.pid} on .* since 2.*--output",
        ):
            folder_lock(tmp_path).__enter__()
        assert is_locked(tmp_path / ".." / tmp_path.name)
        other.kill()
        other.wait()
        assert (tmp_path / ".lock").is_file()
        assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_patience_waits_for_the_end_of_another_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with holding_process(tmp_path) as other:
        with pytest.raises(RuntimeError, match=f"process {other.pid}"):
            folder_lock(tmp_path, patience=0.1).__enter__()
        assert (
            caplog.text.count(
                f"waiting for another run to leave {tmp_path} (process {other.pid} on"
            )
            == 1
        )
        threading.Timer(0.2, other.kill).start()
        with folder_lock(tmp_path, patience=60):
            assert locked_for_others(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_same_process_may_lock_again_and_holds_until_the_last_end(tmp_path: Path) -> None:
    with folder_lock(tmp_path):
        with folder_lock(tmp_path):
            pass
        assert locked_for_others(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_error_frees_the_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyError), folder_lock(tmp_path):
        raise KeyError
    assert not locked_for_others(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_do_not_keep_the_lock(tmp_path: Path) -> None:
    """A loader's processes live a few seconds longer than a run that was killed."""
    read, write = os.pipe()
    with folder_lock(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the parent has looked
            os._exit(0)
    os.close(read)
    try:
        assert not locked_for_others(tmp_path)
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_file_systems_without_locks_are_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(handle: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.lockf", unsupported)
    with folder_lock(tmp_path), folder_lock(tmp_path):
        assert list(tmp_path.iterdir()) == []
    assert f"{tmp_path} cannot be locked (Function not implemented)" in caplog.text
