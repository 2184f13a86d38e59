"""make demo: which device file it believes, and how it ends on Ctrl-C. The demo itself takes minutes and is not run."""

import importlib.util
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from foretrace.datasets.environment import environment
from foretrace.datasets.machine import Machine

DEMO = Path(__file__).parents[2] / "benchmarks" / "demo.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(path, *, hours=1.0, **facts):
    created = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    return Machine(name="here", created=created, facts={**environment(), **facts}).save(path)


def test_a_device_file_of_this_machine_and_day_is_used(demo, tmp_path):
    assert demo._still_good(saved(tmp_path / "m.json")).name == "here"


@pytest.mark.parametrize(
    "changes", [{"hours": 25}, {"hours": -1}, {"cpu_model": "another"}, {"usable_cores": 512}, {"torch": "1.0"}]
)
def test_any_other_is_measured_again(demo, tmp_path, changes):
    assert demo._still_good(saved(tmp_path / "m.json", **changes)) is None


def test_a_damaged_or_absent_one_too(demo, tmp_path):
    (tmp_path / "m.json").write_text("{", encoding="utf-8")
    assert demo._still_good(tmp_path / "m.json") is None
    assert demo._still_good(tmp_path / "absent.json") is None


def test_ctrl_c_ends_it_with_130_and_no_traceback(tmp_path):
    command = [sys.executable, str(DEMO), "--work", str(tmp_path / "work"), "--fresh"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("1. The machine")
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in told and "Traceback" not in told
    assert not (tmp_path / "work" / "machine.json").exists()
