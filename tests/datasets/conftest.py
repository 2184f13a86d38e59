"""Rows and runs that several tests of the ground floor share."""

import pytest
from foretrace.datasets.store import RunWriter


def _op_row(**changes):
    # (2 × 4)(4 × 3): 2·2·3·4 = 48 FLOPs; reads (2·4 + 4·3)·4 = 80 bytes, writes 2·3·4 = 24
    row = {
        "op": "matmul", "name": "aten.mm", "direction": "fwd", "dtype": "fp32", "b": 1, "m": 2, "n": 3, "k": 4,
        "shape": {"layout": "nn"}, "flops": 48.0, "bytes_read": 80.0, "bytes_written": 24.0,
    }  # fmt: skip
    return {**row, **changes}


def _step_row(step, time_s=0.5, **changes):
    start_s = float(step)
    return {"step": step, "start_s": start_s, "end_s": start_s + time_s, "time_s": time_s, "hook_s": 1e-5, **changes}


@pytest.fixture
def op_row():
    return _op_row


@pytest.fixture
def step_row():
    return _step_row


@pytest.fixture
def run_folder(tmp_path):
    """A complete run of two ranks: one op row and three steps each; rank 1 is slower."""
    path = tmp_path / "run"
    writers = [RunWriter.create(path, kind="profile", rank=rank, run_id="r1") for rank in (0, 1)]
    for writer in writers:
        writer.write("ops", [_op_row(time_s=1e-6, count=2)])
        for step in range(3):
            writer.step(_step_row(step, 0.25 * (1 + writer.rank)))
        writer.manifest(world_size=2, plan={"dp": 2})
        writer.close()
    return path
