"""run_workload: what a real run leaves behind, under one process and several, and when a rank dies or Ctrl-C comes."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from foretrace.datasets.errors import PlanError, RunError, UsageError
from foretrace.datasets.plan import Plan
from foretrace.datasets.profile import Profile
from foretrace.datasets.workloads import load
from foretrace.profiler.workload import default_output, run_workload

GPT = {"layers": 2, "width": 16, "heads": 2, "seq": 8, "vocab": 32, "batch": 8}

USER_FILE = """
import torch
def loss(output, target):
    raise ValueError("boom")
def make():
    module = torch.nn.Linear(4, 2)
    return module, lambda n: (torch.randn(n, 4), torch.randn(n, 2)), loss, lambda p: torch.optim.SGD(p, lr=0.1)
"""


def run(folder, plan="single", **options):
    options = {"steps": 4, "warmup": 2, "profile_steps": 0} | options
    return run_workload(load("gpt", **GPT), Plan.parse(plan), output=folder / "run", **options)


def test_single_process(tmp_path):
    told = []
    profile = run(tmp_path, progress=lambda done, total: told.append((done, total)))
    assert profile.status == "complete"
    assert profile.problems == []
    assert profile.plan == Plan()
    assert profile.manifest["workload"]["settings"]["width"] == 16
    assert profile.manifest["loss_last"] < profile.manifest["loss_first"]
    steps = profile.steps.sort_values("step")
    assert steps["step"].tolist() == list(range(4))
    assert not steps["profiled"].any()
    assert profile.step_time_s == pytest.approx(steps["time_s"].median())
    assert (steps["time_s"] - (steps["end_s"] - steps["start_s"])).abs().max() < 1e-9
    assert all(total == 6 for _, total in told)
    memory = profile.memory.set_index("category")["peak_bytes"]
    parameters = sum(parameter.numel() for parameter in load("gpt", **GPT).build().parameters()) * 4
    assert memory["parameters"] == parameters
    # AdamW: two moments and a step count per tensor.
    assert memory["optimizer"] == pytest.approx(2 * parameters, rel=0.02)
    assert memory["total"] == sum(memory[name] for name in memory.index if name not in ("total", "process"))
    assert memory["process"] > 50 * 2**20
    assert profile.manifest["channels"]["memory"] == {"status": "recorded", "reason": None}
    assert "dispatch mode" in profile.manifest["memory_method"]["total"]


def test_two_ranks(tmp_path):
    profile = run(tmp_path, "fsdp=2")
    assert profile.status == "complete"
    assert sorted(profile.steps["rank"].unique()) == [0, 1]
    timed = profile.steps[~profile.steps["profiled"].astype(bool)]
    slowest = timed.groupby("step")["time_s"].max()
    assert profile.step_time_s == pytest.approx(slowest.median())
    # Both ranks keep their clocks in one frame: a step starts on one within moments of the other.
    starts = timed.pivot(index="step", columns="rank", values="start_s")
    assert (starts[0] - starts[1]).abs().max() < 1
    memory = profile.memory.pivot(index="rank", columns="category", values="peak_bytes")
    parameters = sum(parameter.numel() for parameter in load("gpt", **GPT).build().parameters()) * 4
    assert memory["parameters"].tolist() == pytest.approx([parameters / 2] * 2, rel=0.05)


def test_refused_before_anything_starts(tmp_path):
    with pytest.raises(PlanError, match="heads 2 does not divide"):
        run(tmp_path, "tp=4")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        run(tmp_path)


def test_settings_must_travel(tmp_path):
    with pytest.raises(UsageError, match="cannot be handed to a rank process"):
        run_workload(load("gpt", lr=object()), output=tmp_path / "run")


def test_a_users_error_is_named_and_leaves_no_folder(tmp_path):
    (tmp_path / "mine.py").write_text(USER_FILE)
    with pytest.raises(RunError, match=r"rank 0 of 1 raised ValueError: boom \(mine.py, line 4\)"):
        run_workload(load(f"{tmp_path}/mine.py:make"), output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_only_a_rank_can_find_keeps_its_kind_and_leaves_no_folder(tmp_path):
    # Embedding and head only: two children.
    with pytest.raises(PlanError, match="2 layers cannot be split over pp\\(3\\)"):
        run_workload(
            load("gpt", **GPT | {"layers": 0, "batch": 6}), Plan(pp=3, micro_batches=3), output=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_default_folder_names_the_run():
    name = default_output(load("gpt", **GPT), Plan(dp=2, micro_batches=4)).name
    assert name.startswith("gpt-dp2-micro_batches4-")


COMMAND = [
    sys.executable,
    "-c",
    "import sys; from foretrace.cli.main import main; sys.exit(main())",
    "profile",
    "workload",
]
TINY = [argument for key, value in GPT.items() for argument in ("--set", f"{key}={value}")]


def start(folder, *arguments):
    command = [*COMMAND, "gpt", *TINY, "--plan", "dp=2", "--steps", "100000", "-o", str(folder), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(path.stat().st_size for path in folder.glob("steps.rank*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    ranks = [child for child in psutil.Process(process.pid).children() if "training" in " ".join(child.cmdline())]
    assert len(ranks) == 2
    return process, sorted(ranks, key=lambda rank: rank.environ()["RANK"])


def test_killed_rank(tmp_path):
    process, ranks = start(tmp_path / "run")
    os.kill(ranks[1].pid, signal.SIGKILL)
    killed = time.monotonic()
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - killed < 15
    assert process.returncode == 1
    assert stdout == ""
    assert "rank 1 of 2 was killed by SIGKILL (signal 9)" in stderr
    assert "Traceback" not in stderr
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    profile = Profile.load(tmp_path / "run")
    assert profile.status != "complete"
    assert len(profile.steps) > 0


def test_interrupted(tmp_path):
    process, ranks = start(tmp_path / "run")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    assert len(Profile.load(tmp_path / "run").steps) > 0
