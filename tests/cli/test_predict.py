"""`foretrace predict` as a user runs it: exit code, stdout and stderr apart; and its answer beside a real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

MACHINE = Path(__file__).parents[1] / "data" / "machine.json"
TINY = (
    "--set",
    "layers=1",
    "--set",
    "width=32",
    "--set",
    "heads=2",
    "--set",
    "vocab=64",
    "--seq",
    "8",
    "--global-batch",
    "4",
)


def foretrace(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foretrace", *map(str, arguments)]
    variables = {**os.environ, "FORETRACE_CACHE_DIR": str(cwd / "cache")}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables, timeout=120, check=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("predict")


@pytest.fixture(scope="module")
def predicted(work) -> Path:
    """The JSON of one prediction under dp=2, with its timeline beside it."""
    run = foretrace(
        "predict", "gpt", "--plan", "dp=2", "--cluster", MACHINE, *TINY, "--json", "--timeline", "t.json", cwd=work
    )
    assert run.returncode == 0, run.stderr
    path = work / "dp2.json"
    path.write_text(run.stdout, encoding="utf-8")
    return path


def test_json_is_one_document_whose_parts_sum(predicted):
    document = json.loads(predicted.read_text(encoding="utf-8"))
    assert document["schema_version"] == 1
    assert document["plan"]["dp"] == 2 and document["plan"]["global_batch"] == 4
    assert sum(document["parts_s"].values()) == pytest.approx(document["step_time_s"])
    assert document["interval_s"]["low"] < document["step_time_s"] < document["interval_s"]["high"]
    assert sum(document["source_share"].values()) == pytest.approx(1.0)
    for stage in document["memory"]:
        assert sum(stage["parts_bytes"].values()) == stage["peak_bytes"]
    assert document["fits"] is True
    assert document["unknown_ops"] == {}


def test_timeline_opens_as_a_chrome_trace(predicted, work):
    trace = json.loads((work / "t.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {"compute", "dp"} <= names
    assert any(name.endswith(": rank") for name in names)
    step_us = json.loads(predicted.read_text(encoding="utf-8"))["step_time_s"] * 1e6
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(step_us, abs=0.01)
    for thread in {event["tid"] for event in events}:
        own = [event for event in events if event["tid"] == thread]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in pairwise(own))


def test_explain_ends_with_the_measurement_that_helps_most(work):
    run = foretrace("predict", "mlp", "--cluster", MACHINE, "--explain", cwd=work)
    assert run.returncode == 0, run.stderr
    assert "would" in run.stdout.strip().splitlines()[-1]
    # The verdict comes before the time.
    assert 0 < run.stdout.index("fits") < run.stdout.index("80 % interval")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("predict", "gpt", "--plan", "dp=3", "--cluster", MACHINE, "--global-batch", 8), 4, "remainder"),
        (("predict", "gpt", "--plan", "dp=two", "--cluster", MACHINE), 2, "whole number"),
        (("predict", "nothing", "--cluster", MACHINE), 2, "gpt"),
        (("predict", "gpt", "--cluster", "absent.json"), 3, "absent.json"),
        (("predict", "gpt", "--cluster", MACHINE, "--set", "vocab"), 2, "KEY=VALUE"),
        (("predict", "gpt", "--cluster", MACHINE, "--plan", "threads=64"), 4, "threads(64)"),
        (("predict", "gpt"), 3, "foretrace profile machine"),
    ],
)
def test_mistakes_are_one_line_with_the_right_code(arguments, code, said, work):
    run = foretrace(*arguments, cwd=work)
    assert run.returncode == code, run.stderr
    assert said in run.stderr
    assert run.stdout == ""
    assert "Traceback" not in run.stderr


def test_a_plan_that_does_not_fit_gets_no_step_time(work):
    machine = json.loads(MACHINE.read_text(encoding="utf-8"))
    machine["facts"]["memory_bytes"] = 1 << 20
    small = work / "small.json"
    small.write_text(json.dumps(machine), encoding="utf-8")
    arguments = ("predict", "gpt", "--cluster", small, *TINY, "--set", "width=256", "--explain")
    run = foretrace(*arguments, cwd=work)
    assert run.returncode == 4
    assert "does not fit" in run.stderr and "parameters" in run.stderr
    assert run.stdout == ""
    run = foretrace(*arguments, "--json", cwd=work)
    assert run.returncode == 4
    assert json.loads(run.stdout)["fits"] is False


def test_compare_a_prediction_with_a_run(predicted, work):
    trained = foretrace(
        "profile", "workload", "gpt", "--plan", "dp=2", *TINY, "--steps", 3, "--profile-steps", 2, "-o", "run", cwd=work
    )
    assert trained.returncode == 0, trained.stderr
    run = foretrace("compare", predicted, "run", "--json", cwd=work)
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert document["measured_inside_interval"] in (True, False)
    # The tracer and the profiler name the same work alike. What differs are DDP's copies into and out of its buckets,
    # whose shapes only the run knows: one multiplication and one copy for each of six shapes of parameters, and the sum
    # of two gradients that autograd adds in place.
    matched = {(op["op"], op["phase"], op["dims"]) for op in document["ops"]}
    assert any(op == "aten.addmm" and phase == "forward" for op, phase, _ in matched)
    assert document["ops_only_in_b"] <= 14 < 60 < len(matched)
    calibrated = foretrace(
        "predict", "gpt", "--plan", "dp=2", "--cluster", MACHINE, *TINY, "--from-profile", "run", "--json", cwd=work
    )
    assert calibrated.returncode == 0, calibrated.stderr
    assert json.loads(calibrated.stdout)["inputs"]["calibration"]
