"""From a framework operator with its arguments to an `Op`: one small function per family, in one registry.

The same registry reads a FakeTensor trace, a torch.profiler run and a foreign trace, so that all three name the same
work alike. `canonical` returns None for composite operators (`aten.linear`, `aten.matmul`): their parts are the ops.

FLOPs: a multiply and an add are two. Sources of the formulas are the operators' definitions; convolution counts the
direct algorithm, causal attention counts the lower triangle only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from .op import FLOAT_DTYPES, Op, TensorMeta

Args = Sequence[Any]  # TensorMeta, list of TensorMeta, number, bool, str or None, in the operator's positional order
Rule = Callable[[str, Args, Sequence[TensorMeta]], Op]

_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register one function for these `aten` operators (no overload); registering a name twice is our mistake."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in _RULES, f"operator {name} is registered twice"
            _RULES[name] = function
        return function

    return register


def canonical(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op | None:
    """The `Op` of one call, or None when `name` is composite and its parts are the ops.

    `name` is written `aten.addmm`, `aten::addmm` or `aten.addmm.default`. An operator without a rule becomes
    `unknown.<name>` with its tensors' bytes, so that it can be named and priced by traffic, never dropped.
    """
    short = short_name(name)
    if short in COMPOSITE:
        return None
    found = _RULES.get(short)
    if found is None:
        return _vector(f"unknown.{short}", short, args, outputs)
    try:
        return found(short, args, outputs)
    except (IndexError, TypeError, AttributeError, ValueError):
        # A trace that lost some arguments still names the operator and its traffic.
        return _vector(f"unknown.{short}", short, args, outputs)


def is_known(name: str) -> bool:
    """True when the operator has a rule of its own."""
    return short_name(name) in _RULES


def short_name(name: str) -> str:
    """`aten::addmm` and `aten.addmm.default` are both `addmm`; other namespaces keep theirs (`fsdp.chunk_cat`)."""
    namespace, _, rest = name.replace("::", ".").partition(".")
    if not rest:
        return namespace
    bare = rest.partition(".")[0]
    return bare if namespace == "aten" else f"{namespace}.{bare}"


COMPOSITE = frozenset(
    """linear matmul conv1d conv2d conv3d layer_norm batch_norm group_norm instance_norm softmax log_softmax
    cross_entropy_loss nll_loss nll_loss_nd scaled_dot_product_attention dropout feature_dropout embedding_bag einsum
    lstm gru rnn_tanh rnn_relu lstm_cell gru_cell reshape flatten contiguous to type_as chunk split
    max_pool2d adaptive_avg_pool2d_composite multi_head_attention_forward square_composite _convolution
    __and__ __or__ numpy_T expand_as rms_norm silu_composite tensor_split unflatten
    result_type can_cast is_nonzero item movedim moveaxis swapaxes atleast_1d meshgrid pad""".split()
)

# Bookkeeping that moves no data: it costs host time only.
VIEWS = """view _unsafe_view _reshape_alias t transpose permute expand unsqueeze squeeze select slice split_with_sizes
    as_strided detach detach_ alias unbind narrow diagonal unfold view_as transpose_ squeeze_ unsqueeze_ lift_fresh
    resolve_conj resolve_neg set_ resize_ _local_scalar_dense empty empty_like empty_strided new_empty
    new_empty_strided sym_size sym_numel sym_stride is_same_size _has_compatible_shallow_copy_type requires_grad_
    _version record_stream is_pinned _nested_tensor_from_mask_left_aligned unsafe_split split_tensor
    _assert_async _assert_scalar prim.device _sparse_coo_tensor_unsafe isfinite_view unsafe_chunk mT mH T H""".split()

# One output element from a few input elements at the same place. FLOPs per element are nominal: such ops are bound
# by traffic, except the transcendental ones, whose kind keeps them apart in measured tables.
ELEMENTWISE = """add sub rsub mul div neg abs sign square sqrt rsqrt reciprocal pow exp log log1p sin cos tanh sigmoid
    relu gelu silu mish hardtanh hardswish hardsigmoid leaky_relu elu softplus clamp clamp_min clamp_max maximum
    minimum where masked_fill eq ne lt le gt ge logical_not logical_and logical_or bitwise_and bitwise_or bitwise_not
    addcmul addcdiv lerp floor ceil round remainder fmod erf isnan isinf isfinite floor_divide true_divide
    gelu_backward silu_backward tanh_backward sigmoid_backward threshold threshold_backward hardtanh_backward
    hardswish_backward hardsigmoid_backward leaky_relu_backward elu_backward mish_backward softplus_backward
    native_dropout_backward masked_scale mse_loss mse_loss_backward l1_loss smooth_l1_loss smooth_l1_loss_backward
    binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits tril triu
    polar angle nan_to_num xlogy atan2 log_sigmoid_forward log_sigmoid_backward""".split()

FILLS = """zeros zeros_like ones ones_like full full_like fill zero new_zeros new_ones new_full arange scalar_tensor
    eye linspace""".split()
RANDOMS = """rand randn randint randperm rand_like randn_like randint_like bernoulli normal uniform native_dropout
    random exponential multinomial""".split()
COPIES = """clone copy _to_copy cat stack repeat constant_pad_nd roll flip fsdp.all_gather_copy_in
    fsdp.split_with_sizes_copy fsdp.chunk_cat split_with_sizes_copy _chunk_cat _foreach_copy slice_backward
    select_backward unfold_backward index_fill repeat_interleave tile chunk_cat""".split()
REDUCES = """sum mean amax amin max min argmax argmin any all prod var std var_mean linalg_vector_norm norm cumsum
    logsumexp count_nonzero _foreach_norm nansum cumprod""".split()
INDEXES = """index index_select gather scatter scatter_add index_put _index_put_impl index_add index_copy
    take_along_dim masked_select nonzero topk sort _unique2 unique_dim bincount one_hot searchsorted scatter_reduce
    index_select_backward embedding_renorm histc""".split()


def tensors(args: Args) -> list[TensorMeta]:
    """All tensors among the arguments, lists opened, in order."""
    found: list[TensorMeta] = []
    for arg in args:
        if isinstance(arg, TensorMeta):
            found.append(arg)
        elif isinstance(arg, list | tuple):
            found.extend(item for item in arg if isinstance(item, TensorMeta))
    return found


def _dtype(metas: Sequence[TensorMeta]) -> str:
    for meta in metas:
        if meta.dtype in FLOAT_DTYPES:
            return meta.dtype
    return metas[0].dtype if metas else "none"


def _rows(meta: TensorMeta | None) -> tuple[int, int]:
    """(rows, columns) of a tensor: everything but the last dim, and the last dim."""
    if meta is None or not meta.shape:
        return 1, 1
    return prod(meta.shape[:-1]), meta.shape[-1]


def _op(op: str, name: str, reads: Sequence[TensorMeta], writes: Sequence[TensorMeta], **dims: Any) -> Op:
    direction = dims.pop("direction", "bwd" if name.endswith("backward") or name.endswith("backward_data") else "fwd")
    shape = tuple(sorted((key, value) for key, value in dims.pop("shape", {}).items() if value is not None))
    return Op(
        op=op,
        name=name if "." in name else f"aten.{name}",
        direction=direction,
        dtype=_dtype(list(reads) + list(writes)),
        shape=shape,
        bytes_read=float(sum(meta.stored_bytes for meta in reads)),
        bytes_written=float(sum(meta.numel * (meta.stored_bytes / meta.numel if meta.numel else 0) for meta in writes)),
        **dims,
    )


def _vector(op: str, name: str, args: Args, outputs: Sequence[TensorMeta], flops_per_element: float = 1.0) -> Op:
    reads = tensors(args)
    largest = max([*reads, *outputs], key=lambda meta: meta.numel, default=None)
    m, n = _rows(largest)
    # The number of operands and a broadcast or strided one change the loop that runs.
    return _op(op, name, reads, outputs, m=m, n=n, flops=flops_per_element * m * n)


def _base(name: str) -> str:
    """The out-of-place name: `add_` is `add`; dunder and leading underscores stay."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _register_vector(names: Sequence[str], family: str, flops_per_element: float) -> None:
    for base in names:

        def build(name: str, args: Args, outputs: Sequence[TensorMeta], base: str = base) -> Op:
            return _vector(f"{family}.{base.rpartition('.')[2]}", name, args, outputs, flops_per_element)

        rule(base, *([] if base.endswith("_") else [f"{base}_"]))(build)


_register_vector(ELEMENTWISE, "elementwise", 1.0)
_register_vector(FILLS, "fill", 0.0)
_register_vector(RANDOMS, "random", 1.0)
_register_vector(COPIES, "copy", 0.0)
_register_vector(INDEXES, "index", 0.0)


@rule(*dict.fromkeys(VIEWS))
def _view(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    return Op(op="view", name=name if "." in name else f"aten.{name}", direction="fwd", dtype="none")


@rule(*REDUCES)
def _reduce(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    source = tensors(args)[0]
    kept = max(1, outputs[0].numel if outputs else 1)
    # Reducing the outer dims (a bias gradient) and the inner dim run different loops.
    inner = bool(outputs and source.shape and outputs[0].shape and outputs[0].shape[-1] == source.shape[-1] > 1)
    return _op(
        f"reduce.{name}", name, [source], outputs,
        m=kept, n=max(1, source.numel // kept), flops=float(source.numel),
        shape={"over": "outer" if inner else "inner"},
    )  # fmt: skip


def _gemm(op: str, name: str, a: TensorMeta, b: TensorMeta, extra: list[TensorMeta], out: Sequence[TensorMeta]) -> Op:
    *batch, m, k = a.shape
    n = b.shape[-1]
    batches = prod(batch)
    layout = None if a.strides is None or b.strides is None else f"{'nt'[a.transposed]}{'nt'[b.transposed]}"
    return _op(
        op, name, [a, b, *extra], out, b=batches, m=m, n=n, k=k, flops=2.0 * batches * m * n * k,
        shape={"layout": layout},
    )  # fmt: skip


@rule("mm")
def _mm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    return _gemm("matmul", name, args[0], args[1], [], outputs)


@rule("addmm")
def _addmm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    return _gemm("linear", name, args[1], args[2], [args[0]], outputs)


@rule("bmm")
def _bmm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    return _gemm("bmm", name, args[0], args[1], [], outputs)


@rule("baddbmm")
def _baddbmm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    return _gemm("bmm", name, args[1], args[2], [args[0]], outputs)


@rule("mv", "addmv", "dot", "ger")
def _mv(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    operands = [meta for meta in tensors(args) if meta.shape]
    largest = max(operands, key=lambda meta: meta.numel)
    m, n = _rows(largest)
    return _op("matmul", name, operands, outputs, b=1, m=m, n=1, k=n, flops=2.0 * m * n)


def _attention(name: str, q: TensorMeta, k: TensorMeta, causal: bool, reads: list, outputs: Sequence[TensorMeta]) -> Op:
    # q (B, H, S, D), k (B, Hkv, T, D). Forward: two GEMMs of S×T×D per head; backward: five.
    batch, heads, s, d = q.shape
    t = k.shape[2]
    gemms = 5 if "backward" in name else 2
    flops = gemms * 2.0 * batch * heads * s * t * d * (0.5 if causal else 1.0)
    direction = "bwd" if "backward" in name else "fwd"
    return _op(
        f"attention_{direction}", name, reads, outputs, b=batch, m=s, n=t, k=d, flops=flops, direction=direction,
        shape={"heads": heads, "kv_heads": k.shape[1], "causal": int(causal)},
    )  # fmt: skip


@rule(
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
)  # fmt: skip
def _attention_fwd(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    # (q, k, v, dropout_p, is_causal) for flash; the others put a bias and a flag before.
    flags = [arg for arg in args[3:] if isinstance(arg, bool)]
    return _attention(name, args[0], args[1], bool(flags and flags[-1]), list(args[:3]), outputs[:1])


@rule(
    "_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
)  # fmt: skip
def _attention_bwd(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    # (grad_out, q, k, v, out, logsumexp, ...)
    four_dim = [arg for arg in args if isinstance(arg, TensorMeta) and len(arg.shape) == 4]
    flags = [arg for arg in args[5:] if isinstance(arg, bool)]
    return _attention(name, four_dim[1], four_dim[2], bool(flags and flags[-1]), four_dim[:5], outputs[:3])


_NORM_FAMILIES = {"native_layer_norm": "layernorm", "_fused_rms_norm": "rmsnorm"}


@rule("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward")
def _row_norm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    backward = name.endswith("_backward")
    family = _NORM_FAMILIES[name.removesuffix("_backward")]
    source: TensorMeta = args[0]
    normalized = max(1, prod(args[2 if backward else 1]))
    return _op(
        family, name, tensors(args), outputs, m=source.numel // normalized, n=normalized,
        flops=(11.0 if backward else 7.0) * source.numel,
    )  # fmt: skip


@rule(
    "native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "cudnn_batch_norm",
    "cudnn_batch_norm_backward", "miopen_batch_norm", "miopen_batch_norm_backward", "_batch_norm_with_update",
    "batch_norm_backward",
)  # fmt: skip
def _batch_norm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    source: TensorMeta = args[0]
    channels = max(1, source.shape[1])
    backward = name.endswith("_backward")
    return _op(
        "batchnorm", name, tensors(args), outputs, m=source.numel // channels, n=channels,
        flops=(11.0 if backward else 7.0) * source.numel,
    )  # fmt: skip


@rule("native_group_norm", "native_group_norm_backward")
def _group_norm(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    source: TensorMeta = args[0]
    groups = next((arg for arg in reversed(args) if isinstance(arg, int) and not isinstance(arg, bool)), 1)
    rows = max(1, source.shape[0] * groups)
    return _op("groupnorm", name, tensors(args), outputs, m=rows, n=source.numel // rows, flops=8.0 * source.numel)


@rule("_softmax", "_softmax_backward_data", "_safe_softmax", "_log_softmax", "_log_softmax_backward_data")
def _softmax(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    family = "log_softmax" if "log_softmax" in name else "softmax"
    m, n = _rows(args[0])
    return _op(family, name, tensors(args), outputs[:1], m=m, n=n, flops=(4.0 if "backward" in name else 5.0) * m * n)


@rule("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward")
def _nll_loss(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    logits: TensorMeta = args[1] if name.endswith("backward") else args[0]
    m, n = _rows(logits)
    # The forward reads one logit a row; the backward writes the whole matrix of zeros and one value a row.
    reads = [TensorMeta((m,), logits.dtype), TensorMeta((m,), "int64")]
    return _op("cross_entropy", name, reads, outputs[:1], m=m, n=n, flops=float(m))


@rule("embedding", "embedding_dense_backward", "_embedding_bag", "_embedding_bag_dense_backward")
def _embedding(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    if name.endswith("backward"):  # (grad_output, indices, ...) -> a dense gradient of the whole table
        grad: TensorMeta = args[0]
        tokens, width = _rows(grad)
        table_rows = outputs[0].shape[0]
        return _op("embedding", name, [grad, *tensors(args[1:2])], outputs[:1], m=tokens, n=width, k=table_rows)
    table: TensorMeta = args[0]
    indices: TensorMeta = args[1]
    looked_up = TensorMeta((indices.numel, table.shape[1]), table.dtype)
    return _op(
        "embedding", name, [looked_up, indices], outputs[:1], m=indices.numel, n=table.shape[1], k=table.shape[0]
    )


def _pair(value: Any, dims: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * dims if len(values) == 1 else values


def _conv(name: str, source: TensorMeta, weight: TensorMeta, out_pixels: int, geometry: dict, **extra: Any) -> Op:
    out_channels, in_per_group, *window = weight.shape
    m, n, k = source.shape[0] * out_pixels, out_channels, in_per_group * prod(window)
    passes = extra.pop("passes", 1)
    return _op(
        extra.pop("op", "conv2d" if len(window) == 2 else f"conv{len(window)}d"), name, extra["reads"],
        extra["writes"], b=source.shape[0], m=m, n=n, k=k, flops=2.0 * passes * m * n * k, shape=geometry,
        direction=extra["direction"],
    )  # fmt: skip


def _geometry(source: TensorMeta, weight: TensorMeta, stride: Any, padding: Any, dilation: Any, groups: Any) -> dict:
    dims = len(weight.shape) - 2
    return {
        "in": "x".join(map(str, source.shape[1:])),
        "window": "x".join(map(str, weight.shape[2:])),
        "stride": "x".join(map(str, _pair(stride, dims))),
        "pad": "x".join(map(str, _pair(padding, dims))),
        "groups": int(groups),
        **(
            {"dilation": "x".join(map(str, _pair(dilation, dims)))}
            if any(d != 1 for d in _pair(dilation, dims))
            else {}
        ),
    }


@rule("convolution", "convolution_overrideable")
def _convolution(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    source, weight, bias, stride, padding, dilation, transposed, _, groups = args[:9]
    pixels = prod((source if transposed else outputs[0]).shape[2:])
    return _conv(
        name, source, weight, pixels, _geometry(source, weight, stride, padding, dilation, groups),
        direction="fwd", reads=tensors([source, weight, bias]), writes=outputs[:1],
    )  # fmt: skip


@rule("convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    grad, source, weight, _, stride, padding, dilation, transposed, _, groups, mask = args[:11]
    pixels = prod((source if transposed else grad).shape[2:])
    geometry = _geometry(source, weight, stride, padding, dilation, groups)
    geometry["wanted"] = "".join(letter for letter, wanted in zip("iwb", mask, strict=False) if wanted)
    return _conv(
        name, source, weight, pixels, geometry, direction="bwd", passes=max(1, sum(bool(w) for w in mask[:2])),
        reads=[grad, source, weight], writes=[meta for meta in outputs if meta.numel],
    )  # fmt: skip


@rule(
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "upsample_nearest2d", "upsample_nearest2d_backward",
    "upsample_bilinear2d", "upsample_bilinear2d_backward", "max_pool3d_with_indices", "avg_pool3d",
)  # fmt: skip
def _pool(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    kind = name.strip("_").removesuffix("_backward").removesuffix("_with_indices")
    window = prod(args[1]) if kind.startswith(("max_pool", "avg_pool")) and isinstance(args[1], list | tuple) else 1
    largest = max([*tensors(args), *outputs], key=lambda meta: meta.numel)
    return _op(
        f"pool.{kind}", name, tensors(args), outputs, m=largest.numel, n=window, flops=float(largest.numel * window)
    )


@rule("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
def _rnn_layer(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    # (input (T, N, I), weight_ih (4H, I), weight_hh (4H, H), ...)
    source, weight_ih, weight_hh = args[0], args[1], args[2]
    steps, batch, width = source.shape
    hidden = weight_hh.shape[1]
    backward = name.endswith("backward")
    flops = (4.0 if backward else 2.0) * steps * batch * weight_ih.shape[0] * (width + hidden)
    return _op(
        "rnn.lstm", name, tensors(args), outputs, b=steps, m=batch, n=weight_ih.shape[0], k=width + hidden, flops=flops
    )


@rule("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    return _vector("elementwise.lstm_cell", name, args, outputs, 10.0)


@rule("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
def _fused_optimizer(name: str, args: Args, outputs: Sequence[TensorMeta]) -> Op:
    lists = [arg for arg in args if isinstance(arg, list | tuple) and arg and isinstance(arg[0], TensorMeta)]
    state = [meta for group in lists[: 4 if "adam" in name else 3] for meta in group]
    elements = sum(meta.numel for meta in lists[0])
    return _op(
        f"optimizer_step.{name.strip('_').removeprefix('fused_')}", name, state,
        [meta for group in (lists[0], *lists[2:4]) for meta in group],
        m=elements, n=len(lists[0]), flops=12.0 * elements, direction="opt",
    )  # fmt: skip
