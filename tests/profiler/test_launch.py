"""launch: results come back by rank, a rank that dies ends the others and is named, nothing is left behind."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from foretrace.datasets.errors import PlanError, RunError
from foretrace.profiler.launch import launch

# One module plays every part; `part` in the task says what its rank does.
RANK = """
import os, signal, sys, time
from foretrace.datasets.errors import PlanError
from foretrace.profiler.rank import rank_main

def body(context):
    part = context.task["part"]
    if part == "echo":
        context.progress(7)
        context.result(rank=context.rank, threads=os.environ["OMP_NUM_THREADS"])
    elif part == "kill" and context.rank == 1:
        print("about to go", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif part == "raise" and context.rank == 1:
        raise ValueError("no such luck")
    elif part == "ours":
        raise PlanError("plan: 3 does not divide")
    elif part == "exit":
        os._exit(0)
    elif part == "echo-of-loss":
        if context.rank == 0:
            raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")
        time.sleep(0.1)
        raise ValueError("the first cause")
    else:
        time.sleep(600)

rank_main(body)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "ranks_for_test.py").write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return "ranks_for_test"


def run(module, part, world_size=2, **options):
    return launch(module, {"part": part}, world_size=world_size, threads=1, what="testing", **options)


def test_results_come_back_by_rank(module):
    numbers = []
    results = run(module, "echo", progress=numbers.append)
    assert results == [{"rank": 0, "threads": "1"}, {"rank": 1, "threads": "1"}]
    assert set(numbers) <= {-1, 7}


def test_killed_rank_ends_the_others(module):
    started = time.monotonic()
    with pytest.raises(RunError, match=r"testing: rank 1 of 2 was killed by SIGKILL \(signal 9\)") as caught:
        run(module, "kill")
    assert time.monotonic() - started < 15
    assert "about to go" in str(caught.value)
    assert not [child for child in psutil.Process().children() if "ranks_for_test" in " ".join(child.cmdline())]


def test_an_exception_is_named(module):
    with pytest.raises(RunError, match=r"rank 1 of 2 raised ValueError: no such luck \(ranks_for_test.py, line \d+\)"):
        run(module, "raise")


def test_our_own_errors_keep_their_kind(module):
    with pytest.raises(PlanError, match="3 does not divide"):
        run(module, "ours")


def test_leaving_early_with_zero_is_a_failure(module):
    with pytest.raises(RunError, match="exited with 0 before it was done"):
        run(module, "exit", world_size=1)


def test_who_lost_its_peer_is_not_blamed(module):
    with pytest.raises(RunError, match="rank 1 of 2 raised ValueError: the first cause"):
        run(module, "echo-of-loss")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ranks_end_with_their_parent(module, how):
    call = f"launch({module!r}, {{'part': 'wait'}}, world_size=2, threads=1, what='x')"
    code = f"from foretrace.profiler.launch import launch\n{call}"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while len(ranks := psutil.Process(parent.pid).children()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    parent.send_signal(how)
    parent.wait(timeout=10)
    _, alive = psutil.wait_procs(ranks, timeout=5)
    assert len(ranks) == 2
    assert not alive
