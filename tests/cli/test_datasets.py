import json

import pytest


def document(done):
    """The one JSON document of a command, with what all of them share checked."""
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert found["schema_version"] == 1
    assert list(found) == sorted(found)
    return found


def test_list_finds_runs_below_and_the_cache(foretrace, run_folder, machine_file, tmp_path):
    (tmp_path / "other.json").write_text('{"a": 1}')
    done = foretrace("datasets", "list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["machine", str(machine_file)], ["profile", "runs/gpt"]] or [
        line.split()[:2] for line in lines[2:]
    ] == [["machine", "cache/machine.json"], ["profile", "runs/gpt"]]
    assert "500.00" in lines[3]
    entries = document(foretrace("datasets", "list", "--json"))["entries"]
    assert [(entry["kind"], entry["what"], entry["step_time_s"]) for entry in entries] == [
        ("machine", "box", None), ("profile", "gpt", 0.5),
    ]  # fmt: skip


def test_list_of_nothing_says_where_it_looked(foretrace):
    done = foretrace("datasets", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no run folder and no device file under" in done.stderr
    assert foretrace("-q", "datasets", "list").stderr == ""
    assert document(foretrace("datasets", "list", "--json"))["entries"] == []


def test_list_names_what_is_damaged_and_goes_on(foretrace, run_folder, machine_file):
    machine_file.write_text(machine_file.read_text()[:-10])
    entries = document(foretrace("datasets", "list", "--json"))["entries"]
    assert [entry["status"] for entry in entries] == ["damaged", "complete"]
    assert "damaged or cut short" in entries[0]["problems"][0]


def test_show_a_run(foretrace, run_folder):
    done = foretrace("datasets", "show", run_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "500.00 ms ± 0.0 %, median of 3" in done.stdout
    assert "ops: 2 of 2 rows" in done.stdout
    shown = document(foretrace("datasets", "show", run_folder, "--json"))
    assert (shown["kind"], shown["status"], shown["rows"]["ops"]) == ("profile", "complete", 2)


def test_show_never_cuts_a_number(foretrace, run_folder):
    done = foretrace("datasets", "show", run_folder, "--table", "ops", env={"COLUMNS": "40"})
    assert "5e-06" in done.stdout
    assert "…" not in done.stdout


def test_show_a_table_as_json(foretrace, run_folder):
    shown = document(foretrace("datasets", "show", run_folder, "--table", "ops", "--top", 1, "--json"))
    (row,) = shown["table"]
    assert (row["m"], row["threads"]) == (2, None)


def test_show_a_device_file(foretrace, machine_file):
    done = foretrace("datasets", "show", machine_file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fp32_flops_per_s_1_thread" in done.stdout
    assert document(foretrace("datasets", "show", machine_file, "--json"))["name"] == "box"


def test_validate_says_what_was_read(foretrace, run_folder, machine_file):
    done = foretrace("datasets", "validate", run_folder, machine_file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{run_folder}: ok (2 ops, 3 steps)", f"{machine_file}: ok (1 ops)"]


def test_validate_names_every_problem_and_changes_nothing(foretrace, run_folder, machine_file):
    (run_folder / "ops.rank0.0.parquet").write_bytes(b"PAR1")
    with (run_folder / "steps.rank0.jsonl").open("a") as steps:
        steps.write('{"step": ')
    before = sorted(run_folder.iterdir())
    done = foretrace("datasets", "validate", run_folder, machine_file)
    assert done.returncode == 3
    assert done.stdout == f"{machine_file}: ok (1 ops)\n"
    assert f"{run_folder}: ops.rank0.0.parquet: is damaged, cut short or no parquet file" in done.stderr
    assert f"{run_folder}: steps.rank0.jsonl: line 5: is cut short" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(run_folder.iterdir()) == before
    as_json = foretrace("datasets", "validate", run_folder, "--json")
    assert as_json.returncode == 3
    assert len(json.loads(as_json.stdout)["results"][0]["problems"]) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "host.csv",
            "kind,time_s\nstep,1.0\nstep,fast\n",
            "host.csv: table host, row 1, column 'time_s': expected double",
        ),
        ("mine.csv", "a,b\n1,2\n", "cannot tell which table it holds; give --table"),
        ("mine.json", "{}", "is neither a device file"),
        ("mine.json", '{"kind": "machine", "name": "x"}', "facts.usable_cores must be a whole number"),
        ("mine.txt", "", "cannot tell the format"),
    ],
)
def test_validate_a_single_file(foretrace, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    done = foretrace("datasets", "validate", name)
    assert done.returncode == (2 if "cannot tell" in message else 3)
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("foretrace: error: ")


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_what_is_exported_is_valid(foretrace, run_folder, tmp_path, form):
    done = foretrace("datasets", "export", run_folder, "-o", "out", "--format", form)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"wrote out/ops.{form} (2 rows)" in done.stderr
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == [f"ops.{form}", f"steps.{form}"]
    checked = foretrace("datasets", "validate", f"out/ops.{form}", f"out/steps.{form}")
    assert (checked.returncode, checked.stderr) == (0, "")
    again = foretrace("datasets", "export", run_folder, "-o", "out", "--format", form)
    assert again.returncode == 2
    assert "exists; choose another place or pass --force" in again.stderr
    assert foretrace("datasets", "export", run_folder, "-o", "out", "--format", form, "--force").returncode == 0


def test_export_one_table(foretrace, run_folder, machine_file, tmp_path):
    done = foretrace("datasets", "export", run_folder, "--table", "steps")
    assert done.stdout.splitlines()[0].startswith("rank,step,start_s")
    assert len(done.stdout.splitlines()) == 4
    assert foretrace("datasets", "export", machine_file, "--table", "ops", "-o", "deep/box.parquet").returncode == 0
    assert document(foretrace("datasets", "show", "deep/box.parquet", "--json"))["rows"] == {"ops": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "export to stdout takes one --table"),
        (("--table", "ops", "--format", "parquet"), "export to stdout takes one --table"),
        (("-o", "out.csv"), "a file takes one --table"),
        (("-o", "out.csv", "--table", "ops", "--format", "json"), "contradicts --format json"),
        (("-o", "file/out"), "a file is in the way"),
    ],
)
def test_export_refuses_what_makes_no_sense(foretrace, run_folder, tmp_path, arguments, message):
    (tmp_path / "file").write_text("")
    done = foretrace("datasets", "export", run_folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_no_colour_and_no_escape_codes_in_a_pipe(foretrace, run_folder):
    for variables in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb", "FORCE_COLOR": "1"}):
        assert "\x1b" not in foretrace("datasets", "show", run_folder, env=variables).stdout
