import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from foretrace.datasets.errors import InputError
from foretrace.datasets.profile import Profile
from foretrace.datasets.store import RunWriter, read_run


@pytest.mark.parametrize("keep_bytes", [0, 3, 100, -1])
def test_a_cut_part_is_set_aside_and_named_and_the_rest_is_read(run_folder, keep_bytes):
    part = run_folder / "ops.rank1.0.parquet"
    part.write_bytes(part.read_bytes()[:keep_bytes])
    profile = Profile.load(run_folder)
    assert list(profile.ops["rank"]) == [0]
    (problem,) = profile.problems
    assert problem.startswith("ops.rank1.0.parquet: is damaged, cut short or no parquet file (")
    assert problem.endswith("set aside as ops.rank1.0.parquet.damaged")
    assert not part.exists()
    assert (run_folder / "ops.rank1.0.parquet.damaged").exists()
    # It stays missing, and every later reader is told.
    assert Profile.load(run_folder).problems == [
        "ops.rank1.0.parquet.damaged: was set aside as damaged before; what it held is missing"
    ]


def test_bytes_flipped_in_the_middle_are_found(run_folder):
    part = run_folder / "ops.rank1.0.parquet"
    data = bytearray(part.read_bytes())
    data[8:200] = os.urandom(192)
    part.write_bytes(bytes(data))
    profile = Profile.load(run_folder)
    assert len(profile.problems) == 1
    assert "ops.rank1.0.parquet" in profile.problems[0]
    assert list(profile.ops["rank"]) == [0]


def test_without_repair_nothing_is_renamed(run_folder):
    part = run_folder / "ops.rank1.0.parquet"
    part.write_bytes(b"PAR1")
    before = sorted(run_folder.iterdir())
    assert read_run(run_folder, repair=False).problems[0].endswith("left in place")
    assert sorted(run_folder.iterdir()) == before


# Reads a damaged run in a folder that this user cannot write. Root can write everywhere, so the process gives up being
# root, after it has imported what it needs.
READ_ONLY = """
import os, sys
from foretrace.datasets.profile import Profile
sound, damaged = sys.argv[1:]
Profile.load(sound)
if os.geteuid() == 0:
    os.seteuid(65534)
profile = Profile.load(damaged)
print(len(profile.ops), profile.status)
print(*profile.problems, sep="\\n")
"""


def test_a_read_only_folder_reads_fine_and_says_what_it_could_not_do(run_folder):
    # Not under tmp_path: other users may not enter that.
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        copy = Path(base) / "run"
        shutil.copytree(run_folder, copy)
        (copy / "ops.rank1.0.parquet").write_bytes(b"PAR1")
        for entry in copy.iterdir():
            entry.chmod(0o444)
        copy.chmod(0o555)
        try:
            done = subprocess.run(
                [sys.executable, "-c", READ_ONLY, str(run_folder), str(copy)],
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            copy.chmod(0o755)
        assert done.returncode == 0, done.stderr
        counts, problem = done.stdout.splitlines()
        assert counts == "1 complete"
        assert "ops.rank1.0.parquet: is damaged" in problem
        assert "could not set it aside: permission denied" in problem
        assert (copy / "ops.rank1.0.parquet").exists()


def test_a_step_line_cut_by_a_full_disk_or_a_kill_is_named(run_folder):
    steps = run_folder / "steps.rank1.jsonl"
    steps.write_bytes(steps.read_bytes()[:-9])
    profile = Profile.load(run_folder)
    assert profile.problems == [
        "steps.rank1.jsonl: line 4: is cut short; the writer was probably killed; the other lines were read"
    ]
    assert list(profile.steps[profile.steps["rank"] == 1]["step"]) == [0, 1]
    assert steps.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("garbage", "line 3: is no JSON object"),
        ("[1]", "line 3: is no JSON object"),
        ('{"step": 1}', "line 3: table steps: column 'start_s' is missing"),
        (
            '{"step": -1, "start_s": 0, "end_s": 1, "time_s": 1}',
            "line 3: table steps, row 0, column 'step': is negative",
        ),
    ],
)
def test_a_bad_line_in_the_middle_costs_only_itself(run_folder, line, message):
    steps = run_folder / "steps.rank0.jsonl"
    lines = steps.read_text().splitlines()
    lines[2] = line
    steps.write_text("\n".join(lines) + "\n")
    profile = Profile.load(run_folder)
    assert message in profile.problems[0]
    assert list(profile.steps[profile.steps["rank"] == 0]["step"]) == [0, 2]


def test_a_damaged_manifest_does_not_cost_the_rows(run_folder):
    (run_folder / "manifest.json").write_text('{"schema_version": 1, "pl')
    profile = Profile.load(run_folder)
    assert len(profile.ops) == 2
    assert profile.problems[0].startswith("manifest.json: the manifest is damaged or cut short")
    assert profile.manifest["rank"] == 1  # the next best


def test_a_missing_manifest_is_named(run_folder):
    (run_folder / "manifest.json").unlink()
    assert Profile.load(run_folder).problems == [
        "manifest.json: is missing; rank 0 wrote none or was not finished with it"
    ]


def test_a_readable_part_that_breaks_the_schema_is_named_and_left(run_folder):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    part = run_folder / "ops.rank0.1.parquet"
    parquet.write_table(pa.table({"op": ["x"]}), part)
    profile = Profile.load(run_folder)
    assert profile.problems == [
        "ops.rank0.1.parquet: table ops: column 'name' is missing and may not be empty; add it; left in place, not read"
    ]
    assert len(profile.ops) == 2


def test_a_later_schema_version_is_refused_whole(run_folder):
    manifest = json.loads((run_folder / "manifest.json").read_text())
    (run_folder / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 2, "foretrace": "9.0"}))
    with pytest.raises(InputError, match=r"schema_version is 2, written by foretrace 9.0; .* upgrade foretrace"):
        Profile.load(run_folder)


def test_columns_that_came_later_are_empty_and_unknown_ones_left_out(run_folder):
    import pyarrow.parquet as parquet

    part = run_folder / "ops.rank0.0.parquet"
    rows = parquet.ParquetFile(part).read().drop_columns(["kernel", "rank"])
    parquet.write_table(rows.append_column("later", rows.column("op")), part)
    profile = Profile.load(run_folder)
    assert profile.problems == []
    assert profile.ops["kernel"].isna().all()
    assert list(profile.ops["rank"]) == [0, 1]  # from the file's name


def test_parts_come_in_the_order_of_writing(tmp_path, op_row):
    writer = RunWriter.create(tmp_path / "k=v", kind="profile")  # a folder name that parquet takes for a partition
    for part in range(12):  # 10 sorts before 2 as text
        writer.write("ops", [op_row(m=part)])
    assert list(Profile.load(writer.path).ops["m"]) == list(range(12))
