import json
import os
import signal
import subprocess
import sys
import time

import pytest
from foretrace.datasets.errors import RunError, SchemaError, UsageError
from foretrace.datasets.profile import Profile
from foretrace.datasets.store import RUN_ID_VARIABLE, RunWriter

# A rank of its own: makes or joins the folder, writes three parts and five steps.
RANK = """
import sys
from foretrace.datasets.store import RunWriter
path, rank = sys.argv[1], int(sys.argv[2])
row = {"op": "x", "name": "x", "direction": "fwd", "dtype": "fp32", "b": 0, "m": rank, "n": 0, "k": 0, "shape": "{}",
       "flops": 0, "bytes_read": 0, "bytes_written": 0}
with RunWriter.create(path, kind="profile", rank=rank) as writer:
    for part in range(3):
        writer.write("ops", [{**row, "n": part}])
    for step in range(5):
        writer.step({"step": step, "start_s": step, "end_s": step + 1, "time_s": 1.0})
    writer.manifest(field=rank)
"""


def start(code, *arguments, **variables):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env={**os.environ, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_every_file_says_which_version_wrote_it(run_folder):
    import pyarrow.parquet as parquet

    for path in run_folder.iterdir():
        if path.suffix == ".parquet":
            metadata = parquet.read_schema(path).metadata
            assert metadata[b"schema_version"] == b"1"
            assert b"foretrace" in metadata
        else:
            first = json.loads(path.read_text().splitlines()[0] if path.suffix == ".jsonl" else path.read_text())
            assert first["schema_version"] == 1
            assert "foretrace" in first


def test_ranks_that_start_at_once_join_one_folder(tmp_path):
    path = tmp_path / "run"
    # Rank 1 is there twice: two writers of one rank must not overwrite each other either.
    ranks = [start(RANK, path, rank, **{RUN_ID_VARIABLE: "job7"}) for rank in (0, 1, 1, 2)]
    for process in ranks:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    profile = Profile.load(path)
    assert profile.problems == []
    assert profile.status == "complete"
    assert profile.ops.groupby("rank").size().to_dict() == {0: 3, 1: 6, 2: 3}
    assert profile.steps.groupby("rank").size().to_dict() == {0: 5, 1: 10, 2: 5}
    assert {rank: manifest["field"] for rank, manifest in profile.manifests.items()} == {0: 0, 1: 1, 2: 2}
    assert {manifest["run_id"] for manifest in profile.manifests.values()} == {"job7"}


def test_of_two_runs_that_want_one_folder_one_gets_it(tmp_path):
    path = tmp_path / "run"
    runs = [start(RANK, path, 0, **{RUN_ID_VARIABLE: name}) for name in ("a", "b")]
    outcomes = []
    for process in runs:
        _, stderr = process.communicate(timeout=60)
        outcomes.append((process.returncode, stderr))
    assert sorted(code for code, _ in outcomes) == [0, 1]
    assert "is not empty" in max(outcomes)[1]
    assert len(Profile.load(path).ops) == 3


KILLED = """
import itertools, sys
from foretrace.datasets.store import RunWriter
row = {"op": "x", "name": "x" * 50, "direction": "fwd", "dtype": "fp32", "b": 0, "m": 0, "n": 0, "k": 0, "shape": "{}",
       "flops": 0, "bytes_read": 0, "bytes_written": 0}
writer = RunWriter.create(sys.argv[1], kind="profile")
writer.write("ops", [row])
for step in itertools.count():
    writer.step({"step": step, "start_s": step, "end_s": step + 1, "time_s": 1.0})
    if step % 50 == 0:
        writer.write("ops", [row] * 5000)
        writer.manifest(recorded=step)
"""


@pytest.mark.parametrize("later_s", [0.0, 0.013, 0.1])
def test_kill_9_leaves_every_finished_step_readable(tmp_path, later_s):
    path = tmp_path / "run"
    process = start(KILLED, path)
    steps = path / "steps.rank0.jsonl"
    deadline = time.monotonic() + 60
    while not (steps.exists() and steps.stat().st_size > 5000):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(later_s)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    profile = Profile.load(path)
    assert profile.problems == []
    assert profile.status == "unfinished"
    assert list(profile.steps["step"]) == list(range(len(profile.steps)))
    assert len(profile.steps) > 50
    assert (len(profile.ops) - 1) % 5000 == 0
    # The half-written temporary file, if any, is cleared away by the next run.
    RunWriter.create(path, kind="profile", force=True).close()
    assert sorted(entry.name for entry in path.iterdir()) == ["manifest.json", "run.json"]


FULL_DISK = """
import os, resource, sys
from foretrace.datasets.errors import RunError
from foretrace.datasets.store import RunWriter
import pyarrow.parquet, msgspec
row = {"op": "x", "direction": "fwd", "dtype": "fp32", "b": 0, "n": 0, "k": 0, "shape": "{}",
       "flops": 0, "bytes_read": 0, "bytes_written": 0}
writer = RunWriter.create(sys.argv[1], kind="profile")
writer.step({"step": 0, "start_s": 0, "end_s": 1, "time_s": 1.0})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
def attempt(what, *arguments, **fields):
    try:
        what(*arguments, **fields)
    except RunError as error:
        print(error)
        return True
attempt(writer.write, "ops", [{**row, "name": os.urandom(8).hex(), "m": m} for m in range(20000)])
step = 1
while not attempt(writer.step, {"step": step, "start_s": step, "end_s": step + 1, "time_s": 1.0}):
    step += 1
print(step)
attempt(writer.manifest, note="x" * 10000)
writer.close()
"""


def test_a_full_disk_is_told_and_leaves_no_half_file(tmp_path):
    path = tmp_path / "run"
    process = start(FULL_DISK, path)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    of_ops, of_step, finished, of_manifest = stdout.splitlines()
    for line, name in ((of_ops, "ops.rank0.0.parquet"), (of_step, "steps.rank0.jsonl"), (of_manifest, "manifest.json")):
        assert line.startswith(f"{path / name}: cannot write: ")
        assert "; " in line
    profile = Profile.load(path)
    assert profile.problems == []
    assert list(profile.steps["step"]) == list(range(int(finished)))
    assert profile.status == "complete"
    assert sorted(entry.name for entry in path.iterdir()) == ["manifest.json", "run.json", "steps.rank0.jsonl"]


def test_a_folder_in_use_is_refused_unless_forced(run_folder):
    (run_folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not empty, found .*; choose another folder or pass --force"):
        RunWriter.create(run_folder, kind="profile")
    RunWriter.create(run_folder, kind="profile", force=True).close()
    assert (run_folder / "notes.txt").read_text() == "mine"
    assert len(Profile.load(run_folder).ops) == 0


def test_force_lets_the_other_ranks_join_and_not_clear_again(run_folder, op_row):
    first = RunWriter.create(run_folder, kind="profile", force=True, run_id="new")
    first.write("ops", [op_row()])
    RunWriter.create(run_folder, kind="profile", rank=1, force=True, run_id="new").write("ops", [op_row()])
    assert len(Profile.load(run_folder).ops) == 2


def test_a_foreign_folder_and_a_file_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"found notes.txt"):
        RunWriter.create(tmp_path, kind="profile")
    with pytest.raises(UsageError, match="is a file, not a run folder"):
        RunWriter.create(tmp_path / "notes.txt", kind="profile")
    with pytest.raises(UsageError, match="a file is in the way"):
        RunWriter.create(tmp_path / "notes.txt" / "run", kind="profile")


def test_a_bad_row_is_named_and_nothing_is_written(tmp_path, op_row):
    writer = RunWriter.create(tmp_path / "run", kind="profile")
    with pytest.raises(SchemaError, match=r"ops.rank0.0.parquet: table ops, row 1, column 'm'"):
        writer.write("ops", [op_row(), op_row(m=-1)])
    assert not list(writer.path.glob("*.parquet"))


def test_the_manifest_merges_and_keeps_its_identity(tmp_path):
    writer = RunWriter.create(tmp_path / "run", kind="profile")
    writer.manifest(a=1, b=float("nan"))
    writer.manifest(a=2)
    manifest = json.loads((writer.path / "manifest.json").read_text(), parse_constant=pytest.fail)
    assert (manifest["a"], manifest["b"], manifest["status"]) == (2, None, "running")
    with pytest.raises(ValueError, match="run_id"):
        writer.manifest(run_id="other")


def test_closing_twice_keeps_the_first_status(tmp_path):
    with RunWriter.create(tmp_path / "run", kind="profile") as writer:
        writer.close("interrupted")
    assert Profile.load(writer.path).status == "interrupted"


def test_a_folder_that_vanished_is_told(tmp_path, step_row, op_row):
    import shutil

    writer = RunWriter.create(tmp_path / "run", kind="profile")
    shutil.rmtree(writer.path)
    for attempt in (
        lambda: writer.step(step_row(0)), lambda: writer.write("ops", [op_row()]), lambda: writer.manifest(a=1)
    ):  # fmt: skip
        with pytest.raises(RunError, match="cannot write"):
            attempt()


def test_a_step_costs_microseconds(tmp_path, step_row):
    writer = RunWriter.create(tmp_path / "run", kind="profile")
    writer.step(step_row(0))
    times = []
    for step in range(1, 2000):
        row = step_row(step)
        begin = time.perf_counter()
        writer.step(row)
        times.append(time.perf_counter() - begin)
    writer.close()
    # 10 to 15 us here; the bound only catches a fsync or a file opened anew for every step.
    assert sorted(times)[len(times) // 2] < 200e-6
