"""foretrace profile run as a user runs it: what is recorded, whose exit code it is, and what every failure leaves."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from foretrace.datasets.profile import Profile

MODEL = """
import os, sys, time
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
inputs, target = torch.randn(8, 16), torch.randint(0, 4, (8,))

def backward():
    nn.functional.cross_entropy(model(inputs), target).backward()
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    backward()
    optimizer.step()
"""
PLAIN = MODEL + LOOP
SLOW = MODEL + LOOP + "    time.sleep(0.01)\n    print(step, flush=True)\n"


@pytest.fixture
def script(tmp_path):
    """Write a script into the test's folder; its name."""

    def write(text, name="train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.fixture
def run(foretrace, tmp_path):
    """`foretrace profile run -o run OPTIONS -- COMMAND` with this Python first in PATH."""

    def start(*command, options=(), env=None, **others):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        variables = {"PATH": path, "OMP_NUM_THREADS": "1", **(env or {})}
        return foretrace("profile", "run", "-o", "run", *options, "--", *command, env=variables, **others)

    return start


def test_an_unchanged_script(run, script, tmp_path):
    text = PLAIN + "print(__name__, sys.argv[1:], sys.path[0])\nprint('to stderr', file=sys.stderr)\n"
    done = run(sys.executable, script(text, "code/train.py"), "12")
    assert done.returncode == 0, done.stderr
    # Its own module name, arguments and path; nothing of ours on stdout, nothing of torch's profiler on stderr.
    assert done.stdout == f"__main__ ['12'] {tmp_path / 'code'}\n"
    assert done.stderr.startswith("to stderr\n")
    assert "USDT" not in done.stderr and "observer" not in done.stderr
    for word in ("median step", "aten.addmm", "only optimizer (SGD)", "no power"):
        assert word in done.stderr
    profile = Profile.load(tmp_path / "run")
    assert profile.status == "complete"
    assert profile.problems == []
    assert profile.steps["step"].tolist() == list(range(12))
    # wait 1, warmup 1, active 3: the warmup step is weighed, so that it is no plain step either.
    assert profile.steps["profiled"].tolist() == [False] + [True] * 4 + [False] * 7
    assert profile.manifest["script_exit_code"] == 0
    assert profile.manifest["optimizer_steps"] == 12
    assert profile.manifest["channels"]["ops"]["join_share"] == 1.0
    assert profile.manifest["channels"]["collectives"]["status"] is None
    assert profile.manifest["overhead"]["hook_s_per_step"] < 200e-6
    linear = profile.ops[(profile.ops["name"] == "aten.addmm")].sort_values("n")
    # (8 × 16)(16 × 32) and (8 × 32)(32 × 4), two FLOPs a multiply-add.
    assert linear[["m", "n", "k", "flops"]].values.tolist() == [[8, 4, 32, 2048.0], [8, 32, 16, 8192.0]]
    assert linear["count"].tolist() == [1, 1]
    parameters = (16 * 32 + 32 + 32 * 4 + 4) * 4
    memory = profile.memory.set_index("category")["peak_bytes"]
    assert memory["parameters"] == parameters
    assert {"host", "memory"} <= set(profile.samples["channel"])


def test_the_scripts_exit_code_is_ours(run, script, tmp_path):
    done = run(sys.executable, script(PLAIN + "sys.exit(3)"), "6")
    assert done.returncode == 3
    assert "the script exited with 3; ending with the same code" in done.stderr
    profile = Profile.load(tmp_path / "run")
    assert (profile.status, len(profile.steps)) == ("failed", 6)


def test_an_exception_in_the_script(run, script, tmp_path):
    done = run(sys.executable, script(PLAIN + "raise ValueError('boom')"), "3")
    assert done.returncode == 1
    assert "ValueError: boom" in done.stderr
    assert "sitecustomize" not in done.stderr
    profile = Profile.load(tmp_path / "run")
    assert (profile.status, len(profile.steps)) == ("failed", 3)
    # The window had one finished step; that one is there.
    assert len(profile.ops) > 0


def test_a_module(foretrace, script, tmp_path):
    script("", "package/__init__.py")
    script(PLAIN + "print(__name__, __package__)", "package/train.py")
    done = foretrace("profile", "run", "-o", "run", "--no-memory", "-m", "package.train", "--", "4")
    assert (done.returncode, done.stdout) == (0, "__main__ package\n"), done.stderr
    profile = Profile.load(tmp_path / "run")
    assert len(profile.steps) == 4
    assert profile.manifest["command"][1:] == ["-m", "package.train", "4"]
    assert profile.manifest["channels"]["memory"] == {"status": "off", "reason": "not asked for"}


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ((sys.executable, "none.py"), 2, "none.py: no such script"),
        (("none.py",), 2, "none.py: no such script"),
        (("torchrun", "--nproc-per-node", "2", "none.py"), 2, "none.py: no such script"),
        (("no-such-command", "train.py"), 127, "no-such-command: command not found"),
        ((), 2, "no command was given"),
    ],
)
def test_what_cannot_start_leaves_no_folder(run, tmp_path, command, code, message):
    done = run(*command)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_script_that_never_steps(run, script, tmp_path):
    done = run(sys.executable, script(MODEL + "backward()\nprint('end')"))
    assert (done.returncode, done.stdout) == (1, "end\n")
    assert "without a training step" in done.stderr
    assert "optimizer.step()" in done.stderr
    assert Profile.load(tmp_path / "run").status == "no steps"


def test_a_script_that_ends_before_its_first_step_is_full(run, script):
    done = run(sys.executable, script(PLAIN), "3", options=("--step-every", "5"))
    assert done.returncode == 1
    assert "before a step was full (3 optimizer steps)" in done.stderr


def test_the_output_folder_must_be_free_and_writable(run, script, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    started = tmp_path / "started"
    name = script(f"open({str(started)!r}, 'w')\n" + PLAIN)
    done = run(sys.executable, name, "2")
    assert done.returncode == 2
    assert "is not empty" in done.stderr and "--force" in done.stderr
    assert not started.exists()
    assert run(sys.executable, name, "2", options=("--force",)).returncode == 0
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    started.unlink()
    # Even root cannot make a folder below a file, or in /sys.
    for place, why in (("run/notes.txt/deeper", "a file is in the way"), ("/sys/foretrace", "cannot write")):
        done = run(sys.executable, name, "2", options=("-o", place))
        assert done.returncode == 2
        assert why in done.stderr
        assert "Traceback" not in done.stderr
    assert not started.exists()


def test_a_full_disk(run, script, tmp_path):
    # A file size limit stands for the disk: a small tmpfs needs root. Python ignores the signal, so writes fail alike.
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = run(sys.executable, script(PLAIN + "print('trained')"), "200", preexec_fn=limit)
    assert done.returncode == 1
    assert done.stdout == "trained\n"
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    profile = Profile.load(tmp_path / "run")
    # Whole lines only, none of them damaged.
    assert 5 < len(profile.steps) < 200
    assert not [name for name in os.listdir(tmp_path / "run") if name.endswith(".tmp")]  # noqa: PTH208


def start(tmp_path, name, *options):
    command = [sys.executable, "-m", "foretrace", "profile", "run", "-o", "run", *options, "--", sys.executable, name]
    process = subprocess.Popen(
        [*command, "100000"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A test run in the background of a shell ignores Ctrl-C, and would hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    for line in process.stdout:
        if int(line) >= 8:
            break
    return process


def child_of(process):
    import psutil

    (child,) = psutil.Process(process.pid).children()
    return child


def test_ctrl_c(tmp_path, script):
    process = start(tmp_path, script(SLOW))
    child = child_of(process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; " in stderr and "recorded before" in stderr
    assert stderr.count("Traceback") <= 1  # the script's own KeyboardInterrupt, as without us
    assert not child.is_running()
    profile = Profile.load(tmp_path / "run")
    assert profile.status == "interrupted"
    assert len(profile.steps) >= 8
    assert len(profile.ops) > 0


def test_kill_9_leaves_every_finished_step(tmp_path, script):
    process = start(tmp_path, script(SLOW))
    child = child_of(process)
    child.kill()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 137  # 128 + 9, as a shell says it
    assert "killed by SIGKILL" in stderr
    profile = Profile.load(tmp_path / "run")
    assert profile.status == "unfinished"
    assert len(profile.steps) >= 8
    # What the finished window recorded was written when it ended.
    assert len(profile.ops) > 0 and len(profile.events) > 0
    assert profile.manifest["channels"]["ops"]["status"] == "recorded"


def test_the_script_ends_with_us(tmp_path, script):
    process = start(tmp_path, script(SLOW))
    child = child_of(process)
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != "zombie" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.is_running() or child.status() == "zombie"
    profile = Profile.load(tmp_path / "run")
    assert profile.status == "unfinished"
    assert len(profile.steps) >= 8


TWO = """
critic = nn.Linear(16, 1)
slow = torch.optim.SGD(model.parameters(), lr=0.1)
fast = torch.optim.Adam(critic.parameters())
for step in range(int(sys.argv[1])):
    for _ in range(3):
        fast.zero_grad()
        critic(inputs).sum().backward()
        fast.step()
    slow.zero_grad()
    backward()
    slow.step()
"""


def test_two_optimizers(run, script, tmp_path):
    done = run(sys.executable, script(MODEL + TWO), "9")
    assert done.returncode == 0, done.stderr
    profile = Profile.load(tmp_path / "run")
    assert len(profile.steps) == 9
    assert profile.manifest["step_rule"] == (
        "a step ends when the optimizer that steps most rarely has stepped (SGD 9 times, Adam 27 times)"
    )
    # critic(8 × 16 · 16 × 1) three times a step.
    critic = profile.ops[(profile.ops["name"] == "aten.addmm") & (profile.ops["n"] == 1)]
    assert critic["count"].tolist() == [3]


SCALED = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step in range(8):
    for micro in range(2):  # gradient accumulation
        scaler.scale(nn.functional.cross_entropy(model(inputs), target)).backward()
    if step in (2, 6):
        model[0].weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def test_gradient_accumulation_and_skipped_steps(run, script, tmp_path):
    done = run(sys.executable, script(MODEL + SCALED))
    assert done.returncode == 0, done.stderr
    assert "8 on 1 rank(s), 2 skipped" in done.stderr
    steps = Profile.load(tmp_path / "run").steps
    assert steps["skipped"].tolist() == [step in (2, 6) for step in range(8)]


DISTRIBUTED = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    backward()
    optimizer.step()
dist.destroy_process_group()
"""


def check_two_ranks(profile):
    assert profile.status == "complete"
    assert profile.world_size == 2
    assert sorted(profile.manifests) == [0, 1]
    assert profile.steps.groupby("rank")["step"].count().tolist() == [8, 8]
    # One bucket with the gradients: (16 · 32 + 32 + 32 · 4 + 4) floats, once a step.
    found = profile.collectives[["kind", "bytes", "ranks", "count", "rank", "backend"]].values.tolist()
    assert found == [["all_reduce", 2704, 2, 1, rank, "gloo"] for rank in (0, 1)]
    assert set(profile.ops["rank"]) == {0, 1}
    assert set(profile.ops["processes"]) == {2}


def test_torchrun_inside(run, script, tmp_path):
    name = script(MODEL + DISTRIBUTED)
    done = run("torchrun", "--standalone", "--nproc-per-node", "2", name)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("median step") == 1
    check_two_ranks(Profile.load(tmp_path / "run"))


def test_torchrun_outside(script, tmp_path):
    name = script(MODEL + DISTRIBUTED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "foretrace", "profile", "run", "--", sys.executable, name],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("median step") == 1
    (folder,) = (tmp_path / "runs").iterdir()  # the default name, which both ranks found on their own
    assert folder.name.startswith("train-")
    check_two_ranks(Profile.load(folder))


SPAWNED = """
import torch.multiprocessing as mp
def main(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    import torch.distributed as dist
    dist.init_process_group("gloo", rank=rank, world_size=2)
    module = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(6):
        module(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
"""


def test_a_script_that_spawns_its_ranks(run, script, tmp_path):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = run(sys.executable, script(MODEL + SPAWNED), str(port))
    assert done.returncode == 0, done.stderr
    profile = Profile.load(tmp_path / "run")
    assert profile.steps.groupby("rank")["step"].count().to_dict() == {0: 6, 1: 6}
    assert profile.status == "complete"


LABELS = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    with torch.profiler.record_function('load "train" split'), torch.profiler.record_function("größe\\\\x"):
        backward()
    optimizer.step()
"""


def test_labels_with_quotes_and_other_alphabets(run, script, tmp_path):
    done = run(sys.executable, script(MODEL + LABELS))
    assert done.returncode == 0, done.stderr
    profile = Profile.load(tmp_path / "run")
    labels = set(profile.events.loc[profile.events["category"] == "annotation", "name"])
    assert {'load "train" split', "größe\\x"} <= labels
    facts = profile.manifest["channels"]["ops"]
    assert facts["status"] == "recorded"
    assert facts["join_share"] == 1.0
    assert facts["repaired_names"] == 2
    assert profile.problems == []


def test_another_sitecustomize_still_runs(run, script, tmp_path):
    script("print('site of the user')", "site/sitecustomize.py")
    done = run(sys.executable, script(PLAIN), "2", env={"PYTHONPATH": str(tmp_path / "site")})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "site of the user\n" * 2  # in our own process and in the script's
