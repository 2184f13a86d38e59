import json

import pandas as pd
from foretrace.datasets.shipped.sources import sources


def test_the_list_names_every_source_with_its_licence(foretrace):
    done = foretrace("datasets", "shipped")
    assert (done.returncode, done.stderr) == (0, "")
    for source in sources():
        (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [source.name]]
        assert source.licence in line and source.repository in line
    shown = json.loads(foretrace("datasets", "shipped", "--json").stdout)
    assert shown["kind"] == "provenance" and len(shown["content_hash"]) == 64


def test_one_source_with_its_gates(foretrace):
    done = foretrace("datasets", "shipped", "neusight")
    assert (done.returncode, done.stderr) == (0, "")
    assert "github.com/sitar-lab/NeuSight, commit 6945927" in done.stdout
    assert "p4_contradicts_itself" in done.stdout and "3x apart" in done.stdout
    assert json.loads(foretrace("datasets", "shipped", "neusight", "--json").stdout)["source"]["licence"] == "MIT"


def test_an_unknown_source_is_one_line(foretrace):
    done = foretrace("datasets", "shipped", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "source 'nobody' is not shipped; shipped are neusight, " in done.stderr


def raw_folder(tmp_path):
    (tmp_path / "raw" / "ops").mkdir(parents=True)
    row = {
        "source": "vidur", "device": "A40", "op": "matmul", "dtype": "fp16", "direction": "fwd", "split": "none",
        "b": 1, "m": 64, "n": 64, "k": 64, "shape": None, "flops": 524288.0, "bytes": 24576.0, "latency_ms": 0.5,
        "stat": "median", "framework": "f", "kernel": "x",
    }  # fmt: skip
    pd.DataFrame([row, {**row, "m": 128, "latency_ms": 0.01}]).to_parquet(tmp_path / "raw" / "ops" / "vidur.parquet")
    return tmp_path / "raw"


def test_build_writes_and_says_what_the_gates_found(foretrace, tmp_path):
    done = foretrace("datasets", "build", "--raw", raw_folder(tmp_path), "-o", "out")
    assert done.returncode == 0
    assert "below_clock_resolution" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("content hash ")]
    assert "neusight: its raw table is not there; left out" in done.stderr
    assert (tmp_path / "out" / "ops" / "vidur.parquet").exists()
    again = json.loads(foretrace("-q", "datasets", "build", "--raw", "raw", "-o", "more", "--json").stdout)
    assert line == f"content hash {again['content_hash']}"


def test_build_without_an_output_compares_with_what_is_shipped(foretrace, tmp_path):
    done = foretrace("datasets", "build", "--raw", raw_folder(tmp_path))
    assert done.returncode == 1
    assert "gives other content than is shipped" in done.stderr and "vidur" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]


def test_build_without_raw_tables_says_where_it_looked(foretrace):
    done = foretrace("datasets", "build")
    assert (done.returncode, done.stdout) == (3, "")
    assert "../shared/data: no such folder of raw tables" in done.stderr
