"""Op: one framework operator on concrete shapes, before anybody asks what it costs.

An op is a row. `Op` is its key: what determines how long it takes on a given device. Two calls with the same `Op` are
the same price. Times, counts and devices belong to the tables in `datasets.schemas`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

DTYPE_BYTES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip

FLOAT_DTYPES = ("fp64", "fp32", "fp16", "bf16", "fp8", "complex64", "complex128")

# How torch spells a dtype in `str(dtype)`, in a Kineto trace and in an execution trace.
TORCH_DTYPES = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16",
    "c10::half": "fp16", "bfloat16": "bf16", "c10::bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
    "int64": "int64", "long": "int64", "long int": "int64", "int32": "int32", "int": "int32", "int16": "int16",
    "short": "int16", "int8": "int8", "signed char": "int8", "char": "int8", "uint8": "uint8",
    "unsigned char": "uint8", "bool": "bool", "complex64": "complex64", "c10::complex<float>": "complex64",
    "complex128": "complex128", "c10::complex<double>": "complex128",
}  # fmt: skip


@lru_cache(maxsize=256)
def dtype_name(spelling: str) -> str:
    """Our name of a dtype for any of torch's spellings; an unknown spelling comes back in lower case."""
    text = spelling.strip().lower()
    if text.startswith("tensor(") and text.endswith(")"):
        text = text[len("tensor(") : -1]
    text = text.removeprefix("torch.")
    return TORCH_DTYPES.get(text, text)


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape, dtype (our name) and strides in elements of one tensor; `strides` is None where a source has none."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Elements as the operator sees them, broadcast dims included."""
        return prod(self.shape)

    @property
    def stored_bytes(self) -> int:
        """Bytes of distinct elements: a dim of stride 0 is stored once."""
        shape = self.shape
        if self.strides is not None:
            shape = tuple(size for size, stride in zip(self.shape, self.strides, strict=True) if stride or size == 1)
        return prod(shape) * DTYPE_BYTES.get(self.dtype, 4)

    @property
    def transposed(self) -> bool:
        """True when the last dim is not the contiguous one but the one before it is (a `.t()` view)."""
        s = self.strides
        return s is not None and len(s) >= 2 and s[-1] != 1 and s[-2] == 1 and self.shape[-1] > 1


@dataclass(frozen=True, slots=True)
class Op:
    """One operator on concrete shapes.

    Canonical dims, 0 where a family has no such dim:
    GEMM families: `b` batches of (m × k)(k × n). Attention: b batch, m query length, n key length, k head dim.
    Vector families: m rows × n columns. Embedding: m tokens, n width, k table rows. Convolution as implicit GEMM:
    m = batch × output pixels, n = output channels, k = input channels per group × window.
    """

    op: str
    """Family, or `family.kind` (`elementwise.add`)."""
    name: str
    """The framework's operator, `aten.addmm`."""
    direction: str
    """`fwd`, `bwd` (a backward kernel of its own) or `opt` (a fused optimizer)."""
    dtype: str
    b: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    shape: tuple[tuple[str, int | str], ...] = ()
    """Whatever else decides the time, as sorted (key, value) pairs."""
    flops: float = 0.0
    bytes_read: float = 0.0
    """Algorithmic minimum: every distinct input element once."""
    bytes_written: float = 0.0

    @property
    def family(self) -> str:
        """`op` up to its first dot."""
        return self.op.partition(".")[0]

    @property
    def bytes(self) -> float:
        """Read plus written."""
        return self.bytes_read + self.bytes_written
