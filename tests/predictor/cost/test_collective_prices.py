"""Prices of collectives: traffic by hand arithmetic, links by words, and what measured rows do to a closed form."""

import numpy as np
import pandas as pd
import pytest
from foretrace.datasets import catalog
from foretrace.datasets.errors import UsageError
from foretrace.predictor.cost.collectives import hierarchical, saturation, tree
from foretrace.predictor.cost.collectives.backends import family_of, version_of
from foretrace.predictor.cost.collectives.closed_form import Constants, default_of
from foretrace.predictor.cost.collectives.fit import fit_collectives
from foretrace.predictor.cost.collectives.links import Links, links_of
from foretrace.predictor.cost.collectives.model import load
from foretrace.predictor.cost.collectives.prices import CollectivePrices
from foretrace.predictor.cost.collectives.similarity import Traits, weights
from foretrace.predictor.cost.collectives.table import curves_of, faults_of
from foretrace.predictor.cost.collectives.traffic import KINDS, traffic_of

SWITCH = Links("switch", 300e9)
ROW = {
    "device": "A100-SXM4-80GB", "interconnect": "NVLink3+NVSwitch", "backend": "nccl-2.27.3",
    "collective": "all_reduce", "ranks": 8, "nodes": 1, "gpus_per_node": 8, "dtype": "half", "bytes": 1 << 20,
}  # fmt: skip


def table(**changes):
    columns = {**ROW, **changes}
    length = max((len(value) for value in columns.values() if isinstance(value, list)), default=1)
    return pd.DataFrame(columns, index=range(length))


def truth(rows, slow=1.0):
    """20 us, or twice 7/8 of the buffer at 200 GB/s: whatever is longer."""
    return slow * np.maximum(20e-6, 1.75 * rows["bytes"] / 200e9)


@pytest.mark.parametrize(
    ("kind", "share", "steps"),
    [
        ("all_reduce", 2 * 7 / 8, 14), ("all_gather", 7 / 8, 7), ("reduce_scatter", 7 / 8, 7), ("all_to_all", 7 / 8, 7),
        ("send_recv", 1.0, 1), ("moe_dispatch", 7 / 8, 7), ("broadcast", 1.0, 7),
    ],
)  # fmt: skip
def test_traffic_of_eight_ranks(kind, share, steps):
    traffic = traffic_of(kind, SWITCH, ranks=8)
    assert (traffic.share, traffic.steps) == (pytest.approx(share), steps)


def test_a_switch_that_adds_sends_each_byte_once():
    traffic = traffic_of("all_reduce", Links("switch", 450e9, reduces=True), ranks=8)
    assert (traffic.algorithm, traffic.share, traffic.steps) == ("in_switch", pytest.approx(9 / 8), 2)


def test_tree_is_logarithmic():
    assert [tree.steps(ranks) for ranks in (1, 2, 8, 9)] == [0, 2, 6, 8]
    assert tree.traffic_share(8) == 2.0


def test_only_the_part_between_hosts_crosses_the_network():
    # 4 hosts: 3/4 of the buffer leaves each, twice for an all-reduce; in an all-to-all each of 8 ranks sends 3/4.
    assert hierarchical.traffic_share("all_gather", 4, 8) == pytest.approx(0.75)
    assert hierarchical.traffic_share("all_reduce", 4, 8) == pytest.approx(1.5)
    assert hierarchical.traffic_share("all_to_all", 4, 8) == pytest.approx(6.0)
    assert hierarchical.steps("all_reduce", 4, 8) == 7 + 2 + 2 + 7  # rings inside, a tree of depth 2 up and down
    assert hierarchical.steps("all_gather", 4, 8) == 7 + 3


def test_saturation_has_its_two_ends():
    def seconds(size, half):
        one = np.ones(1)
        return saturation.seconds(5e-6 * one, size * one, 1e9 * one, size * one, half * one, 1.0 * one)[0]

    assert seconds(1.0, 1.0) == pytest.approx(5e-6, rel=1e-6)
    assert seconds(1e12, 1.0) == pytest.approx(1e3, rel=1e-6)
    assert seconds(1e9, 1e9) == pytest.approx(2.0, rel=1e-6)  # half of the rate at the message of half


@pytest.mark.parametrize(
    ("device", "words", "ranks", "nodes", "topology", "bytes_per_s"),
    [
        ("A100-SXM4-80GB", "NVLink3+NVSwitch", 8, 1, "switch", 300e9),
        ("A100-SXM4-80GB", "NVLink3 (4/node, no switch) + Slingshot-11", 4, 1, "mesh", 300e9),
        ("A100-SXM4-80GB", "NVLink3 (4/node, no switch) + Slingshot-11", 8, 2, "network", 100e9),
        ("A40", "pairwise NVLink (PCIe between pairs)", 2, 1, "mesh", 56.25e9),
        ("A40", "pairwise NVLink (PCIe between pairs)", 4, 1, "pcie", 32e9),
        ("RTX-PRO-6000-SE", "PCIe5", 8, 1, "pcie", 64e9),
        ("GH200-120GB", "1 GPU/node + InfiniBand NDR", 2, 2, "network", 50e9),
        ("V100-SXM2-32GB", "NVLink2 (8xV100 node)", 8, 1, "mesh", 150e9),
        ("L4", "", 2, 1, "pcie", 32e9),
    ],
)  # fmt: skip
def test_links_by_words_and_facts(device, words, ranks, nodes, topology, bytes_per_s):
    links = links_of(catalog.device(device), words, ranks=ranks, nodes=nodes, per_node=ranks // nodes)
    assert (links.topology, links.bytes_per_s) == (topology, bytes_per_s)


def test_backends_by_family_and_version():
    assert family_of("nccl-2.27.3") == family_of("NCCL 2.0 MPI") == "nccl"
    assert family_of("vllm_graph|vLLM_custom_graph") == "vllm-graph"
    assert family_of("carrier pigeon") is None
    assert version_of("nccl-2.27.3") == "2.27.3"
    assert version_of("vllm_graph|vLLM_custom_graph", "vllm/0.19.0") == "0.19.0"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bytes": 0}, "bytes 0 makes no sense"), ({"bytes": -5}, "bytes -5 makes no sense"),
        ({"bytes": 1.5}, "bytes 1.5 makes no sense"), ({"bytes": 1e300}, "makes no sense"),
        ({"ranks": 1}, "ranks 1 makes no sense"), ({"ranks": 2.5}, "ranks 2.5 makes no sense"),
        ({"collective": "gossip"}, "known are all_reduce, all_gather"), ({"device": "H9000"}, "device 'H9000'"),
        ({"backend": "pigeon"}, "backend 'pigeon' is not known"), ({"nodes": 16}, "cannot span 16 nodes"),
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_are_named(changes, words):
    rows = pd.concat([table(), table(**changes)], ignore_index=True)
    faults = faults_of(rows)
    assert list(faults) == [1]
    assert words in faults[1] and "\n" not in faults[1]
    with pytest.raises(UsageError, match="row 1"):
        CollectivePrices(table().assign(time_s=1e-5)).price(rows)


def test_sizes_in_notes_do_not_make_curves():
    rows = table(
        collective="moe_dispatch", backend="deepep-normal", bytes=[16384, 32768],
        notes=["tokens=1;hidden=2048;topk=8;experts=128;sms=4", "tokens=2;hidden=2048;topk=8;experts=128;sms=4"],
    )  # fmt: skip
    curves, place = curves_of(rows)
    assert len(curves) == 1 and place.tolist() == [0, 0]
    assert dict(curves[0].options) == {"hidden": 2048, "topk": 8, "experts": 128, "sms": 4}


def test_covariance_of_the_shipped_levels_is_positive_definite():
    rows = pd.concat(
        [
            table(device=device, ranks=ranks, collective=kind)
            for device in ("A100-SXM4-80GB", "H100-SXM5-80GB", "L40S")
            for ranks in (2, 4, 8)
            for kind in KINDS
        ]
    )
    curves, _ = curves_of(rows)
    traits = Traits(curves, {})
    whole = sum(weights(level, traits, traits) for level in load().levels)
    assert np.linalg.eigvalsh(whole).min() > -1e-9


def fitted(rows):
    """A model of these rows; skips where what fits it is not installed."""
    pytest.importorskip("scipy", reason="fitting prices of collectives needs scipy: pip install 'foretrace[fit]'")
    return fit_collectives(rows)


def known_rows():
    rows = table(bytes=[2**octave for octave in range(10, 30, 2)])
    return rows.assign(time_s=truth(rows))


def test_between_measured_sizes_the_curve_is_followed():
    known = known_rows()
    asked = table(bytes=[2**octave for octave in (11, 15, 25, 27)])
    found = CollectivePrices(known, fitted(known)).price(asked)
    assert np.abs(found["time_s"] / truth(asked) - 1).max() < 0.05
    assert found["source"].tolist() == ["measured"] * 4 and found["in_range"].all()
    assert (found["low_s"] < found["time_s"]).all() and (found["time_s"] < found["high_s"]).all()


def test_beyond_the_last_size_time_grows_with_bytes_and_says_so():
    known = known_rows()
    found = CollectivePrices(known, fitted(known)).price(table(bytes=[2**31, 2**32]))
    assert found["time_s"][1] / found["time_s"][0] == pytest.approx(2.0, rel=0.1)
    assert not found["in_range"].any()
    assert set(found["source"]) == {"learned"}


def test_some_timings_of_a_device_bend_its_prices():
    known = known_rows()
    prices = CollectivePrices(known, fitted(known))
    asked = table(device="H100-SXM5-80GB", interconnect="NVLink4+NVSwitch", bytes=[2**12, 2**20, 2**26])
    blind = prices.price(asked)
    assert set(blind["source"]) == {"analytic"} and not blind["in_range"].any()
    few = table(device="H100-SXM5-80GB", interconnect="NVLink4+NVSwitch", bytes=[2**9, 2**16, 2**22, 2**29])
    after = prices.with_measured(few.assign(time_s=truth(few, 3.0))).price(asked)
    wanted = truth(asked, 3.0)
    assert np.abs(np.log(after["time_s"] / wanted)).mean() < 0.3 * np.abs(np.log(blind["time_s"] / wanted)).mean()


def test_a_column_of_times_is_never_read():
    prices = CollectivePrices(known_rows(), fitted(known_rows()))
    plain, told = table(), table(time_us=1e9, time_s=1e3, algbw_gbps=1e-9, busbw_gbps=1e-9)
    pd.testing.assert_frame_equal(prices.price(plain), prices.price(told))


def test_constants_come_back_from_rows_made_with_them():
    from foretrace.predictor.cost.collectives import closed_form

    made = Constants(start_s=12e-6, step_s=0.5e-6, efficiency=0.6, half_bytes=4e6, slowness=0.8)
    rows = pd.concat([table(ranks=ranks, bytes=[2**octave for octave in range(9, 31)]) for ranks in (2, 4, 8)])
    rows = rows.reset_index(drop=True)
    curves, place = curves_of(rows)
    sizes = rows["bytes"].to_numpy(dtype=float)
    time_s = np.array(
        [closed_form.seconds(curves[at], np.array([size]), made)[0] for at, size in zip(place, sizes, strict=True)]
    )
    found = fitted(rows.assign(time_s=time_s)).constants["nccl/switch/all_reduce"]
    assert found.efficiency == pytest.approx(0.6, rel=0.05)
    assert found.start_s == pytest.approx(12e-6, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", ["H20-SXM-96GB", "MI300X", "TPU-v4", "Xeon-8380", "T4", "Gaudi2"])
def test_every_kind_has_a_price_on_devices_nobody_measured(kind, device):
    prices = CollectivePrices(known_rows())
    rows = pd.DataFrame({"device": device, "collective": kind, "ranks": [2, 64], "nodes": [1, 8], "bytes": [1, 2**40]})
    found = prices.price(rows)
    assert np.isfinite(found[["time_s", "low_s", "high_s"]].to_numpy()).all() and (found["low_s"] > 0).all()
    assert found["time_s"][1] > found["time_s"][0]


def test_the_shipped_model_knows_every_topology_it_was_fitted_on():
    model = load()
    assert {"nccl/switch/all_reduce", "nccl/pcie/all_to_all", "nccl/network/send_recv"} <= set(model.constants)
    assert model.provenance["rows"] > 0
    assert default_of("pcie").efficiency < default_of("switch").efficiency
