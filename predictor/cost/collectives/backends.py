"""Backends by family and version: `nccl-2.27.3` is nccl 2.27.3, `vllm_graph|vLLM_custom_graph` is vllm-graph."""

from __future__ import annotations

import re

# First words of a backend's name, lower case -> family. Longest first wins.
FAMILIES = {
    "nccl": "nccl", "rccl": "nccl", "oneccl": "oneccl", "gloo": "gloo", "mpi": "mpi", "osu": "mpi",
    "intel mlsl": "mlsl",
    "baidu": "baidu-ring", "vllm_eager": "vllm-eager", "vllm_graph": "vllm-graph", "sglang_eager": "sglang-eager",
    "sglang_graph": "sglang-graph", "trtllm": "trtllm", "deepep-normal": "deepep-normal",
    "deepep-lowlatency": "deepep-lowlatency",
}  # fmt: skip

_VERSION = re.compile(r"\d+(?:\.\d+)+\w*")


def family_of(backend: str) -> str | None:
    """Family of a backend; None when its name begins with no known word."""
    words = backend.strip().casefold()
    for first in sorted(FAMILIES, key=len, reverse=True):
        if words.startswith(first):
            return FAMILIES[first]
    return None


def version_of(backend: str, notes: str = "") -> str:
    """The version in a backend's name, else the one in notes such as "vllm/0.19.0"; empty when there is none."""
    for text in (backend, notes if "/" in notes else ""):
        if found := _VERSION.search(text):
            return found.group()
    return ""
