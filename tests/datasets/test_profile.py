import pytest
from foretrace.datasets.errors import InputError
from foretrace.datasets.plan import Plan
from foretrace.datasets.profile import Profile
from foretrace.datasets.schemas import TABLES
from foretrace.datasets.store import RunWriter


@pytest.fixture
def writer(tmp_path):
    return RunWriter.create(tmp_path / "run", kind="profile")


def test_all_ranks_in_one(run_folder):
    profile = Profile.load(run_folder)
    assert profile.status == "complete"
    assert profile.plan == Plan(dp=2)
    assert list(profile.ops["rank"]) == [0, 1]
    assert profile.step_time_s == 0.5  # rank 1 takes 0.5 s, rank 0 half of that: the step is the slowest rank's
    assert profile.step_spread == 0.0
    for table, schema in TABLES.items():
        assert list(getattr(profile, table).columns) == schema.names


def test_skipped_and_profiled_steps_do_not_count(writer, step_row):
    writer.step(step_row(0, 9.0, skipped=True))
    writer.step(step_row(1, 1.0))
    writer.step(step_row(2, 3.0))
    writer.step(step_row(3, 7.0, profiled=True))
    writer.close()
    profile = Profile.load(writer.path)
    assert profile.step_time_s == 2.0
    # quartiles of (1, 3) are 1.5 and 2.5: half their distance 0.5 over the median 2
    assert profile.step_spread == 0.25


def test_profiled_steps_count_when_there_are_no_others(writer, step_row):
    writer.step(step_row(0, 7.0, profiled=True))
    writer.close()
    profile = Profile.load(writer.path)
    assert profile.step_time_s == 7.0
    assert profile.step_spread is None


def test_a_step_that_one_rank_did_not_finish_does_not_count(writer, step_row):
    other = RunWriter.create(writer.path, kind="profile", rank=1, run_id=writer.run_id)
    for step, time_s in ((0, 1.0), (1, 50.0)):
        writer.step(step_row(step, time_s))
    other.step(step_row(0, 2.0))
    assert Profile.load(writer.path).step_time_s == 2.0


def test_unknown_step_time_has_a_reason(writer, step_row):
    assert Profile.load(writer.path).step_time_reason == "no step was recorded"
    writer.step(step_row(0, skipped=True))
    profile = Profile.load(writer.path)
    assert profile.step_time_s is None
    assert profile.step_time_reason == "every recorded step was skipped"


def test_status_of_a_writer_that_never_closed(run_folder):
    RunWriter.create(run_folder, kind="profile", rank=2, run_id="r1")
    assert Profile.load(run_folder).status == "unfinished"


@pytest.mark.parametrize(
    ("error", "status"), [(None, "complete"), (KeyboardInterrupt, "interrupted"), (ValueError, "failed")]
)
def test_status_follows_how_the_block_was_left(tmp_path, error, status):
    try:
        with RunWriter.create(tmp_path / "run", kind="profile"):
            if error:
                raise error
    except (KeyboardInterrupt, ValueError):
        pass
    assert Profile.load(tmp_path / "run").status == status


def test_peak_memory_or_why_not(writer):
    writer.manifest(channels={"memory": {"status": None, "reason": "no /proc here"}})
    profile = Profile.load(writer.path)
    assert (profile.peak_memory_bytes, profile.peak_memory_reason) == (None, "no /proc here")
    writer.write("memory", [
        {"rank": 0, "category": "total", "peak_bytes": 10}, {"rank": 1, "category": "total", "peak_bytes": 30},
        {"rank": 0, "category": "process", "peak_bytes": 99},
    ])  # fmt: skip
    assert Profile.load(writer.path).peak_memory_bytes == 30


def test_prints_well(run_folder):
    profile = Profile.load(run_folder)
    assert "500.00 ms ± 0.0 %, median of 3" in str(profile)
    assert "<table>" in profile._repr_html_()
    profile.problems.append("<script>")
    assert "<script>" not in profile._repr_html_()


def test_a_plan_that_makes_no_sense(writer):
    writer.manifest(plan={"dp": 0})
    with pytest.raises(InputError, match=r"manifest.json: plan: dp must be"):
        _ = Profile.load(writer.path).plan


def test_folders_that_hold_no_profile(tmp_path):
    with pytest.raises(InputError, match="nothing is there"):
        Profile.load(tmp_path / "none")
    with pytest.raises(InputError, match="holds no run"):
        Profile.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a file is there"):
        Profile.load(tmp_path / "file")
    RunWriter.create(tmp_path / "other", kind="sweep")
    with pytest.raises(InputError, match="kind 'sweep', expected 'profile'"):
        Profile.load(tmp_path / "other")
