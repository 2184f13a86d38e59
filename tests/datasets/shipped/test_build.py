import json

import pandas as pd
import pytest
from foretrace.datasets.errors import InputError, RunError, SchemaError
from foretrace.datasets.shipped import load
from foretrace.datasets.shipped.build import build
from foretrace.datasets.shipped.columns import PARTS
from foretrace.datasets.shipped.sources import Source, sources


def entry(provenance, name):
    (found,) = [entry for entry in provenance["sources"] if entry["name"] == name]
    return found


def test_a_raw_folder_is_packed_with_its_provenance(raw, tmp_path):
    made = build(raw, tmp_path / "out")
    neusight = entry(made, "neusight")
    # 8 raw rows: less a copy, a row without time and one without device; two repeats become one.
    assert (neusight["raw_rows"], neusight["rows"], neusight["merged_repeats"]) == (8, 4, 1)
    assert neusight["dropped"] == {"exact_copy": 1, "no_such_device": 1, "no_time": 1}
    assert (neusight["licence"], neusight["repository"]) == ("MIT", "sitar-lab/NeuSight")
    assert neusight["gates"]["above_compute_peak"] == neusight["gates"]["p4_contradicts_itself"] == 1
    assert neusight["gates"]["own_test_split"] == 1
    assert sum(neusight["parts"].values()) == sum(group["rows"] for group in neusight["row_groups"]) == 4
    assert made["unknown"] == ["ops/found_somewhere.csv"]
    assert "vidur" in made["absent"]
    assert json.loads((tmp_path / "out" / "provenance.json").read_text()) == made
    rows = load.read("ops", sources=["neusight"], parts=PARTS, folder=tmp_path / "out")
    merged = rows[rows["count"] == 2].iloc[0]
    assert merged["time_s"] == pytest.approx(0.2e-3)  # median of 0.1 and 0.3 ms
    assert merged["spread"] == pytest.approx(0.5)  # (0.3 - 0.1) / 2 / 0.2
    assert (merged["flops"], merged["bytes"]) == (2 * 512**3, 3 * 4 * 512**2)


def test_full_attention_that_says_causal_is_put_right(raw, tmp_path):
    made = build(raw, tmp_path / "out")
    assert entry(made, "estimate-train-time")["corrected"] == {"full_attention_marked_causal": 1}
    (row,) = load.read("ops", sources=["estimate-train-time"], parts=PARTS, folder=tmp_path / "out").to_dict("records")
    assert json.loads(row["shape"]) == {"causal": False, "causal_inferred": True, "heads": 4}
    assert row["flops"] == 2e12
    assert row["count"] == 3
    assert row["spread"] == pytest.approx(0.15)  # (12 - 9) / 2 / 10


def test_share_alike_rows_stay_in_a_file_of_their_own(raw, tmp_path):
    made = build(raw, tmp_path / "out")
    stas = entry(made, "stas00-ml-engineering")
    assert stas["share_alike"] and "CC-BY-SA" in stas["file"]
    assert (tmp_path / "out" / stas["file"]).exists()
    assert len({entry["file"] for entry in made["sources"]}) == len(made["sources"])
    assert len(load.collectives(parts=PARTS, folder=tmp_path / "out")) == 0
    assert len(load.collectives(sources=["stas00-ml-engineering"], parts=PARTS, folder=tmp_path / "out")) == 1
    notice = (tmp_path / "out" / "NOTICE").read_text().replace("\n", " ")
    assert "stas00/ml-engineering (commit 744d01e), copyright Stas Bekman, under CC BY-SA 4.0" in notice
    assert "sitar-lab/NeuSight" in notice and "Permission is hereby granted" in notice
    assert "baidu" not in notice


@pytest.mark.parametrize("licence", [None, "All rights reserved", "CC-BY-NC-4.0"])
def test_a_source_without_a_fitting_licence_is_not_shipped_at_all(raw, tmp_path, licence):
    (known,) = [source for source in sources() if source.name == "neusight"]
    fields = {name: getattr(known, name) for name in Source.__struct_fields__}
    others = [source for source in sources() if source.name != "neusight"]
    made = build(raw, tmp_path / "out", of=[Source(**{**fields, "licence": licence}), *others])
    assert made["unlicensed"] == ["neusight"]
    assert "neusight" not in [entry["name"] for entry in made["sources"]]
    assert not (tmp_path / "out" / "ops" / "neusight.parquet").exists()
    assert "NeuSight" not in (tmp_path / "out" / "NOTICE").read_text()


def test_the_same_content_has_the_same_hash(raw, tmp_path):
    first = build(raw, tmp_path / "one")
    # Neither the order of the raw rows, nor of their columns, nor building twice matters.
    path = raw / "ops" / "neusight.parquet"
    rows = pd.read_parquet(path)
    rows.iloc[::-1][sorted(rows.columns)].to_parquet(path)
    second = build(raw, tmp_path / "two")
    assert second["content_hash"] == first["content_hash"] == build(raw)["content_hash"]
    for name in ("ops/neusight.parquet", "NOTICE"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    rows.loc[0, "latency_ms"] = 0.1001
    rows.to_parquet(path)
    third = build(raw)
    assert third["content_hash"] != first["content_hash"]
    assert entry(third, "estimate-train-time")["content_hash"] == entry(first, "estimate-train-time")["content_hash"]


def test_row_groups_hold_one_device_and_one_part(raw, tmp_path):
    import pyarrow.parquet as parquet

    made = build(raw, tmp_path / "out")
    for each in made["sources"]:
        with parquet.ParquetFile(tmp_path / "out" / each["file"]) as file:
            assert file.schema_arrow.metadata[b"licence"].decode() == each["licence"]
            assert file.num_row_groups == len(each["row_groups"])
            for index, group in enumerate(each["row_groups"]):
                rows = file.read_row_group(index, columns=["device", "part"]).to_pydict()
                assert (set(rows["device"]), set(rows["part"])) == ({group["device"]}, {group["part"]})
                assert len(rows["part"]) == group["rows"]


@pytest.mark.parametrize(
    ("breaking", "error", "message"),
    [
        (lambda rows: rows.drop(columns="flops"), SchemaError, "column 'flops' is missing"),
        (lambda rows: rows.assign(shape="{"), SchemaError, "column 'shape'"),
    ],
)
def test_a_broken_raw_table_is_named(raw, breaking, error, message):
    path = raw / "ops" / "neusight.parquet"
    breaking(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(error, match=message) as caught:
        build(raw)
    assert str(caught.value).startswith(str(path))


def test_damaged_and_absent_folders(raw, tmp_path):
    with pytest.raises(InputError, match="no such folder of raw tables"):
        build(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no raw table that foretrace knows"):
        build(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        build(raw, tmp_path / "file")
    (raw / "ops" / "neusight.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="damaged, cut short or no parquet file"):
        build(raw)
