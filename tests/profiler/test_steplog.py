"""StepLog: lines in a mapped file that outlive their writer."""

import json
import subprocess
import sys

import pytest
from foretrace.datasets.errors import RunError
from foretrace.datasets.profile import Profile
from foretrace.datasets.store import RunWriter
from foretrace.profiler import steplog
from foretrace.profiler.steplog import StepLog, file_system


def append(log, step):
    log.append(step, float(step), step + 0.5, skipped=step == 3, profiled=step < 2, hook_s=1e-6)


@pytest.mark.parametrize("mapped", [True, False])
def test_many_steps(tmp_path, monkeypatch, mapped):
    # Small chunks, so that it grows often; and the plain way of other file systems.
    monkeypatch.setattr(steplog, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(steplog, "file_system", lambda path: "ext4" if mapped else "nfs4")
    writer = RunWriter.create(tmp_path / "run", kind="profile")
    log = StepLog(writer)
    for step in range(100):
        append(log, step)
    before = Profile.load(writer.path)
    assert before.problems == []
    assert before.steps["step"].tolist() == list(range(100))
    log.close()
    writer.close()
    lines = log.path.read_text().splitlines()
    assert len(lines) == 101  # a header, and nothing that was grown ahead
    assert "schema_version" in json.loads(lines[0])
    steps = Profile.load(writer.path).steps
    assert steps["time_s"].tolist() == [0.5] * 100
    assert steps["skipped"].tolist() == [step == 3 for step in range(100)]
    assert steps["profiled"].tolist() == [step < 2 for step in range(100)]
    # A second log of the same rank goes on behind it.
    again = StepLog(writer)
    append(again, 100)
    again.close()
    assert len(Profile.load(writer.path).steps) == 101


def test_a_full_disk_is_an_error_and_whole_lines_stay(tmp_path):
    code = (
        "import resource\n"
        "from foretrace.datasets.store import RunWriter\n"
        "from foretrace.datasets.errors import RunError\n"
        "from foretrace.profiler.steplog import StepLog\n"
        f"writer = RunWriter.create({str(tmp_path / 'run')!r}, kind='profile')\n"
        "log = StepLog(writer)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "try:\n"
        "    for step in range(1000):\n"
        "        log.append(step, 0.0, 1.0, skipped=False, profiled=False, hook_s=0.0)\n"
        "except RunError as error:\n"
        "    print(step, error)\n"
        "log.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    step, _, message = done.stdout.partition(" ")
    assert "steps.rank0.jsonl: cannot write: " in message
    profile = Profile.load(tmp_path / "run")
    assert 0 < len(profile.steps) == int(step)
    assert profile.problems == []


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(steplog, "file_system", lambda path: "ext4")
    writer = RunWriter.create(tmp_path / "run", kind="profile")
    for entry in writer.path.iterdir():
        entry.unlink()
    writer.path.rmdir()
    with pytest.raises(RunError, match=r"steps.rank0.jsonl: cannot write: no such file"):
        StepLog(writer)


def test_file_system(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:3 / /home rw shared:1 - btrfs /dev/b rw\nnonsense\n"
        "3 2 0:4 / /home/my\\040disk rw - nfs4 host:/ rw\n"
    )
    for path, kind in (("/srv/x", "ext4"), ("/home/a", "btrfs"), ("/homeless", "ext4"), ("/home/my disk/a", "nfs4")):
        assert file_system(steplog.Path(path), mounts) == kind
    assert file_system(tmp_path, tmp_path / "none") is None
