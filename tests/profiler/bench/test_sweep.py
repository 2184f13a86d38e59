"""Sweep: how points are put into blocks, how often they are timed, and which blocks are measured again."""

from math import exp

import pandas as pd
import pytest
from foretrace.datasets.schemas import validate
from foretrace.profiler.bench.measure import WORKER, merge
from foretrace.profiler.bench.sweep import BLOCK_POINTS, Block, blocks_of, mood_of, repeat_slow, rounds_of, slow_blocks
from foretrace.profiler.launch import launch


def test_blocks_hold_every_point_once_and_like_sizes_together():
    sizes = [1 << (number % 20) for number in range(100)]
    blocks = blocks_of(sizes)
    assert sorted(index for block in blocks for index in block.index) == list(range(100))
    assert all(len(block.index) <= BLOCK_POINTS for block in blocks)
    # 100 points of 20 sizes, 5 of each: 32 neighbours by size span at most 8 powers of two.
    for block in blocks:
        powers = [sizes[index].bit_length() for index in block.index]
        assert max(powers) - min(powers) <= 8


def test_the_order_is_random_but_the_same_on_every_rank():
    sizes = [1000] * 64
    assert blocks_of(sizes) == blocks_of(sizes)
    assert [index for block in blocks_of(sizes) for index in block.index] != list(range(64))


@pytest.mark.parametrize(
    ("time_s", "rounds"),
    # 20 ms to spend: 2 ms fit 10 times; 1 us fits more than the most, 11; 8 ms fit twice, but 5 is the least; a call
    # over 20 ms is long and made 3 times.
    [(2e-3, 10), (1e-6, 11), (8e-3, 5), (0.05, 3)],
)
def test_rounds(time_s, rounds):
    assert rounds_of(time_s, point_s=0.02) == rounds


def _blocks(*quality_s: float) -> list[Block]:
    return [Block((number,), quality_s=quality) for number, quality in enumerate(quality_s)]


def test_slow_blocks_are_more_than_a_tenth_off_the_best_tenth():
    # Twenty blocks: the best tenth are two, 1.00 and 1.02; their median 1.01, so the limit is 1.111.
    blocks = _blocks(1.00, 1.02, *[1.10] * 16, 1.12, 1.5)
    assert [block.quality_s for block in slow_blocks(blocks)] == [1.5, 1.12]


def test_slow_blocks_are_repeated_worst_first_while_the_budget_lasts():
    blocks = _blocks(1.0, 1.3, 1.2, 1.4)
    now, done = [0.0], []

    def run(block: Block) -> None:
        done.append(block.index[0])
        now[0] += 2.0

    # Budget 3 s, 2 s a block: the first starts at 0, the second at 2, the third would start at 4.
    assert repeat_slow(blocks, run, budget_s=3.0, clock=lambda: now[0]) == 2
    assert done == [3, 1]


def test_quiet_machine_repeats_nothing():
    assert repeat_slow(_blocks(1.0, 1.05, 1.0), lambda block: pytest.fail("repeated"), budget_s=9.0) == 0


def test_ranks_are_merged_by_mean_of_medians_and_worst_spread():
    together = {"point": 0, "op": "x", "processes": 2}
    alone = {"point": 0, "op": "x", "processes": 1}
    first = [
        {**alone, "time_s": 0.5, "spread": 0.2, "count": 5},
        {**together, "time_s": 1.0, "spread": 0.1, "count": 5},
    ]
    second = [{**together, "time_s": 3.0, "spread": 0.3, "count": 5}]
    assert merge([first, second]) == [
        {"op": "x", "processes": 1, "time_s": 0.5, "spread": 0.2, "count": 5},
        {"op": "x", "processes": 2, "time_s": 2.0, "spread": 0.3, "count": 5},
    ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_sweep_of_few_ops_gives_valid_rows(ranks):
    task = {
        "job": "points", "quick": True, "only": ["aten.silu.default", "aten.avg_pool2d.default", "SGD"],
        "threads": [2, 1], "point_s": 0.0001, "extra_s": 0.0,
    }  # fmt: skip
    results = launch(WORKER, task, world_size=ranks, threads=1, what="test")
    rows = merge([result["rows"] for result in results])
    table = validate("ops", pd.DataFrame(rows), where="test").to_pandas()
    assert {"aten.silu", "aten.avg_pool2d", "aten.add_", "aten.mul_"} == set(table.name)
    assert (table.time_s > 0).all()
    assert (table["count"] >= 3).all()
    # The same ops in every setting: alone on two threads, alone on one, and all ranks on one each.
    settings = table.groupby(["threads", "processes"]).size()
    assert set(settings.index) == {(2, 1), (1, 1)} | ({(1, 2)} if ranks == 2 else set())
    assert settings.nunique() == 1


def test_only_the_ranks_of_a_setting_report_it():
    task = {
        "job": "points",
        "quick": True,
        "only": ["aten.silu.default"],
        "threads": [1],
        "point_s": 0.0001,
        "extra_s": 0.0,
    }
    first, second = launch(WORKER, task, world_size=2, threads=1, what="test")
    assert {row["processes"] for row in first["rows"]} == {1, 2}
    assert {row["processes"] for row in second["rows"]} == {2}


def test_mood_is_the_spread_of_the_middle_four_fifths():
    # Logs 0, 0.1 .. 1: the tenths are 0.1 and 0.9, 2 × 1.2816 standard deviations apart; outliers do not count.
    probes_s = [exp(number / 10) for number in range(11)]
    assert mood_of(probes_s) == pytest.approx(0.8 / 2.5632)
    assert mood_of([*probes_s[:10], 1e6]) == pytest.approx(0.8 / 2.5632)
    assert mood_of([0.5] * 7) == 0.0
