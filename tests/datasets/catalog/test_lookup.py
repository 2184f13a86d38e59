import json

import msgspec
import pytest
from foretrace.datasets import catalog
from foretrace.datasets.catalog.files import shipped_names
from foretrace.datasets.catalog.lookup import normal
from foretrace.datasets.errors import InputError, SchemaError, UsageError


@pytest.mark.parametrize(
    ("asked", "key", "how", "confidence"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80GB", "key", "exact"),
        ("h100-sxm5-80gb", "H100-SXM5-80GB", "key", "exact"),
        ("h100-sxm", "H100-SXM5-80GB", "alias", "high"),
        ("H100_SXM", "H100-SXM5-80GB", "alias", "high"),
        ("a100", "A100-SXM4-80GB", "alias", "low"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB", "alias", "high"),  # MLPerf tables spell it like the driver
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB", "reported", "high"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", "reported", "high"),
        ("A100-SXM4-40GB", "A100-SXM4-40GB", "key", "exact"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB", "reported", "high"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB", "reported", "high"),
        ("AMD EPYC 7763 64-Core Processor", "EPYC-7763", "reported", "high"),
        ("trn1_neuroncore_v2 (2 per Trainium chip, 16 GB each)", "Trainium1-NeuronCore", "alias", "exact"),
    ],
)
def test_whole_names_are_found(asked, key, how, confidence):
    match = catalog.find(asked)
    assert (match.facts.key, match.how, match.confidence) == (key, how, confidence)
    assert catalog.device(asked) is match.facts
    assert (match.note is not None) or confidence not in ("low", "medium")


@pytest.mark.parametrize("asked", ["A1000", "H100 SXM 80", "100", "RTX", "", "  ", "NVIDIA"])
def test_a_part_of_a_name_is_no_name(asked):
    with pytest.raises(UsageError, match=r"is not known.*list them with: foretrace datasets devices") as caught:
        catalog.find(asked)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_gets_close_keys():
    with pytest.raises(UsageError, match=r"device 'MI300' is not known, close are .*MI300X"):
        catalog.find("MI300")


def test_a_spelling_that_names_no_part_says_so():
    with pytest.raises(UsageError, match="'Ascend NPU' is a known spelling, but the source does not name a part"):
        catalog.find("Ascend NPU")


def test_only_what_drivers_report_is_recognised_as_reported():
    assert catalog.reported("NVIDIA L40S").facts.key == "L40S"
    assert catalog.reported("nvidia_l40s") is not None  # case and joiners do not count
    assert catalog.reported("h100-sxm") is None
    assert catalog.reported("AMD EPYC") is None


def test_every_spelling_leads_to_one_entry():
    keys = catalog.devices()
    seen = {}
    for table, column in (("aliases", "alias"), ("reported", "name")):
        for row in shipped_names(table):
            assert row["confidence"] in ("exact", "high", "medium", "low", "none")
            assert (row["device"] in keys) == (row["confidence"] != "none")
            assert row["note"] or row["confidence"] not in ("medium", "low", "none")
            assert seen.setdefault(normal(row[column]), row["device"]) == row["device"], row
    assert len({normal(key) for key in keys}) == len(keys)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(tmp_path))
    (tmp_path / "devices").mkdir()
    return tmp_path


def write(path, **fields):
    document = {"schema_version": 1, "kind": "device", "key": "mine", "type": "gpu", "source": "my data sheet"}
    path.write_text(json.dumps({**document, **fields}))
    return path


def test_a_device_of_ones_own(cache):
    path = write(cache / "devices" / "x.json", flops_per_s={"bf16": 1e14}, memory_bytes_per_s=1e12)
    assert catalog.find("MINE").how == "user"
    assert catalog.device(str(path)).flops_per_s == {"bf16": 1e14}
    assert catalog.devices()["mine"].memory_bytes_per_s == 1e12
    assert len(catalog.devices()) == 100


def test_what_devices_prints_as_json_can_be_edited_and_read(cache):
    facts = msgspec.to_builtins(catalog.device("T4"))
    path = write(cache / "t4.json", **{**facts, "key": "T4-capped", "tdp_w": 60.0, "match": {"asked": "t4"}})
    assert catalog.device(str(path)).tdp_w == 60.0
    assert catalog.device(str(path)).flops_per_s == catalog.device("T4").flops_per_s


def test_this_machine_is_an_entry(cache, machine_file_of_catalog):
    assert catalog.device("this").key == "box"
    assert catalog.device("this").measured


@pytest.fixture
def machine_file_of_catalog(cache):
    from foretrace.datasets.machine import Machine, default_path

    return Machine(name="box", facts={"usable_cores": 2}).save(default_path())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"kind": "profile"}, InputError, "kind is 'profile', expected 'device' or 'machine'"),
        ({"schema_version": 99}, InputError, "schema_version is 99"),
        ({"source": None}, SchemaError, r"Expected `str`, got `null` - at `\$.source`"),
        ({"tdp": 300}, SchemaError, "unknown field `tdp`"),
        ({"type": "toaster"}, SchemaError, "type must be one of gpu.*found 'toaster'"),
        ({"flops_per_s": {"bf32": 1e12}}, SchemaError, "flops_per_s must be by dtype.*found 'bf32'"),
        ({"flops_per_s": {"bf16": 0}}, SchemaError, "flops_per_s.bf16 must be above 0"),
        ({"memory_bytes_per_s": -1.0}, SchemaError, "memory_bytes_per_s must be above 0 or absent"),
        ({"key": " "}, SchemaError, "key must be a text"),
    ],
)
def test_a_broken_device_file_is_named_with_its_field(cache, fields, error, message):
    path = write(cache / "devices" / "x.json", **fields)
    with pytest.raises(error, match=message) as caught:
        catalog.device(str(path))
    assert str(caught.value).startswith(str(path))
    # One broken file of the user's own does not take the catalog away.
    assert catalog.device("T4").key == "T4"
    _, problems = catalog.user_devices()
    assert len(problems) == 1 and problems[0].startswith(str(path))


def test_a_key_that_is_taken_is_refused(cache):
    write(cache / "devices" / "x.json", key="T4")
    mine, problems = catalog.user_devices()
    assert mine == {}
    assert "key 'T4' is taken" in problems[0]


def test_systems_and_links_by_key_only():
    assert catalog.link("NVLink4").key == "nvlink4"
    with pytest.raises(UsageError, match="system 'dgx-h10' is not known, close are dgx-h100"):
        catalog.system("dgx-h10")
    with pytest.raises(UsageError, match="link 'nvlink9' is not known"):
        catalog.link("nvlink9")


def test_the_catalog_needs_no_heavy_library():
    import subprocess
    import sys

    code = (
        "import sys\nfrom foretrace.datasets import catalog\ncatalog.device('h100-sxm'); catalog.system('dgx-h100')\n"
        "print(*{'pandas', 'pyarrow', 'numpy', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
