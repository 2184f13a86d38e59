"""Power and energy: what devices answer, which device is whose, and what is said when they do not."""

import json
from pathlib import Path

import pytest
from foretrace.profiler.channels.nvml import LiveNvml, NvmlError, ReplayedNvml, visible_devices
from foretrace.profiler.channels.power import PowerChannel, energy_of
from foretrace.profiler.channels.sampler import Sample

CASES = Path(__file__).parents[2] / "cases"
PARTIAL = CASES / "S12-nvml-partial-support"
VISIBLE = CASES / "S13-visible-devices"


def channel(tmp_path, nvml, **options):
    return PowerChannel(rank=0, nvml=nvml, rapl=tmp_path / "none", visible=",".join("0123"), **options)


def test_devices_that_answer_different_questions(tmp_path):
    devices = json.loads((PARTIAL / "devices.json").read_text())
    expected = json.loads((PARTIAL / "expected.json").read_text())["devices"]
    nvml = ReplayedNvml(devices)
    power = channel(tmp_path, nvml)
    assert power.unavailable() is None
    samples = [sample for time_s in (0.0, 1.0, 2.0) for sample in power.read(time_s)]
    power._sampler.samples = samples
    rows = power.rows([])["samples"]
    assert all(row["value"] != 0 for row in rows)
    facts = power.facts()
    for index, wanted in enumerate(expected):
        read = {name: [s.value for s in samples if s.name == f"cuda:{index}.{name}"] for name in ("power", "energy")}
        assert read["power"] == ([] if wanted["power_w"] is None else [pytest.approx(wanted["power_w"])] * 3)
        assert read["energy"] == ([] if wanted["energy_j"] is None else [pytest.approx(wanted["energy_j"])] * 3)
        device = facts["devices"][str(index)]
        total = device["memory_total_bytes"]
        if "memory_total_gib" in wanted:
            assert (None if total is None else total / 2**30) == wanted["memory_total_gib"]
        if wanted["power_w"] is None or wanted["energy_j"] is None:
            assert device["missing"]["energy"]
    assert facts["devices"]["1"]["missing"] == {"energy": "this device does not support it"}
    # 181 W for two seconds, integrated and marked as such.
    assert facts["energy"]["cuda:1"] == {
        "energy_j": pytest.approx(362.0), "seconds_s": 2.0, "from": "integrated power samples",
    }  # fmt: skip
    assert facts["energy"]["cuda:0"]["from"] == "counter"
    assert facts["devices"]["2"]["missing"]["memory_total"] == "no permission"
    assert facts["devices"]["2"]["note"] == "power and energy belong to the whole board, not to one slice"
    assert facts["devices"]["3"]["missing"]["power"] == "the device was lost"
    # What is not supported is asked once, and a lost device not again.
    assert nvml.asked.count((1, "energy_mj")) == 1
    assert nvml.asked.count((3, "power_mw")) == 1


def test_a_device_that_is_lost_on_the_way(tmp_path):
    devices = [
        {"name": "a", "power_mw": 1000, "energy_mj": 5, "utilization_pct": 1, "memory_total_bytes": 1} for _ in "12"
    ]
    nvml = ReplayedNvml(devices)
    power = channel(tmp_path, nvml)
    assert power.unavailable() is None
    devices[0]["power_mw"] = "NVML_ERROR_GPU_IS_LOST"
    assert {sample.name.partition(".")[0] for sample in power.read(0.0)} == {"cuda:1"}
    before = len(nvml.asked)
    power.read(1.0)
    assert all(index == 1 for index, _ in nvml.asked[before:])


def test_a_driver_that_does_not_match(tmp_path):
    error = json.loads((PARTIAL / "driver.json").read_text())["init"]
    wanted = json.loads((PARTIAL / "expected.json").read_text())["driver"]["doctor_mentions"]
    reason = channel(tmp_path, ReplayedNvml(open_error=error)).unavailable()
    for words in wanted:
        assert words in reason


def test_without_a_driver_the_real_one_says_so():
    try:
        LiveNvml().open()
    except NvmlError as error:
        assert str(error)
    else:
        pytest.skip("this machine has an NVIDIA driver")


def test_visible_devices():
    given = json.loads((VISIBLE / "rows.json").read_text())
    expected = json.loads((VISIBLE / "expected.json").read_text())["maps"]
    for row in expected:
        found = visible_devices(given["driver_uuids"], row["cuda_visible_devices"])
        assert {str(key): value for key, value in found.items()} == row["framework_to_driver"], row
    assert visible_devices(given["driver_uuids"], "GPU-") == {}  # names more than one


def test_samples_come_from_the_visible_device(tmp_path):
    given = json.loads((VISIBLE / "rows.json").read_text())["driver_uuids"]
    devices = [
        {
            "uuid": uuid, "name": "a", "power_mw": 1000 * (index + 1), "energy_mj": 1, "utilization_pct": 5,
            "memory_total_bytes": 1,
        }
        for index, uuid in enumerate(given)
    ]  # fmt: skip
    power = PowerChannel(rank=0, nvml=ReplayedNvml(devices), rapl=tmp_path, visible="3,1")
    assert power.unavailable() is None
    read = {sample.name: sample.value for sample in power.read(0.0)}
    assert (read["cuda:0.power"], read["cuda:1.power"]) == (4.0, 2.0)
    assert power.facts()["devices"]["0"]["driver_index"] == 3


def test_rapl(tmp_path):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("9000000\n")
    (zone / "max_energy_range_uj").write_text("10000000\n")
    power = PowerChannel(rank=0, nvml=ReplayedNvml(open_error="NVML_ERROR_LIBRARY_NOT_FOUND"), rapl=tmp_path)
    assert power.unavailable() is None
    first = power.read(0.0)
    (zone / "energy_uj").write_text("500000\n")
    power._sampler.samples = first + power.read(2.0)
    power.rows([])
    # The counter started again: 10 − 9 + 0.5 joules.
    assert power.facts()["energy"] == {
        "package-0": {"energy_j": pytest.approx(1.5), "seconds_s": 2.0, "from": "counter"}
    }


def test_no_counter_at_all_is_a_reason(tmp_path):
    reason = channel(tmp_path, ReplayedNvml(open_error="NVML_ERROR_LIBRARY_NOT_FOUND")).unavailable()
    assert "no NVIDIA driver library" in reason
    assert "no energy counters" in reason


def test_one_sample_is_no_energy():
    found = energy_of([Sample("a.power", "W", 0.0, 5.0)], "a")
    assert found["energy_j"] is None
    assert found["reason"]
