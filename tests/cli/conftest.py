"""Commands as a user runs them: a subprocess; its exit code, stdout and stderr apart."""

import os
import subprocess
import sys

import pytest
from foretrace.datasets.machine import Machine
from foretrace.datasets.schemas import validate
from foretrace.datasets.store import RunWriter

ROW = {
    "op": "matmul", "name": "aten.mm", "direction": "fwd", "dtype": "fp32", "b": 1, "m": 2, "n": 3, "k": 4,
    "shape": {"layout": "nn"}, "flops": 48.0, "bytes_read": 80.0, "bytes_written": 24.0, "time_s": 1e-6, "count": 2,
}  # fmt: skip


@pytest.fixture
def foretrace(tmp_path):
    """Run `foretrace ARGUMENTS` in `tmp_path` with a cache of its own; gives the finished process."""

    def run(*arguments, env=None, **options):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("FORETRACE_")}
        variables |= {"FORETRACE_CACHE_DIR": str(tmp_path / "cache"), **(env or {})}
        options = {"capture_output": True, "text": True, "timeout": 120, "cwd": tmp_path, **options}
        command = [sys.executable, "-m", "foretrace", *map(str, arguments)]
        return subprocess.run(command, env=variables, **options)

    return run


@pytest.fixture
def run_folder(tmp_path):
    """A complete one-rank run of three steps of half a second, at `runs/gpt`."""
    with RunWriter.create(tmp_path / "runs" / "gpt", kind="profile") as writer:
        writer.write("ops", [ROW, {**ROW, "name": "aten.mm", "m": 64, "time_s": 5e-6}])
        for step in range(3):
            writer.step({"step": step, "start_s": step, "end_s": step + 0.5, "time_s": 0.5})
        writer.manifest(workload={"reference": "gpt"}, plan={"dp": 1}, world_size=1)
    return writer.path


@pytest.fixture
def machine_file(tmp_path):
    """A device file in the cache."""
    ops = validate("ops", [{**ROW, "threads": 1, "processes": 1}], where="here").to_pandas()
    machine = Machine(
        name="box", facts={"usable_cores": 2}, ops=ops, peaks={"fp32_flops_per_s_1_thread": 1e10}, quick=True
    )
    return machine.save(tmp_path / "cache" / "machine.json")
