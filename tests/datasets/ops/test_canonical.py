"""Dims, FLOPs and bytes of every family by hand arithmetic; fp32 is 4 bytes, int64 is 8."""

import pytest
from foretrace.datasets.ops import Op, TensorMeta, canonical, dtype_name, is_known, short_name
from foretrace.datasets.ops.canonical import COMPOSITE, COPIES, ELEMENTWISE, FILLS, INDEXES, RANDOMS, REDUCES, VIEWS


def tensor(*shape, dtype="fp32", strides=None):
    """A contiguous tensor, unless strides are given."""
    if strides is None:
        step, found = 1, []
        for size in reversed(shape):
            found.append(step)
            step *= size
        strides = tuple(reversed(found))
    return TensorMeta(shape, dtype, strides)


def dims(op: Op):
    return op.b, op.m, op.n, op.k


def test_mm():
    op = canonical("aten.mm", [tensor(2, 4), tensor(4, 3)], [tensor(2, 3)])
    assert (op.op, op.name, op.direction, op.dtype, dims(op)) == ("matmul", "aten.mm", "fwd", "fp32", (1, 2, 3, 4))
    assert op.flops == 2 * 2 * 3 * 4
    assert op.bytes_read == (2 * 4 + 4 * 3) * 4
    assert op.bytes_written == 2 * 3 * 4
    assert op.shape == (("layout", "nn"),)


def test_addmm_of_a_linear_layer_reads_its_bias_and_sees_the_transposed_weight():
    weight = tensor(4, 3, strides=(1, 4))  # (out 3, in 4).t()
    op = canonical("aten::addmm", [tensor(3), tensor(2, 4), weight, 1, 1], [tensor(2, 3)])
    assert (op.op, dims(op), op.flops) == ("linear", (1, 2, 3, 4), 48.0)
    assert op.bytes_read == (3 + 8 + 12) * 4
    assert op.shape == (("layout", "nt"),)


def test_bmm_and_baddbmm():
    for name, extra in (("aten.bmm", []), ("aten.baddbmm", [tensor(5, 2, 3)])):
        op = canonical(name, [*extra, tensor(5, 2, 4), tensor(5, 4, 3)], [tensor(5, 2, 3)])
        assert (op.op, dims(op)) == ("bmm", (5, 2, 3, 4))
        assert op.flops == 5 * 2 * 2 * 3 * 4
        assert op.bytes_read == (5 * 8 + 5 * 12 + len(extra) * 5 * 6) * 4


def test_mv_is_a_gemm_of_one_column():
    op = canonical("aten.mv", [tensor(6, 5), tensor(5)], [tensor(6)])
    assert (dims(op), op.flops, op.bytes_read) == ((1, 6, 1, 5), 2 * 6 * 5, (30 + 5) * 4)


@pytest.mark.parametrize(("causal", "share"), [(False, 1.0), (True, 0.5)])
def test_attention_counts_two_gemms_forward_and_five_backward(causal, share):
    q, kv = tensor(2, 8, 16, 4), tensor(2, 2, 32, 4)
    gemm = 2 * 2 * 8 * 16 * 32 * 4  # 2 FLOPs · B 2 · H 8 · S 16 · T 32 · D 4
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    forward = canonical(name, [q, kv, kv, 0.0, causal], [q, tensor(2, 8, 16)])
    assert (forward.op, dims(forward)) == ("attention_fwd", (2, 16, 32, 4))
    assert forward.flops == 2 * gemm * share
    assert forward.bytes_read == (q.numel + 2 * kv.numel) * 4
    assert forward.bytes_written == q.numel * 4
    backward = canonical(f"{name}_backward", [q, q, kv, kv, q, tensor(2, 8, 16), 0.0, causal], [q, kv, kv])
    assert (backward.op, backward.direction, dims(backward)) == ("attention_bwd", "bwd", (2, 16, 32, 4))
    assert backward.flops == 5 * gemm * share
    assert dict(backward.shape) == {"heads": 8, "kv_heads": 2, "causal": int(causal)}


def test_layer_norm():
    x, w = tensor(3, 5, 8), tensor(8)
    op = canonical("aten.native_layer_norm", [x, [8], w, w, 1e-5], [x, tensor(3, 5, 1), tensor(3, 5, 1)])
    assert (op.op, op.m, op.n) == ("layernorm", 15, 8)
    assert op.flops == 7 * 120
    assert op.bytes_read == (120 + 8 + 8) * 4
    assert op.bytes_written == (120 + 15 + 15) * 4
    back = canonical("aten.native_layer_norm_backward", [x, x, [8], tensor(3, 5, 1), tensor(3, 5, 1), w, w, [True] * 3],
                     [x, w, w])  # fmt: skip
    assert (back.op, back.direction, back.m, back.n, back.flops) == ("layernorm", "bwd", 15, 8, 11 * 120)


def test_batch_norm_rows_are_all_but_the_channels():
    x, c = tensor(2, 6, 4, 4), tensor(6)
    op = canonical("aten.native_batch_norm", [x, c, c, c, c, True, 0.1, 1e-5], [x, c, c])
    assert (op.op, op.m, op.n, op.flops) == ("batchnorm", 2 * 16, 6, 7 * 192)


def test_group_norm_rows_are_samples_times_groups():
    x, c = tensor(2, 6, 4, 4), tensor(6)
    op = canonical("aten.native_group_norm", [x, c, c, 2, 6, 16, 3, 1e-5], [x, tensor(2, 3), tensor(2, 3)])
    assert (op.op, op.m, op.n, op.flops) == ("groupnorm", 2 * 3, 32, 8 * 192)


def test_group_norm_backward_counts_groups_and_not_a_flag():
    x, c, stat = tensor(2, 6, 4, 4), tensor(6), tensor(2, 3)
    op = canonical(
        "aten.native_group_norm_backward", [x, x, stat, stat, c, 2, 6, 16, 3, [True] * 3], [x, c, c]
    )  # fmt: skip
    assert (op.op, op.direction, op.m, op.n) == ("groupnorm", "bwd", 6, 32)


@pytest.mark.parametrize(
    ("name", "family", "flops"),
    [("_softmax", "softmax", 5), ("_softmax_backward_data", "softmax", 4), ("_log_softmax", "log_softmax", 5),
     ("_log_softmax_backward_data", "log_softmax", 4)],
)  # fmt: skip
def test_softmax(name, family, flops):
    x = tensor(3, 5, 7)
    args = [x, x, -1, "float32"] if "backward" in name else [x, -1, False]
    op = canonical(f"aten.{name}", args, [x])
    assert (op.op, op.m, op.n, op.flops) == (family, 15, 7, flops * 105)
    assert op.direction == ("bwd" if "backward" in name else "fwd")
    assert op.bytes_read == (2 if "backward" in name else 1) * 105 * 4


def test_loss_reads_one_logit_a_row_and_its_backward_writes_the_matrix():
    logits, target, total = tensor(6, 10), tensor(6, dtype="int64"), tensor()
    forward = canonical("aten.nll_loss_forward", [logits, target, None, 1, -100], [total, total])
    assert (forward.op, forward.m, forward.n) == ("cross_entropy", 6, 10)
    assert (forward.bytes_read, forward.bytes_written) == (6 * 4 + 6 * 8, 4)
    backward = canonical("aten.nll_loss_backward", [total, logits, target, None, 1, -100, total], [logits])
    assert (backward.direction, backward.m, backward.n, backward.bytes_written) == ("bwd", 6, 10, 240)


def test_embedding_reads_the_rows_looked_up_and_not_the_table():
    table, tokens = tensor(1000, 16), tensor(2, 5, dtype="int64")
    op = canonical("aten.embedding", [table, tokens], [tensor(2, 5, 16)])
    assert (op.op, op.m, op.n, op.k, op.flops) == ("embedding", 10, 16, 1000, 0)
    assert op.bytes_read == 10 * 16 * 4 + 10 * 8
    back = canonical("aten.embedding_dense_backward", [tensor(2, 5, 16), tokens, 1000, -1, False], [table])
    assert (back.direction, back.m, back.n, back.k) == ("bwd", 10, 16, 1000)
    assert back.bytes_written == 1000 * 16 * 4  # a dense gradient


def test_embedding_bag():
    table, tokens, offsets = tensor(1000, 16), tensor(12, dtype="int64"), tensor(4, dtype="int64")
    op = canonical("aten._embedding_bag", [table, tokens, offsets, False, 0], [tensor(4, 16), tokens, offsets, offsets])
    assert (op.op, op.m, op.n, op.k) == ("embedding", 12, 16, 1000)
    assert (op.bytes_read, op.bytes_written) == (12 * 16 * 4 + 12 * 8, 4 * 16 * 4)


def test_convolution_is_an_implicit_gemm():
    x, w, bias, y = tensor(2, 3, 8, 8), tensor(6, 3, 3, 3), tensor(6), tensor(2, 6, 4, 4)
    args = [x, w, bias, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    op = canonical("aten.convolution", args, [y])
    assert (op.op, dims(op)) == ("conv2d", (2, 2 * 16, 6, 27))  # k: 3 channels · 3 · 3
    assert op.flops == 2 * 32 * 6 * 27
    assert op.bytes_read == (384 + 162 + 6) * 4
    assert op.bytes_written == 192 * 4
    assert dict(op.shape) == {"in": "3x8x8", "window": "3x3", "stride": "2x2", "pad": "1x1", "groups": 1}


@pytest.mark.parametrize(("mask", "passes"), [([True, True, True], 2), ([False, True, False], 1)])
def test_convolution_backward_runs_once_per_gradient(mask, passes):
    x, w, y = tensor(2, 3, 8, 8), tensor(6, 3, 3, 3), tensor(2, 6, 4, 4)
    args = [y, x, w, [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, mask]
    op = canonical("aten.convolution_backward", args, [x, w, tensor(6)])
    assert (op.op, op.direction, op.flops) == ("conv2d", "bwd", passes * 2 * 32 * 6 * 27)
    assert dict(op.shape)["wanted"] == "".join(letter for letter, wanted in zip("iwb", mask, strict=True) if wanted)


def test_grouped_and_transposed_convolutions():
    x = tensor(2, 6, 8, 8)
    grouped = canonical(
        "aten.convolution", [x, tensor(6, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 6], [x]
    )
    assert grouped.flops == 2 * (2 * 64) * 6 * 9  # one input channel per output channel
    # Transposed: each of the 2·64 input pixels meets 6 → 4 channels over a 2 × 2 window.
    up = canonical(
        "aten.convolution", [x, tensor(6, 4, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1],
        [tensor(2, 4, 16, 16)],
    )  # fmt: skip
    assert up.flops == 2 * (2 * 64) * 6 * 4 * 4
    # Three groups: each input channel meets the 4 output channels of its own group.
    up = canonical(
        "aten.convolution", [x, tensor(6, 4, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 3],
        [tensor(2, 12, 16, 16)],
    )  # fmt: skip
    assert up.flops == 2 * (2 * 64) * 6 * 4 * 4


def test_pool():
    x, y = tensor(2, 3, 8, 8), tensor(2, 3, 4, 4)
    op = canonical("aten.max_pool2d_with_indices", [x, [2, 2], [2, 2]], [y, tensor(2, 3, 4, 4, dtype="int64")])
    assert (op.op, op.m, op.n) == ("pool.max_pool2d", 384, 4)
    assert (op.bytes_read, op.bytes_written) == (384 * 4, 96 * (4 + 8))


def test_lstm_layer():
    x, w_ih, w_hh = tensor(7, 2, 5), tensor(12, 5), tensor(12, 3)  # T 7, N 2, I 5, H 3: 4H = 12
    op = canonical("aten.mkldnn_rnn_layer", [x, w_ih, w_hh], [tensor(7, 2, 3)])
    assert (op.op, dims(op)) == ("rnn.lstm", (7, 2, 12, 8))
    assert op.flops == 2 * 7 * 2 * 12 * (5 + 3)
    back = canonical("aten.mkldnn_rnn_layer_backward", [x, w_ih, w_hh], [x])
    assert (back.direction, back.flops) == ("bwd", 2 * op.flops)


def test_fused_optimizer_counts_parameters_once():
    params, state = [tensor(10, 3), tensor(4)], [tensor(10, 3), tensor(4)]
    op = canonical("aten._fused_adamw_", [params, state, state, state, [], [tensor(), tensor()]], [])
    assert (op.op, op.direction, op.m, op.n) == ("optimizer_step.adamw", "opt", 34, 2)
    assert op.bytes_read == 4 * 34 * 4  # parameters, gradients, both moments
    assert op.bytes_written == 3 * 34 * 4  # parameters and both moments
    assert op.flops == 12 * 34


@pytest.mark.parametrize(
    ("name", "args", "out", "family", "flops"),
    [
        ("aten.add.Tensor", [tensor(3, 4), tensor(3, 4)], tensor(3, 4), "elementwise.add", 12),
        ("aten.add_", [tensor(3, 4), tensor(3, 4)], tensor(3, 4), "elementwise.add", 12),
        ("aten.gelu_backward", [tensor(3, 4), tensor(3, 4)], tensor(3, 4), "elementwise.gelu_backward", 12),
        ("aten.zeros_like", [tensor(3, 4)], tensor(3, 4), "fill.zeros_like", 0),
        ("aten.clone", [tensor(3, 4)], tensor(3, 4), "copy.clone", 0),
        ("aten.bernoulli_", [tensor(3, 4), 0.5], tensor(3, 4), "random.bernoulli", 12),
        ("aten.index_select", [tensor(3, 4), 0, tensor(2, dtype="int64")], tensor(2, 4), "index.index_select", 0),
    ],
)
def test_vector_families(name, args, out, family, flops):
    op = canonical(name, args, [out])
    assert (op.op, op.flops) == (family, flops)
    assert (op.m, op.n) == (3, 4)


def test_a_broadcast_operand_is_read_once():
    bias = TensorMeta((64, 8), "fp32", (0, 1))  # (8,) expanded over 64 rows
    op = canonical("aten.add", [tensor(64, 8), bias], [tensor(64, 8)])
    assert op.bytes_read == (512 + 8) * 4


def test_reductions_tell_the_inner_from_the_outer():
    x = tensor(32, 8)
    outer = canonical("aten.sum.dim_IntList", [x, [0], False], [tensor(8)])
    inner = canonical("aten.sum.dim_IntList", [x, [1], False], [tensor(32)])
    assert (outer.op, outer.m, outer.n, dict(outer.shape)) == ("reduce.sum", 8, 32, {"over": "outer"})
    assert (inner.m, inner.n, dict(inner.shape)) == (32, 8, {"over": "inner"})
    assert outer.flops == inner.flops == 256


def test_views_move_nothing():
    op = canonical("aten.transpose.int", [tensor(3, 4), 0, 1], [TensorMeta((4, 3), "fp32", (1, 4))])
    assert (op.op, op.flops, op.bytes) == ("view", 0, 0)


@pytest.mark.parametrize("name", sorted(COMPOSITE))
def test_composite_operators_are_no_ops_of_their_own(name):
    assert canonical(f"aten.{name}", [tensor(2, 2)], [tensor(2, 2)]) is None


def test_an_operator_without_a_rule_is_named_and_not_dropped():
    op = canonical("aten.no_such_operator", [tensor(3, 4)], [tensor(3, 4)])
    assert (op.op, op.family, op.name) == ("unknown.no_such_operator", "unknown", "aten.no_such_operator")
    assert op.bytes == 2 * 48
    assert not is_known("aten.no_such_operator")


@pytest.mark.parametrize("name", ["mm", "convolution", "native_layer_norm", "_softmax", "embedding", "_fused_adamw_"])
def test_a_trace_that_lost_the_arguments_still_names_the_operator(name):
    assert canonical(f"aten.{name}", [], []).op == f"unknown.{name}"


def test_lists_overlap_nowhere():
    for words in (VIEWS, ELEMENTWISE, FILLS, RANDOMS, COPIES, REDUCES, INDEXES):
        names = words.split() if isinstance(words, str) else words
        assert not COMPOSITE & set(names)


@pytest.mark.parametrize(
    ("name", "short"),
    [("aten::addmm", "addmm"), ("aten.addmm.default", "addmm"), ("addmm", "addmm"),
     ("fsdp::chunk_cat", "fsdp.chunk_cat"), ("fsdp.chunk_cat.default", "fsdp.chunk_cat")],
)  # fmt: skip
def test_short_names(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("torch.float32", "fp32"), ("float", "fp32"), ("c10::BFloat16", "bf16"), ("long int", "int64"),
     ("Tensor(float)", "fp32"), ("unsigned char", "uint8"), ("Weird", "weird")],
)  # fmt: skip
def test_dtype_spellings(spelling, name):
    assert dtype_name(spelling) == name
