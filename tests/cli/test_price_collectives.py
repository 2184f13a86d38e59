"""`foretrace price collectives` as a user runs it."""

import csv

HEAD = "source,device,interconnect,backend,collective,ranks,nodes,gpus_per_node,dtype,bytes,time_us,notes\n"
GOOD = "mine,H100-SXM5-80GB,NVLink4+NVSwitch,nccl-2.27.3,all_reduce,8,1,8,half,{bytes},{time},\n"


def test_a_table_gets_its_prices(foretrace, tmp_path):
    (tmp_path / "rows.csv").write_text(HEAD + GOOD.format(bytes=1 << 20, time=25.4) + GOOD.format(bytes=3000, time=""))
    done = foretrace("price", "collectives", "rows.csv", "-o", "out.csv", "--score")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["source_of_rows"] for row in rows] == ["mine", "mine"]
    for row in rows:
        assert 0 < float(row["low_us"]) < float(row["predicted_us"]) < float(row["high_us"])
        assert row["source"] == "measured" and row["in_range"] == "True"
    # aiconfigurator's table has 25.4 us for one MiB.
    assert 15 < float(rows[0]["predicted_us"]) < 40
    assert "by device" in done.stdout and "all_reduce" in done.stdout


def test_another_device_is_named_on_the_command_line(foretrace, tmp_path):
    (tmp_path / "rows.csv").write_text("collective,ranks,bytes\nall_reduce,8,1048576\n")
    done = foretrace("price", "collectives", "rows.csv", "--device", "h100-sxm", "-o", "out.parquet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.parquet").stat().st_size > 0
    done = foretrace("price", "collectives", "rows.csv", "-o", "out.parquet")
    assert done.returncode == 3 and "name one with --device" in done.stderr


def test_rows_without_sense_are_named_and_the_others_priced(foretrace, tmp_path):
    (tmp_path / "rows.csv").write_text(HEAD + GOOD.format(bytes=4096, time="") + GOOD.format(bytes=0, time=""))
    done = foretrace("price", "collectives", "rows.csv", "-o", "out.csv")
    assert done.returncode == 0 and "row 1: bytes 0 makes no sense" in done.stderr
    with (tmp_path / "out.csv").open() as file:
        assert [bool(row["predicted_us"]) for row in csv.DictReader(file)] == [True, False]
    (tmp_path / "bad.csv").write_text(HEAD + GOOD.format(bytes=-1, time=""))
    done = foretrace("price", "collectives", "bad.csv", "-o", "never.csv")
    assert done.returncode == 3 and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "never.csv").exists()


def test_own_timings_calibrate(foretrace, tmp_path):
    row = "H20-SXM-96GB,all_reduce,8,{},{}\n"
    (tmp_path / "few.csv").write_text(
        "device,collective,ranks,bytes,time_us\n" + row.format(512, 100) + row.format(1 << 22, 900)
    )
    (tmp_path / "rows.csv").write_text("device,collective,ranks,bytes\nH20-SXM-96GB,all_reduce,8,4194304\n")
    done = foretrace("price", "collectives", "rows.csv", "--calibrate", "few.csv", "-o", "out.csv")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out.csv").open() as file:
        assert 700 < float(next(csv.DictReader(file))["predicted_us"]) < 1100


def test_what_cannot_be_read_or_written_is_said_in_one_line(foretrace, tmp_path):
    (tmp_path / "rows.csv").write_text("device,collective,ranks,bytes\nL40S,all_reduce,2,4096\n")
    for arguments, code, words in (
        (("gone.csv", "-o", "o.csv"), 3, "no such file"), (("rows.csv",), 2, "give -o OUT"),
        (("rows.csv", "-o", "o.txt"), 2, "cannot tell the format"), (("rows.csv", "--score"), 2, "time_us"),
        (("rows.csv", "--device", "H9000", "-o", "o.csv"), 2, "H9000"),
    ):  # fmt: skip
        done = foretrace("price", "collectives", *arguments)
        assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr
