import json

import numpy as np
import pandas as pd
import pytest
from foretrace.datasets.shipped.shapes import HELD_OUT_PERCENT, family, hashed, held_out, split_repeats


def test_what_was_measured_is_no_shape():
    texts = ['{"heads": 4, "n_meas": 3, "lat_min": 1.0, "lat_max": 2.0}', None, '{"b":1,"a":2}']
    parsed = split_repeats(pd.Series(texts, index=[5, 6, 7]))
    assert parsed["shape"].tolist() == ['{"heads":4}', "{}", '{"a":2,"b":1}']
    assert parsed["count"].tolist() == [3, 1, 1]
    assert parsed["low_ms"].tolist()[0] == 1.0 and parsed["high_ms"].tolist()[0] == 2.0
    assert parsed["low_ms"].isna().tolist() == [False, True, True]
    assert parsed.index.tolist() == [5, 6, 7]


@pytest.mark.parametrize("text", ["heads", "[1]", "{"])
def test_a_shape_that_is_no_object(text):
    with pytest.raises(ValueError, match=r"Expecting|expected a JSON object"):
        split_repeats(pd.Series([text]))


def test_the_hash_is_blake2b():
    # printf abc | b2sum -l 64 prints d8bb14d833d59559, as a little-endian number 6455300059550759896.
    assert hashed("abc") == 0x5995D533D814BBD8 % 100 == 96


def test_a_problem_is_held_out_whole(op_rows):
    shapes = [{"m": 64 * i, "n": 32 * j} for i in range(1, 40) for j in range(1, 6)]
    plain = held_out(op_rows(*shapes))
    # Neither who measured it, nor where, nor how counts.
    other = {"source": "x", "device": "A40", "dtype": "bf16", "direction": "bwd", "kernel": "y", "framework": "z"}
    assert (held_out(op_rows(*({**shape, **other, "op": "matmul"} for shape in shapes))) == plain).all()
    assert (held_out(op_rows(*shapes[::-1])) == plain[::-1]).all()
    assert 0.1 < plain.mean() < 0.3


def test_a_fifth_of_all_problems_is_held_out(op_rows):
    rows = op_rows(*({"m": i} for i in range(5000)))
    # Binomial: 20 % of 5,000 with a standard deviation of 0.57 %.
    assert held_out(rows).mean() == pytest.approx(HELD_OUT_PERCENT / 100, abs=0.025)


def test_heads_tell_two_attentions_apart_and_masks_do_not(op_rows):
    def rows(**shape):
        return op_rows(*({"op": "attention_fwd", "m": m, "shape": json.dumps(shape)} for m in range(1, 400)))

    full, causal, more = rows(heads=8), rows(heads=8, causal=True, window=64), rows(heads=16)
    assert (held_out(full) == held_out(causal)).all()
    assert (held_out(full.assign(op="attention_bwd")) == held_out(full)).all()
    assert not np.array_equal(held_out(full), held_out(more))


def test_families():
    assert family("linear") == family("bmm") == family("matmul") == "gemm"
    assert family("attention_fwd_noncausal") == "attention"
    assert family("elementwise.add") == "elementwise.add"
