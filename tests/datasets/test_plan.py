import json
from pathlib import Path

import pytest
from foretrace.datasets.errors import PlanError, UsageError
from foretrace.datasets.plan import PRECISIONS, RECOMPUTES, SCHEDULES, Plan, padded_vocab, split_layers
from hypothesis import given
from hypothesis import strategies as st

CASE = Path(__file__).parents[1] / "cases" / "S11-plan-checks"
PLANS = {plan["id"]: plan for plan in json.loads((CASE / "plans.json").read_text())}
EXPECTED = json.loads((CASE / "expected.json").read_text())

sizes = st.integers(1, 8)
plans = st.builds(
    Plan, pp=sizes, dp=sizes, fsdp=sizes, tp=sizes, micro_batches=sizes, schedule=st.sampled_from(SCHEDULES),
    precision=st.sampled_from(PRECISIONS), recompute=st.sampled_from(RECOMPUTES),
    threads=st.none() | st.integers(1, 64),
)  # fmt: skip


def run_case(name):
    """(plan, layers per stage) of a row of S11, refused where it must be."""
    row = PLANS[name]
    text = ",".join(f"{axis}={row[axis]}" for axis in ("pp", "dp", "tp"))
    plan = Plan.parse(f"{text},micro_batch={row['micro_batch']},global_batch={row['global_batch']}")
    plan.check_world_size(row["world_size"])
    explicit = row.get("layers_per_stage")
    return plan, split_layers(row["layers"], plan.pp, tuple(explicit) if explicit else None)


def test_s11_p1_thirty_layers_over_four_stages_stay_thirty():
    plan, layers = run_case("p1")
    assert layers == (8, 8, 7, 7)
    assert sum(layers) == 30  # 4 · (30 // 4) = 28 is the known wrong answer
    assert plan.micro_batches == 32  # 64 / (dp 2 × micro-batch 1)


@pytest.mark.parametrize("name", [name for name, row in EXPECTED.items() if row.get("outcome") == "error"])
def test_s11_refused_with_the_numbers_of_the_rule(name):
    with pytest.raises(PlanError) as caught:
        run_case(name)
    for number in EXPECTED[name]["message_mentions"]:
        assert number in str(caught.value)


def test_s11_p4_heads_are_the_workloads_and_the_plan_itself_is_sound():
    # tp 8 × dp 2 = 16 ranks. Whether 8 divides the heads is known only with the workload.
    plan, layers = run_case("p4")
    assert (plan.world_size, layers) == (16, (30,))


def test_s11_p5_explicit_split():
    plan, layers = run_case("p5")
    assert list(layers) == EXPECTED["p5"]["layers"]
    assert plan.micro_batches == EXPECTED["p5"]["micro_batches"]


@pytest.mark.parametrize("row", json.loads((CASE / "vocab.json").read_text()), ids=str)
def test_s11_padded_vocabulary(row):
    key = str((row["vocab_size"], row["divisible_by"], row["tp"]))
    assert (
        padded_vocab(row["vocab_size"], divisible_by=row["divisible_by"], tp=row["tp"])
        == (EXPECTED["padded_vocab"][key])
    )


@given(plans)
def test_a_plan_survives_its_own_text_and_its_own_dict(plan):
    assert Plan.parse(str(plan)) == plan
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@given(plans, st.integers(1, 4096))
def test_micro_batches_cover_the_global_batch_exactly_or_are_refused(plan, global_batch):
    try:
        micro_batch = plan.micro_batch_of(global_batch)
    except PlanError as error:
        assert global_batch % (plan.replicas * plan.micro_batches)
        assert str(global_batch) in str(error)
    else:
        assert micro_batch * plan.replicas * plan.micro_batches == global_batch


@given(st.integers(1, 200), st.integers(1, 40))
def test_layers_are_all_there_and_even(layers, stages):
    if layers < stages:
        with pytest.raises(PlanError, match=f"{layers} layers"):
            split_layers(layers, stages)
        return
    split = split_layers(layers, stages)
    assert (sum(split), len(split)) == (layers, stages)
    assert max(split) - min(split) <= 1


def test_neutral_plan_is_one_process():
    assert Plan().world_size == 1
    assert str(Plan()) == "single"
    assert Plan.parse("single") == Plan.parse("") == Plan()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("dp", UsageError, "cannot read 'dp'"),
        ("dp=", UsageError, "cannot read 'dp='"),
        ("dq=2", UsageError, "cannot read 'dq=2'"),
        ("dp=two", UsageError, "dp needs a whole number, found 'two'"),
        ("dp=2,dp=4", UsageError, "dp is given twice"),
        ("dp=0", PlanError, "dp must be a whole number of at least 1, found 0"),
        ("precision=fp8", PlanError, "precision is 'fp8'; known are fp32, bf16"),
        ("dp=3,global_batch=16", PlanError, r"global_batch 16 .* dp\(3\) .* = 3; remainder 1"),
        ("micro_batch=4", PlanError, "micro_batch needs global_batch"),
    ],
)
def test_refusals(text, error, message):
    with pytest.raises(error, match=message):
        Plan.parse(text)


def test_unknown_field_of_a_manifest():
    with pytest.raises(PlanError, match="unknown field cp"):
        Plan.from_dict({"cp": 2})


def test_threads_share_the_cores():
    assert Plan(dp=2).threads_per_rank(8) == 4
    assert Plan(dp=4).threads_per_rank(2) == 1
    assert Plan(dp=4, threads=3).threads_per_rank(2) == 3
