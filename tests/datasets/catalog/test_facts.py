import msgspec
import pytest
from foretrace.datasets import catalog
from foretrace.datasets.catalog import DTYPES, DeviceFacts
from foretrace.datasets.machine import Machine

DEVICES = catalog.devices()


@pytest.mark.parametrize("key", DEVICES)
def test_a_device_is_sound(key):
    facts = DEVICES[key]
    assert facts.key == key and facts.source and not facts.measured
    assert set(facts.flops_per_s) <= set(DTYPES)
    assert set(facts.sources) <= set(DeviceFacts.__struct_fields__)
    peaks = facts.flops_per_s
    # A narrower type is never slower than a wider one on the same units; RTX and CPU parts may repeat a rate, and
    # Pascal's half precision at 1/64 is the one that is crippled.
    if "bf16" in peaks and "fp8" in peaks:
        assert peaks["fp8"] >= peaks["bf16"]
    if "tf32" in peaks and "fp16" in peaks:
        assert peaks["fp16"] >= peaks["tf32"]
    assert (facts.link == "none") == (facts.link_bytes_per_s == 0)
    assert 1965 < facts.year < 2027


# Vendor datasheets, dense: A100 (DS-10031): 312 TFLOPS bf16, 2,039 GB/s, 600 GB/s NVLink both ways, 400 W.
# H100 SXM (data sheet): 989.4 TFLOPS bf16, 3.35 TB/s, 900 GB/s, 700 W. MI300X: 1307.4 TFLOPS, 5.3 TB/s, 304 CUs.
@pytest.mark.parametrize(
    ("key", "bf16", "bytes_per_s", "link_each_way", "watts"),
    [
        ("A100-SXM4-80GB", 312e12, 2039e9, 300e9, 400),
        ("H100-SXM5-80GB", 989.4e12, 3350e9, 450e9, 700),
        ("MI300X", 1307.4e12, 5300e9, 448e9, 750),
    ],
)
def test_published_figures_in_si_units(key, bf16, bytes_per_s, link_each_way, watts):
    facts = DEVICES[key]
    assert facts.flops_per_s["bf16"] == bf16
    assert facts.memory_bytes_per_s == bytes_per_s
    assert facts.link_bytes_per_s == link_each_way
    assert facts.tdp_w == watts


@pytest.mark.parametrize(
    ("key", "fma_per_sm_and_clock"),
    # Dense fp16 peak = SMs x FMA per SM and clock x 2 x boost clock (NVIDIA architecture whitepapers: V100 512,
    # A100 1024, H100 2048 with fp32 accumulation).
    [("V100-SXM2-16GB", 512), ("A100-SXM4-80GB", 1024), ("H100-SXM5-80GB", 2048)],
)
def test_peaks_follow_from_units_and_clock(key, fma_per_sm_and_clock):
    facts = DEVICES[key]
    assert facts.sm_count * fma_per_sm_and_clock * 2 * facts.clock_hz == pytest.approx(
        facts.flops_per_s["fp16"], rel=0.01
    )


def test_memory_is_gib():
    # nvidia-smi reports 81,920 MiB for an A100 of "80 GB" and 24,576 MiB for an RTX 3090 of "24 GB".
    assert DEVICES["A100-SXM4-80GB"].memory_bytes == 81920 * 2**20
    assert DEVICES["RTX3090"].memory_bytes == 24576 * 2**20


def test_the_source_of_one_number():
    facts = DEVICES["Xeon-8480+"]
    assert "derived" in facts.source_of("flops_per_s")
    assert facts.source_of("memory_bytes_per_s") == facts.source


def test_facts_are_frozen():
    with pytest.raises(AttributeError):
        DEVICES["T4"].tdp_w = 1.0


def test_a_machine_is_an_entry_with_its_measured_rates():
    machine = Machine(
        name="box", created="2026-01-01T00:00:00+00:00",
        facts={"usable_cores": 4, "memory_bytes": 2**34, "caches_bytes": {"L2": 2**19, "L3": 2**25}},
        peaks={
            "fp32_flops_per_s_1_thread": 1e10, "fp32_flops_per_s_4_threads": 3e10,
            "fp32_flops_per_s_4_threads_2_processes": 9e10, "bf16_flops_per_s_1_thread": None,
            "copy_memory_bytes_per_s_4_threads": 2e10, "copy_cache_bytes_per_s_4_threads": 9e10,
        },
    )  # fmt: skip
    facts = DeviceFacts.from_machine(machine)
    assert (facts.key, facts.type, facts.measured) == ("box", "cpu", True)
    assert facts.flops_per_s == {"fp32": 3e10}  # the most threads, alone; what was not measured is absent
    assert (facts.memory_bytes_per_s, facts.memory_bytes, facts.sm_count) == (2e10, 2**34, 4)
    assert facts.l2_bytes == 2**25
    assert facts.tdp_w is None
    assert "2026-01-01" in facts.source_of("flops_per_s")


def test_systems_and_links_fit_the_devices():
    links = catalog.links()
    for key, system in catalog.systems().items():
        device = catalog.device(system.device)
        assert system.key == key and system.source and system.devices_per_host >= 1
        for use in system.links:
            link = links[use.link]
            if use.count is not None and link.bytes_per_s is not None:
                assert use.bytes_per_s == pytest.approx(use.count * link.bytes_per_s)
            if use.joins == "devices" and use.link.startswith(("nvlink", "xgmi")) and use.topology != "pairs":
                assert use.bytes_per_s == pytest.approx(device.link_bytes_per_s, rel=0.01), key


def test_a_dgx_h100():
    # NVIDIA DGX H100 user guide: 8 GPUs, 900 GB/s NVLink both ways, 8 ports of 400 Gb/s, 112 cores, 2 TB, 10.2 kW.
    system = catalog.system("DGX-H100")
    assert (system.device, system.devices_per_host, system.cpu_cores) == ("H100-SXM5-80GB", 8, 112)
    assert system.link_of("devices").bytes_per_s == 450e9
    assert system.link_of("hosts").bytes_per_s == 8 * 400e9 / 8
    assert system.link_of("sockets") is None
    assert system.power_w == 10200


def test_pcie_rates_are_lanes_times_transfers_times_line_code():
    for generation, transfers in ((3, 8e9), (4, 16e9), (5, 32e9)):
        assert catalog.link(f"pcie{generation}").bytes_per_s == pytest.approx(16 * transfers * 128 / 130 / 8, rel=1e-4)


def test_a_device_reads_back_from_its_own_json():
    for facts in DEVICES.values():
        assert msgspec.json.decode(msgspec.json.encode(facts), type=DeviceFacts) == facts
