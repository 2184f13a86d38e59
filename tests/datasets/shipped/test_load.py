import pandas as pd
import pytest
from foretrace.datasets.errors import InputError, UsageError
from foretrace.datasets.shipped import load
from foretrace.datasets.shipped.build import build
from foretrace.datasets.shipped.columns import COLLECTIVES, OPS, PARTS


@pytest.fixture
def folder(raw, tmp_path):
    build(raw, tmp_path / "out")
    return tmp_path / "out"


def test_only_rows_to_fit_to_unless_more_is_asked_for(folder):
    every = load.ops(parts=PARTS, folder=folder)
    assert list(every) == OPS.names
    fit = load.ops(folder=folder)
    assert set(fit["part"]) <= {"fit"}
    assert len(fit) < len(every) == 5
    assert set(load.ops(parts=["apart"], folder=folder)["device"]) == {"P4"}


def test_devices_and_columns(folder):
    rows = load.ops(devices=["A100-SXM4-80GB"], parts=PARTS, columns=["op", "m", "time_s"], folder=folder)
    assert list(rows) == ["op", "m", "time_s"]
    assert rows["op"].tolist() == ["attention_fwd"]
    assert isinstance(rows["op"].dtype, pd.CategoricalDtype)
    assert rows["m"].dtype == pd.Int64Dtype() and str(rows["time_s"].dtype) == "float32"


def test_nothing_found_has_all_columns(folder):
    assert list(load.ops(devices=["M40"], folder=folder)) == OPS.names
    assert list(load.collectives(devices=["M40"], folder=folder)) == COLLECTIVES.names


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sources": ["nobody"]}, "source 'nobody' .* known are neusight, estimate-train-time"),
        ({"parts": ["train"]}, "part 'train' .* known are fit, score, apart, suspect"),
        ({"columns": ["latency_ms"]}, "column 'latency_ms' .* known are source"),
    ],
)
def test_unknown_words_are_named(folder, asked, message):
    with pytest.raises(UsageError, match=message):
        load.ops(**asked, folder=folder)


def test_damage_is_named(folder, tmp_path):
    (folder / "ops" / "neusight.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"neusight\.parquet: cannot read shipped rows"):
        load.ops(parts=PARTS, folder=folder)
    with pytest.raises(InputError, match="no such provenance of the shipped measurements"):
        load.ops(folder=tmp_path / "nowhere")
