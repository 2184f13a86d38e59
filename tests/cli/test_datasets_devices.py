import json


def test_the_list_names_every_device(foretrace):
    done = foretrace("datasets", "devices")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + 99
    (line,) = [line for line in lines if line.startswith("H100-SXM5-80GB ")]
    assert line.split()[1:] == ["gpu", "2022", "989.4", "66.9", "80", "GiB", "3350", "700", "450"]


def test_one_device_with_its_sources(foretrace):
    done = foretrace("datasets", "devices", "h100-sxm")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bf16, dense peak           989.4 TFLOP/s" in done.stdout
    assert "NVIDIA datasheet" in done.stdout
    shown = json.loads(foretrace("datasets", "devices", "h100-sxm", "--json").stdout)
    assert (shown["key"], shown["match"]["how"], shown["flops_per_s"]["bf16"]) == ("H100-SXM5-80GB", "alias", 989.4e12)


def test_a_vague_name_is_read_aloud(foretrace):
    done = foretrace("datasets", "devices", "a100")
    assert done.returncode == 0
    assert "'a100' was read as A100-SXM4-80GB (confidence low): form factor and memory size not stated" in done.stderr


def test_an_unknown_name_is_one_line(foretrace):
    done = foretrace("datasets", "devices", "H1000")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("foretrace: error: device 'H1000' is not known, close are ")
    assert len(done.stderr.splitlines()) == 1


def test_own_devices_are_listed_and_broken_ones_named(foretrace, machine_file, tmp_path):
    folder = tmp_path / "cache" / "devices"
    folder.mkdir()
    machine_file.rename(folder / "box.json")
    (folder / "bad.json").write_text("{}")
    done = foretrace("datasets", "devices")
    assert done.returncode == 0
    assert any(line.startswith("box (yours)") for line in done.stdout.splitlines())
    assert "bad.json: is no device file: kind is None" in done.stderr
    assert json.loads(foretrace("datasets", "devices", "box", "--json").stdout)["measured"] is True
