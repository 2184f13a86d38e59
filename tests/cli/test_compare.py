"""`foretrace compare`: sides read from runs and predictions, the rules of --fail-on, and what damaged files get.

Runs are written by hand, so that every expected figure is plain arithmetic.
"""

import copy
import json

import pytest
from foretrace.cli.compare import compare, judge
from foretrace.cli.side import Side, read_side
from foretrace.datasets.errors import InputError
from foretrace.datasets.store import RunWriter
from foretrace.predictor.prediction import OpCost, Prediction, StageMemory

MM = {
    "op": "matmul", "name": "aten.mm", "direction": "fwd", "dtype": "fp32", "b": 1, "m": 2, "n": 3, "k": 4,
    "shape": {"layout": "nn"}, "flops": 48.0, "bytes_read": 80.0, "bytes_written": 24.0, "phase": "forward",
    "time_s": 0.010, "spread": 0.1, "count": 2,
}  # fmt: skip
VIEW = {**MM, "op": "view", "name": "aten.view", "time_s": 5.0}


def write_run(path, step_times_s, *, plan=None, mm_s=0.010, ranks=1, status="complete"):
    for rank in range(ranks):
        writer = RunWriter.create(path, kind="profile", rank=rank, run_id="one")
        writer.write("ops", [{**MM, "rank": rank, "time_s": mm_s}, {**VIEW, "rank": rank}])
        host = {"workload": None, "phase": "forward", "ops": 2, "views": 1, "spread": 0.0, "source": "profile"}
        writer.write("host", [{**host, "kind": "step", "time_s": 0.003}, {**host, "kind": "wait", "time_s": 0.001}])
        writer.write("memory", [{"rank": rank, "category": "total", "peak_bytes": 1000 + rank, "reason": None}])
        for step, time_s in enumerate(step_times_s):
            writer.step({"step": step, "start_s": step, "end_s": step + time_s, "time_s": time_s})
        writer.manifest(workload={"name": "gpt"}, plan=plan or {"dp": ranks}, world_size=ranks)
        writer.close(status)
    return path


def prediction(step_time_s=0.5, **changes):
    cost = OpCost("matmul", "aten.mm", "forward", "1×2×3×4", "fp32", 2, 0.012, 0.024, 0.2, "measured")
    fields = {
        "workload": "gpt", "plan": {"dp": 1}, "cluster": "box", "step_time_s": step_time_s, "low_s": 0.9 * step_time_s,
        "high_s": 1.1 * step_time_s, "parts_s": {"forward": 0.6 * step_time_s, "host": 0.4 * step_time_s},
        "memory": [StageMemory("rank", 1024, {"parameters": 1024}, 0.0)], "memory_limit_bytes": 1 << 30, "flops": 1e6,
        "mfu": None, "mfu_convention": "none", "source_share": {"measured": 1.0}, "out_of_range": {}, "unknown_ops": {},
        "inputs": {}, "samples_per_step": 8, "ops": [cost], "advice": "",
    }  # fmt: skip
    return Prediction(**{**fields, **changes})


def save(path, document):
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def predicted(tmp_path):
    return save(tmp_path / "p.json", prediction().to_dict())


def test_a_run_is_read_per_rank_and_per_step(tmp_path):
    side = read_side(write_run(tmp_path / "run", [0.4, 0.5, 0.6], ranks=2))
    assert (side.kind, side.step_time_s, side.steps, side.peak_memory_bytes) == ("profile", 0.5, 3, 1001)
    # Two calls of 10 ms on each of two ranks that do the same; views are host time. Host rows: 3 ms of work and 1 ms of
    # waiting on each rank.
    seconds, spread_s = side.ops_s["aten.mm", "forward", "1×2×3×4", "fp32"]
    assert (seconds, spread_s) == (pytest.approx(0.020), pytest.approx(0.002))
    assert len(side.ops_s) == 1
    assert side.parts_s == pytest.approx({"forward": 0.020, "host": 0.003, "communication": 0.001})
    # (0.55 - 0.45) / 2 / 0.5 = 0.1; 1.253 / 0.674 × 0.1 / √3
    assert side.spread == pytest.approx(0.1)
    assert side.median_error == pytest.approx(0.1073, abs=1e-4)


def test_ops_of_pipeline_stages_add_up_and_parts_do_not(tmp_path):
    side = read_side(write_run(tmp_path / "run", [0.5], ranks=2, plan={"pp": 2}))
    assert side.ops_s["aten.mm", "forward", "1×2×3×4", "fp32"][0] == pytest.approx(2 * 0.020)
    assert side.parts_s["forward"] == pytest.approx(0.020)


def test_a_prediction_beside_a_run(tmp_path, predicted):
    facts = compare(read_side(predicted), read_side(write_run(tmp_path / "run", [0.52])))
    assert facts["step_change"] == pytest.approx(0.52 / 0.5 - 1)
    assert facts["prediction_error"] == pytest.approx(0.5 / 0.52 - 1)
    assert facts["measured_inside_interval"] is True  # 0.45 <= 0.52 <= 0.55
    (op,) = facts["ops"]
    # 24 ms predicted with ±20 %, 20 ms measured with ±10 %: 4 ms apart, 4.8 + 2 ms together.
    assert (op["a_s"], op["b_s"], op["within_spread"]) == (0.024, pytest.approx(0.020), True)
    turned = compare(read_side(tmp_path / "run"), read_side(predicted))
    assert turned["prediction_error"] == pytest.approx(0.5 / 0.52 - 1)
    far = compare(read_side(predicted), read_side(write_run(tmp_path / "far", [0.56])))
    assert far["measured_inside_interval"] is False


def test_ops_are_in_order_of_their_difference():
    key = {name: (name, "forward", "1", "fp32") for name in "abcd"}
    a = Side(label="a", kind="profile", step_time_s=1, ops_s={key["a"]: (1, 0), key["b"]: (2, 0), key["c"]: (9, 0)})
    b = Side(label="b", kind="profile", step_time_s=1, ops_s={key["a"]: (3, 0), key["b"]: (1, 0), key["d"]: (9, 0)})
    facts = compare(a, b)
    assert [op["op"] for op in facts["ops"]] == ["a", "b"]
    assert (facts["ops_only_in_a"], facts["ops_only_in_b"]) == (1, 1)


def run_side(step_time_s, spread=0.0, steps=16):
    return Side(label="run", kind="profile", step_time_s=step_time_s, spread=spread, steps=steps)


def prediction_side(step_time_s):
    return Side(label="p", kind="prediction", step_time_s=step_time_s, interval_s=(0.9, 1.1))


@pytest.mark.parametrize(
    ("a", "b", "failed", "within_noise"),
    [
        (run_side(1.0), run_side(1.06), True, False),
        (run_side(1.0), run_side(1.04), False, False),
        (run_side(1.0), run_side(0.5), False, False),  # faster is no regression
        # 2 √2 × 1.859 × 0.08 / √16 = 10.5 % of noise: 6 % may be chance, 20 % is not.
        (run_side(1.0, 0.08), run_side(1.06, 0.08), False, True),
        (run_side(1.0, 0.08), run_side(1.20, 0.08), True, False),
        (prediction_side(1.06), run_side(1.0), True, False),
        (run_side(1.0), prediction_side(0.94), True, False),
        (prediction_side(0.96), run_side(1.0, 0.5), False, False),
        (prediction_side(1.0), prediction_side(0.94), True, False),
    ],
)
def test_fail_on_five_per_cent(a, b, failed, within_noise):
    verdict = judge(compare(a, b), 0.05)
    assert (verdict["failed"], verdict["within_noise"]) == (failed, within_noise)


GARBAGE = (None, "text", -1.0, [], {}, [1], {"a": "b"}, True)


@pytest.mark.parametrize("field", sorted(prediction().to_dict()))
def test_no_field_of_a_prediction_can_crash_the_reader(field, tmp_path):
    whole = prediction().to_dict()
    sound = read_side(save(tmp_path / "sound.json", whole))
    documents = [{**whole, field: value} for value in GARBAGE]
    missing = copy.deepcopy(whole)
    del missing[field]
    for document in (*documents, missing):
        path = save(tmp_path / "p.json", document)
        try:
            compare(read_side(path), sound)
        except InputError as error:
            assert str(path) in str(error)


def test_a_number_that_is_none_is_refused(tmp_path):
    for field, value in (("step_time_s", 0), ("step_time_s", float("nan")), ("parts_s", {"forward": float("inf")})):
        path = save(tmp_path / "p.json", {**prediction().to_dict(), field: value})
        with pytest.raises(InputError, match=r"p\.json"):
            read_side(path)


# -- as a user runs it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("cut.json", '{"kind": "prediction", "step_ti', "cut short"),
        ("empty.json", "", "empty"),
        ("other.json", '{"kind": "machine"}', "neither a run folder nor a prediction"),
        ("list.json", "[]", "expected a JSON object"),
        ("half.json", '{"kind": "prediction"}', "lacks"),
        ("bytes.json", b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_damaged_and_foreign_files_exit_3(foretrace, tmp_path, predicted, name, content, said):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    run = foretrace("compare", predicted, name)
    assert (run.returncode, run.stdout) == (3, "")
    assert name in run.stderr and said in run.stderr and "Traceback" not in run.stderr


def test_a_foreign_folder_exits_3(foretrace, tmp_path, predicted):
    (tmp_path / "photos").mkdir()
    run = foretrace("compare", "photos", predicted)
    assert (run.returncode, run.stdout) == (3, "")
    assert "photos" in run.stderr and "Traceback" not in run.stderr


def test_two_runs(foretrace, tmp_path):
    write_run(tmp_path / "a", [0.5, 0.5, 0.5])
    write_run(tmp_path / "b", [0.6, 0.6, 0.6], mm_s=0.015, status="interrupted")
    run = foretrace("compare", "a", "b", "--fail-on", "5%")
    assert run.returncode == 5, run.stderr
    assert "B's step is +20.0% against A's" in run.stdout
    assert "aten.mm" in run.stdout and "+50.0%" in run.stdout
    assert "slow-down of run B against run A" in run.stderr and "interrupted" in run.stderr
    assert foretrace("compare", "b", "a", "--fail-on", "5%").returncode == 0
    assert foretrace("compare", "a", "b", "--fail-on", "fast").returncode == 2


def test_json_is_one_document_also_when_it_fails(foretrace, tmp_path, predicted):
    write_run(tmp_path / "run", [0.6])
    run = foretrace("compare", predicted, "run", "--json", "--fail-on", "10%")
    assert run.returncode == 5, run.stderr
    document = json.loads(run.stdout)
    assert document["schema_version"] == 1
    assert document["prediction_error"] == pytest.approx(0.5 / 0.6 - 1)  # -16.7 %
    assert document["fail_on"]["failed"] is True and document["fail_on"]["limit"] == pytest.approx(0.1)
    assert document["measured_inside_interval"] is False  # 0.6 > 0.55
