"""foretrace profile machine as a user meets it when it ends early: exit code, one message, no file."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest


def _started(output: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
    """The command and its first worker."""
    command = [sys.executable, "-m", "foretrace", "profile", "machine", "--quick", "-o", str(output)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        workers = psutil.Process(process.pid).children()
        if workers:
            time.sleep(0.5)  # past the start of Python, whose own handling of signals comes first
            return process, workers[0]
        time.sleep(0.05)
    process.kill()
    raise AssertionError("no worker was started")


@pytest.mark.parametrize("who", ["worker", "command"])
def test_an_early_end_leaves_no_file(tmp_path, who):
    output = tmp_path / "machine.json"
    process, worker = _started(output)
    if who == "worker":
        os.kill(worker.pid, signal.SIGKILL)
    else:
        process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert stdout == ""
    assert "Traceback" not in stderr
    if who == "worker":
        assert process.returncode == 1
        assert "measuring ops alone" in stderr
        assert "SIGKILL" in stderr
    else:
        assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
