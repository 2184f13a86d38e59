"""Which ops a machine is measured on: every family that training emits, from launch floor to out of cache.

Letters: m rows or tokens, n columns or outputs, k reduced dim, B batch, H heads, S sequence, D head dim, C channels.
"""

# mypy: disable-error-code="misc"
# It cannot infer lambdas that bind loop variables as defaults, which is how points are made.

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import torch

from .point import Fresh, Point

FP32, BF16 = torch.float32, torch.bfloat16
# Largest GEMM of a sweep in multiply-adds. A CPU without bf16 units runs bf16 tens of times slower than fp32; what is
# larger follows the rate of the largest one measured.
_MOST_MACS = {FP32: 1 << 30, BF16: 1 << 24}


def points(*, quick: bool) -> list[Point]:
    """All points of a sweep; the full one has two to three times as many shapes."""
    found: list[Point] = []
    for dtype in (FP32, BF16):
        found += _gemms(dtype, quick)
        found += _attention(dtype, quick)
        found += _convolutions(dtype, quick)
        found += _norms(dtype, quick)
        found += _activations(dtype, quick)
        found += _recurrent(dtype, quick)
    found += _losses(quick)
    found += _embeddings(quick)
    found += _optimizers(quick)
    found += _copies(quick)
    return found


def _rand(*shape: int, dtype: torch.dtype = FP32) -> torch.Tensor:
    # No kernel here looks at values to decide what to do, and drawing them would take longer than timing the ops.
    return torch.full(shape, 0.5, dtype=dtype)


# -- GEMM ------------------------------------------------------------------------------------------------------------

_QUICK_GEMMS = [
    (8, 8, 8), (32, 32, 32), (64, 64, 64), (16, 256, 256), (16, 1024, 256), (64, 256, 256), (64, 1024, 256),
    (64, 256, 1024), (128, 512, 512), (256, 128, 128), (256, 256, 256), (256, 1024, 256), (256, 512, 2048),
    (256, 2048, 512), (512, 64, 64), (512, 256, 1024), (512, 768, 256), (512, 1024, 1024), (512, 4096, 256),
    (1024, 32, 512), (1024, 256, 256), (1024, 512, 128), (1024, 256, 1024), (1024, 1024, 256), (1024, 13, 256),
    (1024, 1, 256), (1024, 2048, 512), (1024, 4096, 256), (2048, 128, 128), (2048, 192, 768), (2048, 512, 512),
    (2048, 256, 1024), (2048, 2048, 512), (4096, 64, 256), (4096, 256, 256), (4096, 1024, 256), (4096, 512, 512),
    (8192, 128, 128), (8192, 256, 256), (8192, 64, 512), (8192, 512, 128),
]  # fmt: skip
_FULL_GEMMS = [
    (m, n, k)
    for m, n, k in product((32, 128, 512, 2048, 8192), (32, 128, 384, 1024, 3072), (32, 128, 384, 1024, 3072))
    if m * n * k <= 3 << 30
]


# Without bf16 units the three layouts differ by a factor of up to six, so that each shape is measured in all.
_QUICK_BF16_GEMMS = [
    (16, 16, 16), (64, 64, 64), (16, 256, 256), (128, 128, 128), (512, 64, 64), (512, 256, 64), (512, 64, 256),
    (256, 256, 128), (2048, 64, 64), (1024, 128, 128), (64, 512, 512), (256, 10, 64),
]  # fmt: skip


def _gemms(dtype: torch.dtype, quick: bool) -> Iterator[Point]:
    shapes = _QUICK_GEMMS if dtype is FP32 else _QUICK_BF16_GEMMS
    shapes = [s for s in (shapes if quick else shapes + _FULL_GEMMS) if prod(s) <= _MOST_MACS[dtype]]
    for index, (m, n, k) in enumerate(shapes):
        # The three GEMMs of one linear layer: y = x W' + b, dx = dy W, dW = dy' x. In fp32 they differ little, so that
        # a quick sweep takes them in turn.
        for role in (index % 3,) if quick and dtype is FP32 else range(3):
            yield _linear(role, m, n, k, dtype)
    yield from _batched(dtype)


def _linear(role: int, m: int, n: int, k: int, dtype: torch.dtype) -> Point:
    if role == 0:
        return Point(
            "aten.addmm.default",
            lambda: [_rand(n, dtype=dtype), _rand(m, k, dtype=dtype), _rand(n, k, dtype=dtype).t()],
        )
    if role == 1:
        return Point("aten.mm.default", lambda: [_rand(m, n, dtype=dtype), _rand(n, k, dtype=dtype)])
    return Point("aten.mm.default", lambda: [_rand(m, n, dtype=dtype).t(), _rand(m, k, dtype=dtype)])


def _batched(dtype: torch.dtype) -> Iterator[Point]:
    batched = [
        (8, 8, 8, 8),
        (64, 64, 64, 32),
        (32, 128, 128, 64),
        (256, 9, 9, 64),
        (1024, 9, 9, 64),
        (1024, 9, 64, 9),
        (16, 256, 256, 64),
        (64, 27, 27, 16),
        (4096, 27, 27, 16),
    ]
    for b, m, n, k in batched if dtype is FP32 else batched[:3]:
        yield Point(
            "aten.bmm.default",
            lambda b=b, m=m, n=n, k=k: [_rand(b, m, k, dtype=dtype), _rand(b, n, k, dtype=dtype).transpose(1, 2)],
        )
        yield Point(
            "aten.bmm.default", lambda b=b, m=m, n=n, k=k: [_rand(b, m, k, dtype=dtype), _rand(b, k, n, dtype=dtype)]
        )
        yield Point(
            "aten.bmm.default",
            lambda b=b, m=m, n=n, k=k: [_rand(b, k, m, dtype=dtype).transpose(1, 2), _rand(b, k, n, dtype=dtype)],
        )


# -- attention -------------------------------------------------------------------------------------------------------


def _attention(dtype: torch.dtype, quick: bool) -> Iterator[Point]:
    shapes = [
        (1, 2, 16, 16), (8, 4, 32, 32), (4, 4, 64, 64), (16, 4, 64, 48), (8, 4, 128, 64), (2, 8, 128, 64),
        (32, 4, 64, 32), (4, 4, 256, 64), (2, 8, 256, 32), (16, 8, 128, 32), (2, 4, 512, 64), (1, 8, 512, 64),
        (1, 4, 1024, 64), (32, 6, 65, 64), (16, 4, 197, 64),
    ]  # fmt: skip
    if dtype is BF16:
        shapes = [s for s in shapes if prod(s) * s[2] <= _MOST_MACS[BF16]]
    elif not quick:
        shapes += [(1, 8, 2048, 64), (8, 12, 256, 64), (4, 16, 128, 128), (64, 4, 32, 32), (8, 8, 512, 32)]
    for (b, h, s, d), causal in product(shapes, (False, True)):

        def heads(b: int = b, h: int = h, s: int = s, d: int = d) -> torch.Tensor:
            # Heads are views of a (B, S, H·D) projection, as models make them.
            return _rand(b, s, h * d, dtype=dtype).view(b, s, h, d).transpose(1, 2)

        def backward(b: int = b, h: int = h, s: int = s, causal: bool = causal, heads: Any = heads) -> list[Any]:
            statistics = torch.ones(b, h, s)
            return [heads(), heads(), heads(), heads(), heads(), statistics, 0.0, causal]

        yield Point(
            "aten._scaled_dot_product_flash_attention_for_cpu.default",
            lambda heads=heads, causal=causal: [heads(), heads(), heads(), 0.0, causal],
        )
        yield Point("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", backward)


# -- convolution and pooling -----------------------------------------------------------------------------------------


def _convolutions(dtype: torch.dtype, quick: bool) -> Iterator[Point]:
    # (N, C, side, outputs, window, stride, groups): ResNet stages at 32 to 64 pixels, patch embeddings, depthwise.
    shapes = [
        (1, 4, 8, 4, 3, 1, 1), (16, 3, 32, 16, 3, 1, 1), (16, 3, 32, 64, 3, 1, 1), (16, 16, 32, 16, 3, 1, 1),
        (16, 32, 32, 32, 3, 1, 1), (16, 32, 32, 64, 3, 2, 1), (16, 64, 32, 64, 3, 1, 1), (16, 64, 16, 64, 3, 1, 1),
        (16, 64, 16, 128, 3, 2, 1), (16, 64, 16, 128, 1, 2, 1), (16, 128, 8, 128, 3, 1, 1), (32, 128, 8, 256, 3, 2, 1),
        (32, 256, 4, 256, 3, 1, 1), (16, 256, 8, 256, 3, 1, 1), (16, 256, 4, 512, 3, 2, 1), (16, 512, 4, 512, 3, 1, 1),
        (4, 32, 64, 32, 3, 1, 1), (16, 64, 16, 256, 1, 1, 1), (16, 3, 32, 192, 4, 4, 1), (8, 3, 64, 192, 8, 8, 1),
        (16, 64, 16, 64, 3, 1, 64), (64, 32, 32, 32, 3, 1, 1), (64, 64, 16, 64, 3, 1, 1),
    ]  # fmt: skip
    if dtype is BF16:
        shapes += [
            (4, 3, 32, 8, 3, 1, 1), (4, 8, 32, 8, 3, 1, 1), (8, 16, 16, 16, 3, 1, 1), (4, 8, 32, 16, 3, 2, 1),
            (4, 8, 32, 16, 1, 2, 1), (4, 32, 8, 32, 3, 1, 1),
        ]  # fmt: skip
    if not quick:
        shapes += [(n * 2, c, s, o, w, st, g) for n, c, s, o, w, st, g in shapes[1:20]]
        shapes += [(4, c, s, o, w, st, g) for n, c, s, o, w, st, g in shapes[1:20]]
    if dtype is BF16:
        shapes = [
            s for s in shapes if s[0] * s[1] * (s[2] // s[5]) ** 2 * s[3] * s[4] ** 2 // s[6] <= 2 * _MOST_MACS[BF16]
        ]
    for n, c, side, out, window, stride, groups in shapes:
        pad = 0 if window in (1, 4, 8) else window // 2
        after = (side + 2 * pad - window) // stride + 1
        geometry = [[stride, stride], [pad, pad], [1, 1], False, [0, 0], groups]

        def forward(
            n: int = n,
            c: int = c,
            side: int = side,
            out: int = out,
            window: int = window,
            groups: int = groups,
            geometry: Any = geometry,
        ) -> list[Any]:
            return [
                _rand(n, c, side, side, dtype=dtype),
                _rand(out, c // groups, window, window, dtype=dtype),
                None,
                *geometry,
            ]

        def backward(
            forward: Any = forward, n: int = n, out: int = out, after: int = after, geometry: Any = geometry, c: int = c
        ) -> list[Any]:
            source, weight = forward()[:2]
            # The first layer of a model needs no gradient of its input.
            return [_rand(n, out, after, after, dtype=dtype), source, weight, [0], *geometry, [c != 3, True, False]]

        yield Point("aten.convolution.default", forward)
        yield Point("aten.convolution_backward.default", backward)
    if dtype is FP32:
        for n, c, side in [(1, 4, 8), (16, 64, 16), (16, 64, 32), (32, 128, 32)]:
            yield Point(
                "aten.max_pool2d_with_indices.default",
                lambda n=n, c=c, s=side: [_rand(n, c, s, s), [3, 3], [2, 2], [1, 1]],
            )
            yield Point("aten.avg_pool2d.default", lambda n=n, c=c, s=side: [_rand(n, c, s, s), [2, 2], [2, 2]])
            yield Point("aten._adaptive_avg_pool2d.default", lambda n=n, c=c, s=side: [_rand(n, c, s, s), [1, 1]])


# -- norms, softmax, losses ------------------------------------------------------------------------------------------

_ROWS = [
    (1, 16), (16, 64), (64, 256), (256, 512), (512, 256), (1024, 256), (1024, 1024), (2048, 512), (4096, 256),
    (8192, 192), (16384, 128), (2048, 2048),
]  # fmt: skip


def _norms(dtype: torch.dtype, quick: bool) -> Iterator[Point]:
    rows = _ROWS if dtype is FP32 else _ROWS[::3]
    for m, n in rows:

        def statistics(m: int = m) -> list[torch.Tensor]:
            return [torch.zeros(m, 1), torch.ones(m, 1)]

        def affine(n: int = n) -> list[torch.Tensor]:
            # Autocast keeps the weights of a norm in fp32.
            return [torch.ones(n), torch.zeros(n)]

        x = lambda m=m, n=n: _rand(m, n, dtype=dtype)  # noqa: E731
        if dtype is FP32:
            yield Point("aten.native_layer_norm.default", lambda x=x, n=n, a=affine: [x(), [n], *a(), 1e-5])
            yield Point(
                "aten.native_layer_norm_backward.default",
                lambda x=x, n=n, a=affine, s=statistics: [x(), x(), [n], *s(), *a(), [True, True, True]],
            )
        yield Point("aten._softmax.default", lambda x=x: [x(), -1, False])
        yield Point("aten._softmax_backward_data.default", lambda x=x: [x(), x(), -1, dtype])
    for n, c, side in [
        (1, 8, 4),
        (16, 16, 32),
        (16, 32, 32),
        (16, 64, 16),
        (16, 128, 8),
        (16, 256, 4),
        (32, 64, 32),
        (64, 64, 16),
        (64, 128, 8),
    ]:
        planes = lambda n=n, c=c, s=side: _rand(n, c, s, s, dtype=dtype)  # noqa: E731
        channel = lambda c=c: torch.ones(c)  # noqa: E731
        yield Point(
            "aten.native_batch_norm.default",
            lambda x=planes, c=channel: [x(), c(), c(), c(), c(), True, 0.1, 1e-5],
        )
        yield Point(
            "aten.native_batch_norm_backward.default",
            lambda x=planes, c=channel: [x(), x(), c(), c(), c(), c(), c(), True, 1e-5, [True, True, True]],
        )


def _losses(quick: bool) -> Iterator[Point]:
    for m, n in [
        (1, 10),
        (64, 10),
        (64, 100),
        (64, 1000),
        (256, 4096),
        (512, 4096),
        (1024, 1000),
        (1024, 4096),
        (1024, 8192),
        (2048, 4096),
        (512, 16384),
    ]:
        x = lambda m=m, n=n: _rand(m, n)  # noqa: E731
        labels = lambda m=m, n=n: torch.randint(0, n, (m,))  # noqa: E731
        yield Point("aten._log_softmax.default", lambda x=x: [x(), 1, False])
        yield Point("aten._log_softmax_backward_data.default", lambda x=x: [x(), x(), 1, FP32])
        yield Point("aten.nll_loss_forward.default", lambda x=x, y=labels: [x(), y(), None, 1, -100])
        yield Point(
            "aten.nll_loss_backward.default",
            lambda x=x, y=labels, m=m: [torch.tensor(1.0), x(), y(), None, 1, -100, torch.tensor(float(m))],
            recent="none",
        )
    for m in (64, 1024, 16384):
        y = lambda m=m: torch.rand(m, 1)  # noqa: E731
        yield Point("aten.binary_cross_entropy_with_logits.default", lambda y=y: [y(), y(), None, None, 1])


def _embeddings(quick: bool) -> Iterator[Point]:
    for tokens, width, table in [
        (16, 32, 100),
        (256, 64, 1000),
        (1024, 256, 4096),
        (512, 512, 8192),
        (2048, 256, 4096),
        (1024, 64, 5000),
        (256, 64, 50000),
        (4096, 16, 20000),
        (1024, 128, 20000),
        (4096, 256, 4096),
    ]:
        indices = lambda t=tokens, r=table: torch.randint(0, r, (t,))  # noqa: E731
        yield Point("aten.embedding.default", lambda i=indices, w=width, r=table: [_rand(r, w), i()], recent="none")
        yield Point(
            "aten.embedding_dense_backward.default",
            lambda i=indices, w=width, r=table, t=tokens: [_rand(t, w), i(), r, -1, False],
        )


# -- vector ops ------------------------------------------------------------------------------------------------------


def _sizes(quick: bool, *, most: int = 1 << 24) -> list[int]:
    step = 3 if quick else 2
    return [1 << power for power in range(4, 25, step) if 1 << power <= most] + ([most] if quick else [])


def _shape(elements: int) -> tuple[int, int]:
    columns = min(elements, 512)
    return elements // columns, columns


def _activations(dtype: torch.dtype, quick: bool) -> Iterator[Point]:
    for elements in _sizes(quick, most=1 << 22):
        x = lambda e=elements: _rand(*_shape(e), dtype=dtype)  # noqa: E731
        row = lambda e=elements: _rand(_shape(e)[1], dtype=dtype)  # noqa: E731
        for call in ("gelu", "relu", "tanh", "sigmoid"):
            yield Point(f"aten.{call}.default", lambda x=x: [x()])
        for call in ("gelu_backward", "tanh_backward", "sigmoid_backward"):
            yield Point(f"aten.{call}.default", lambda x=x: [x(), x()])
        yield Point("aten.threshold_backward.default", lambda x=x: [x(), x(), 0])
        yield Point("aten.add.Tensor", lambda x=x: [x(), x()])
        yield Point("aten.add_.Tensor", lambda x=x: [x(), x()])
        yield Point("aten.mul.Tensor", lambda x=x: [x(), x()])
        yield Point("aten.sum.dim_IntList", lambda x=x: [x(), [0], True])
        if elements >= 512:
            yield Point("aten.add.Tensor", lambda x=x, r=row: [x(), r()])
        if dtype is BF16:
            yield Point("aten._to_copy.default", lambda x=x: [x()], (("dtype", FP32),))
            yield Point("aten.div.Scalar", lambda x=x: [x(), 3.0])
            continue
        yield Point("aten._to_copy.default", lambda x=x: [x()], (("dtype", BF16),))
        yield Point("aten.mul.Tensor", lambda x=x: [x(), torch.tensor(0.5)])
        yield Point("aten.sub.Tensor", lambda x=x: [x(), x()])
        yield Point("aten.silu.default", lambda x=x: [x()])
        yield Point("aten.silu_backward.default", lambda x=x: [x(), x()])
        yield Point("aten.sum.default", lambda x=x: [x()])
        yield Point("aten.mean.dim", lambda x=x: [x(), [-1], True])
        yield Point("aten.native_dropout.default", lambda x=x: [x(), 0.1, True])


def _optimizers(quick: bool) -> Iterator[Point]:
    # The single-tensor loops that a CPU runs by default are chains; here are the fused kernels and counters.
    for dtype in (torch.int64, FP32):
        # Batches seen by a batch norm, steps of an optimizer.
        yield Point("aten.add_.Tensor", lambda dtype=dtype: [torch.tensor(1, dtype=dtype), 1])
    for elements in (1 << 10, 1 << 16, 1 << 20, 1 << 22):
        state = lambda e=elements: [torch.rand(e) + 0.1]  # noqa: E731
        yield Point(
            "aten._fused_adamw_.default",
            lambda s=state: [s(), s(), s(), s(), [], [torch.tensor(5.0)]],
            (
                ("lr", 1e-6), ("beta1", 0.9), ("beta2", 0.999), ("weight_decay", 0.01), ("eps", 1e-8),
                ("amsgrad", False), ("maximize", False),
            ),
        )  # fmt: skip


def _copies(quick: bool) -> Iterator[Point]:
    for elements in _sizes(quick):
        x = lambda e=elements: _rand(*_shape(e))  # noqa: E731
        yield Point("aten.clone.default", lambda x=x: [x()])
        yield Point("aten.copy_.default", lambda x=x: [x(), x()])
        yield Point("aten.zeros.default", lambda e=elements: [list(_shape(e))])
        yield Point("aten.zero_.default", lambda x=x: [x()])
        yield Point("aten.ones_like.default", lambda x=x: [x()])
    for elements in _sizes(quick, most=1 << 22):
        half = lambda e=elements: _rand(max(1, e // 512), min(e, 512) // 2 or 1)  # noqa: E731
        yield Point("aten.cat.default", lambda h=half: [[h(), h()], 1])
        yield Point(
            "aten.stack.default", lambda e=elements: [[_rand(max(1, e // 512), min(e, 64)) for _ in range(8)], 1]
        )
        yield Point(
            "aten.clone.default",
            lambda e=elements: [_rand(*_shape(e)).t()],
            (("memory_format", torch.contiguous_format),),
        )
        yield Point(
            "aten.slice_backward.default",
            lambda e=elements: [_rand(*_shape(e)), [2 * _shape(e)[0], _shape(e)[1]], 0, 0, _shape(e)[0], 1],
        )
        yield Point("aten.select_backward.default", lambda e=elements: [_rand(*_shape(e)), [4, *_shape(e)], 0, 1])
        yield Point(
            "aten.index_select.default",
            lambda e=elements: [_rand(64, max(1, e // 64)), 1, torch.arange(max(1, e // 64))[::2].contiguous()],
        )
        yield Point(
            "aten.index_add.default",
            lambda e=elements: [
                _rand(64, max(2, e // 64)),
                1,
                torch.arange(max(2, e // 64) // 2),
                _rand(64, max(2, e // 64) // 2),
            ],
        )
        yield from _sharding(elements)


def _sharding(elements: int) -> Iterator[Point]:
    """FSDP2's copies around its collectives, for a unit of four parameters over two ranks."""
    part = max(2, elements // 4)
    sizes = [part] * 4
    yield Point(
        "fsdp.all_gather_copy_in.default",
        lambda: [[_rand(part) for _ in sizes], torch.empty(2 * 4 * part), sizes, 4 * part, 0],
    )
    yield Point(
        "fsdp.split_with_sizes_copy.default",
        lambda: [_rand(2, 4 * part), sizes],
        (("dim", 1), ("out", Fresh(lambda: [torch.empty(2, part) for _ in sizes]))),
    )
    yield Point(
        "fsdp.chunk_cat.default",
        lambda: [[_rand(2 * part) for _ in sizes], 0, 2],
        (("out", Fresh(lambda: torch.empty(2, 4 * part))),),
    )


def _recurrent(dtype: torch.dtype, quick: bool) -> Iterator[Point]:
    shapes = [
        (4, 2, 16, 16), (16, 8, 64, 64), (32, 8, 128, 128), (64, 16, 256, 256), (32, 32, 256, 256), (128, 8, 128, 256),
        (64, 32, 128, 128), (16, 64, 256, 512),
    ]  # fmt: skip
    # oneDNN has no bf16 LSTM below AVX-512; torch then runs the cell as separate ops, which are swept anyway.
    for steps, batch, width, hidden in shapes if dtype is FP32 else []:

        def forward(t: int = steps, b: int = batch, w: int = width, h: int = hidden) -> list[Any]:
            gates = lambda *shape: _rand(*shape, dtype=dtype) * 0.1  # noqa: E731
            state = [_rand(b, h, dtype=dtype), _rand(b, h, dtype=dtype)]
            weights = [gates(4 * h, w), gates(4 * h, h), gates(4 * h), gates(4 * h)]
            return [_rand(t, b, w, dtype=dtype), *weights, *state, False, [], 2, h, 1, True, False, False, True]

        def backward(forward: Any = forward, t: int = steps, b: int = batch, h: int = hidden) -> list[Any]:
            x, w1, w2, b1, b2, hx, cx, *_ = arguments = forward()
            out, hy, cy, workspace = torch.ops.aten.mkldnn_rnn_layer.default(*arguments)
            return [
                x, w1, w2, b1, b2, hx, cx, out, hy, cy, torch.ones_like(out), torch.ones_like(hy), torch.ones_like(cy),
                False, 2, h, 1, True, True, False, [], False, workspace,
            ]  # fmt: skip

        yield Point("aten.mkldnn_rnn_layer.default", forward)
        yield Point("aten.mkldnn_rnn_layer_backward.default", backward)
