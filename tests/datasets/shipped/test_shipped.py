"""What this installation ships: whole, small, licensed, and without a row in a part where it must not be."""

from pathlib import Path

import pytest
from foretrace.datasets import catalog, shipped
from foretrace.datasets.shipped.load import FOLDER
from foretrace.datasets.shipped.notice import notice
from foretrace.datasets.shipped.pack import content_hash
from foretrace.datasets.shipped.sources import LICENCES, sources
from foretrace.datasets.store.parquet import read_rows

SHIPPED = shipped.provenance()
ENTRIES = {entry["name"]: entry for entry in SHIPPED["sources"]}
ROOT = Path(__file__).parents[3]


def test_every_source_is_shipped_as_its_entry_says():
    assert set(ENTRIES) == {source.name for source in sources()}
    for source in sources():
        entry = ENTRIES[source.name]
        assert entry["licence"] == source.licence in LICENCES
        assert (entry["repository"], entry["commit"], entry["file"]) == (source.repository, source.commit, source.file)
        assert entry["caveats"] == list(source.caveats)


def test_no_other_file_lies_there_and_all_are_small():
    files = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()}
    assert set(files) == {entry["file"] for entry in ENTRIES.values()} | {"provenance.json", "NOTICE"}
    assert sum(path.stat().st_size for path in files.values()) <= 25e6


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry["rows"] < 100_000])
def test_the_content_is_what_its_hash_says(name):
    rows = read_rows(FOLDER / ENTRIES[name]["file"])
    assert rows.num_rows == ENTRIES[name]["rows"]
    assert content_hash(rows) == ENTRIES[name]["content_hash"]


def test_every_device_is_in_the_catalog():
    known = catalog.devices()
    assert {device for entry in ENTRIES.values() for device in entry["devices"]} <= set(known)


def test_what_must_not_be_fitted_is_not():
    fit = shipped.ops(columns=["source", "device", "op", "split", "reason", "time_s"])
    assert not (fit["device"] == "P4").any()
    assert not fit["split"].isin(["test", "suspect"]).any()
    assert not (fit["source"] == "tracelens").any()
    assert set(fit["reason"]) == {""}
    assert fit["time_s"].gt(0).all() and fit["time_s"].lt(3600).all()
    assert not ((fit["source"] == "vidur") & (fit["time_s"] < 20e-6)).any()
    assert len(fit) > 900_000


def test_no_problem_is_both_fitted_and_scored_by_the_hash():
    columns = ["op", "b", "m", "n", "k", "reason"]
    gemms = ["matmul", "linear", "bmm"]
    rows = shipped.ops(parts=["fit", "score"], columns=columns)
    rows = rows[rows["op"].isin(gemms)]
    held = rows["reason"].astype(str).str.contains("held_out_problem")
    dims = ["b", "m", "n", "k"]
    problems = rows[dims].astype("int64").assign(held=held.to_numpy()).drop_duplicates()
    assert not problems.duplicated(subset=dims).any()


def test_share_alike_rows_come_only_when_named():
    assert not shipped.collectives(parts=shipped.PARTS)["source"].eq("stas00-ml-engineering").any()
    assert len(shipped.collectives(sources=["stas00-ml-engineering"], parts=shipped.PARTS)) == 60


def test_models_of_the_end_to_end_table():
    steps = shipped.steps()
    assert set(steps["part"]) == {"score"}
    assert steps["time_s"].between(1e-3, 1e3).all()
    ops = shipped.model_ops()
    assert set(ops["device"]) <= set(steps["device"])


def test_the_notice_names_every_source():
    text = notice(SHIPPED)
    assert (FOLDER / "NOTICE").read_text() == text
    assert text in (ROOT / "NOTICE").read_text()
    for entry in ENTRIES.values():
        assert entry["file"] in text and entry["repository"] in text
