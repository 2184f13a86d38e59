"""Session: the schedule, what a step costs, what is written when, and what happens when something breaks."""

import pytest
import torch
from foretrace.datasets.errors import RunError, UsageError
from foretrace.datasets.profile import Profile
from foretrace.datasets.store import RunWriter
from foretrace.profiler.session import CHANNELS, Session


class Clock:
    """Moves when told to, and by `tick` with every look."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 100.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def writer(tmp_path):
    return RunWriter.create(tmp_path / "run", kind="profile")


def test_steps_without_channels(writer):
    clock = Clock()
    session = Session(writer, channels=(), wait=1, warmup=1, active=2, clock=clock)
    for length in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        clock.now += length
        session.step(skipped=length == 5.0)
    session.close()
    steps = Profile.load(writer.path).steps
    assert steps["time_s"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert steps["start_s"].tolist() == [0.0, 1.0, 3.0, 6.0, 10.0, 15.0]
    assert steps["profiled"].tolist() == [False, True, True, True, False, False]
    assert steps["skipped"].tolist() == [False] * 4 + [True, False]


def test_our_own_time_is_measured_and_in_no_step(writer):
    clock = Clock(tick=0.25)
    session = Session(writer, channels=(), wait=0, warmup=0, active=1, clock=clock)
    for _ in range(4):
        clock.now += 10.0
        session.step()
    session.close()
    steps = Profile.load(writer.path).steps
    # One look when the step ends, one when the hook does: every step is 10 s and its own look.
    assert steps["time_s"].tolist() == [10.25] * 4
    assert session.hook_s_per_step == 0.25
    assert steps["hook_s"].tolist()[2:] == [0.25, 0.25]


def test_a_step_that_was_found_late(writer):
    clock = Clock()
    session = Session(writer, channels=(), clock=clock)
    clock.now += 10
    session.step(end_s=104.0)
    session.step(end_s=107.0)
    session.step()
    session.close()
    assert Profile.load(writer.path).steps["time_s"].tolist() == [4.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("schedule", "phases"),
    [
        ({"wait": 1, "warmup": 1, "active": 3}, "wait weighed timed timed described"),
        ({"wait": 0, "warmup": 0, "active": 1}, "described weighed"),
        ({"wait": 2, "warmup": 2, "active": 1, "repeat": 2}, "wait wait warmup weighed described " * 2),
    ],
)
def test_the_schedule(writer, schedule, phases):
    session = Session(writer, channels=("ops", "memory"), **schedule)
    assert session._phases == phases.split()
    session.close()


@pytest.mark.parametrize("wrong", [{"active": 0}, {"wait": -1}, {"repeat": 0}, {"channels": ("opps",)}])
def test_a_schedule_that_makes_no_sense(writer, wrong):
    with pytest.raises(UsageError):
        Session(writer, **wrong)


def train(steps, session, optimizers):
    model = torch.nn.Linear(6, 3)
    optimizers.append(torch.optim.Adam(model.parameters()))
    for _ in range(steps):
        model(torch.ones(2, 6)).sum().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        session.step()


def test_all_channels(writer):
    optimizers = []
    with Session(writer, optimizers=lambda: optimizers) as session:
        train(7, session, optimizers)
        # Written as soon as the window was over, not at the end.
        early = Profile.load(writer.path)
        assert len(early.ops) and len(early.memory) and early.manifest["channels"]["ops"]["status"] == "recorded"
    profile = Profile.load(writer.path)
    assert profile.status == "complete"
    assert set(profile.manifest["channels"]) == set(CHANNELS)
    for name, channel in profile.manifest["channels"].items():
        assert (channel["status"] == "recorded") == (channel["reason"] is None), name
    memory = profile.memory.set_index("category")["peak_bytes"]
    assert memory["parameters"] == (6 * 3 + 3) * 4
    # Adam: two moments as large as the parameters, and a step count for each of the two.
    assert memory["optimizer"] == 2 * (6 * 3 + 3) * 4 + 2 * 4
    timeline = profile.samples[profile.samples["name"] == "live_tensors"]
    assert timeline["value"].max() == memory["total"]
    assert timeline["time_s"].is_monotonic_increasing
    cpu = profile.samples[profile.samples["name"] == "cpu_time"]["value"]
    assert cpu.is_monotonic_increasing and len(cpu) >= 2


def test_rows_stay_unique_over_several_windows(writer):
    optimizers = []
    with Session(writer, channels=("ops",), active=2, repeat=2, optimizers=lambda: optimizers) as session:
        train(9, session, optimizers)
    profile = Profile.load(writer.path)
    key = ["name", "phase", "m", "n", "k", "shape", "dtype"]
    assert not profile.ops.duplicated(key).any()
    assert profile.ops.loc[profile.ops["name"] == "aten.addmm", "count"].tolist() == [1]
    ops = profile.events[profile.events["category"] == "op"]
    assert sorted(ops["step"].unique()) == [2, 6]
    assert ops["row"].between(0, len(profile.ops) - 1).all()
    assert (profile.ops["name"].iloc[ops["row"].astype(int)].str.replace(".", "::").values == ops["name"].values).all()


def test_a_run_that_ends_too_early_says_so(writer):
    optimizers = []
    with Session(writer, optimizers=lambda: optimizers) as session:
        train(1, session, optimizers)
    profile = Profile.load(writer.path)
    assert len(profile.steps) == 1
    for name in ("ops", "collectives", "memory"):
        channel = profile.manifest["channels"][name]
        assert channel["status"] is None
        assert "the run ended" in channel["reason"]
    assert profile.peak_memory_reason is None  # the process's own is known
    assert profile.memory.set_index("category").loc["total", "reason"]


def test_a_disk_that_refuses_does_not_stop_the_training(writer, monkeypatch, capsys):
    session = Session(writer, channels=())

    def refuse(*row, **more):
        raise RunError("steps.rank0.jsonl: cannot write: no space left on device")

    monkeypatch.setattr(session._log, "append", refuse)
    for _ in range(3):
        session.step()
    session.close()
    assert capsys.readouterr().err.count("no space left on device") == 1
    profile = Profile.load(writer.path)
    assert profile.status == "incomplete"
    assert "no space left" in profile.problems[0]


def test_a_channel_that_breaks_does_not_stop_the_training(writer, monkeypatch, capsys):
    session = Session(writer, channels=("host",), wait=0, warmup=0, active=2)
    monkeypatch.setattr(session._channels[0], "rows", lambda steps: 1 / 0)
    for _ in range(4):
        session.step()
    session.close()
    assert "recording stopped after step 2: ZeroDivisionError" in capsys.readouterr().err
    assert len(Profile.load(writer.path).steps) == 4


def test_interrupted(writer):
    with pytest.raises(KeyboardInterrupt), Session(writer, channels=("host",)) as session:
        session.step()
        raise KeyboardInterrupt
    profile = Profile.load(writer.path)
    assert (profile.status, len(profile.steps)) == ("interrupted", 1)


def test_another_profiler_is_a_reason(writer):
    with torch.autograd.profiler.profile(use_kineto=True):
        session = Session(writer, channels=("ops",))
    assert session.channels["ops"] == {
        "status": None, "reason": "another profiler is already recording in this process",
    }  # fmt: skip
    session.close()


def test_the_scripts_own_profiler_goes_first(writer):
    optimizers = []
    # Once only: a second cycle warns, and warnings are errors here.
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=4, repeat=1)
    session = Session(writer, channels=("ops",), optimizers=lambda: optimizers)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as own:
        model = torch.nn.Linear(6, 3)
        for _ in range(8):
            model(torch.ones(2, 6)).sum().backward()
            session.step()
            own.step()
    session.close()
    assert any(event.key == "aten::addmm" for event in own.key_averages())
    profile = Profile.load(writer.path)
    assert len(profile.steps) == 8
    assert profile.manifest["channels"]["ops"]["reason"].startswith("the script uses torch.profiler itself")
