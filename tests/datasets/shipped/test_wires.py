import pytest
from foretrace.datasets.shipped import wires
from foretrace.datasets.shipped.gate import limits


@pytest.mark.parametrize(
    ("collective", "factor"),
    # nccl-tests, PERFORMANCE.md: 2(n-1)/n, (n-1)/n, and 1 for a single sender; n = 8
    [
        ("all_reduce", 2 * 7 / 8),
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("send_recv", 1),
    ],
)
def test_bus_bandwidth(collective_rows, collective, factor):
    rows = collective_rows({"collective": collective, "bytes": 8 * 10**9, "time_s": 0.5})
    assert wires.bus_bytes_per_s(rows)[0] == pytest.approx(16e9 * factor)


def test_dispatch_has_no_bus_bandwidth(collective_rows):
    assert wires.bus_bytes_per_s(collective_rows({"collective": "moe_dispatch"})).isna().all()


def test_the_link_bounds_the_bus(collective_rows):
    def row(bus, **changes):
        return {"bytes": 8 * 10**9, "time_s": 2 * 7 / 8 * 8e9 / bus, **changes}

    hopper = {"device": "H100-SXM5-80GB", "interconnect": "NVLink4+NVSwitch"}
    rows = collective_rows(
        row(299e9),  # A100: 300 GB/s each way
        row(310e9),
        row(480e9, **hopper),  # NVLS sends each byte once: up to twice 450 GB/s
        row(930e9, **hopper),
        row(31e9, device="L40S", interconnect="PCIe4"),
        row(40e9, device="L40S", interconnect="PCIe4"),
        row(40e9, interconnect="a wire that nobody knows"),
    )
    assert wires.bus_over_link(limits(rows)).tolist() == [False, True, False, True, False, True, False]


def test_between_hosts_the_network_bounds_the_bus(collective_rows):
    def row(rate, **changes):
        many = {"device": "GH200-120GB", "interconnect": "1 GPU/node + InfiniBand NDR", "ranks": 2, "nodes": 2}
        return {**many, "collective": "send_recv", "bytes": 10**9, "time_s": 1e9 / rate, **changes}

    rows = collective_rows(
        row(49e9), row(55e9),  # 400 Gb/s = 50 GB/s
        row(55e9, ranks=8),  # ranks of one host talk inside it: up to twice as much
        row(400e9, nodes=1),  # inside a host the device's own link counts, and its text names none here
    )  # fmt: skip
    assert wires.bus_over_link(limits(rows)).tolist() == [False, True, False, False]
