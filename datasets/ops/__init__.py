"""Op families: canonical dims, FLOPs and bytes of every operator. No seconds here."""

from .canonical import canonical, is_known, short_name
from .op import DTYPE_BYTES, Op, TensorMeta, dtype_name

__all__ = ["DTYPE_BYTES", "Op", "TensorMeta", "canonical", "dtype_name", "is_known", "short_name"]
