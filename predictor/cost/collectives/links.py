"""Links: what joins the ranks of one collective, as the closed forms need it.

Read from the words that tables use for an interconnect and from the catalog's facts of the device; what neither says
is assumed from the device's class and said so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....datasets.catalog import DeviceFacts

SWITCH, MESH, PCIE, SOCKETS, HOST, NETWORK = "switch", "mesh", "pcie", "sockets", "host", "network"
TOPOLOGIES = (SWITCH, MESH, PCIE, SOCKETS, HOST, NETWORK)
"""switch: every pair at full rate (NVSwitch, NVL72). mesh: direct links shared among the peers (DGX-1, four-GPU boards,
bridged pairs, Infinity Fabric). pcie: through PCIe and the host's bridges. sockets: PCIe across the sockets of a host
that is known to be slow there, which tells nothing of other hosts. host: memory of one CPU host. network: the
slowest wire is between hosts."""

NETWORK_BYTES_PER_S = {
    "infiniband ndr": 50e9,
    "100gb infiniband": 12.5e9,
    "slingshot-11": 100e9,
    "omni-path": 12.5e9,
    "rdma": 50e9,
    "ethernet": 12.5e9,
}
"""Words of an interconnect -> bytes/s that one host sends. Port rates: IBTA, HPE Slingshot and Intel ARK; `ethernet`
without a rate is taken for 100 Gb/s, `rdma` for one 400 Gb/s port a device."""
ASSUMED_NETWORK_BYTES_PER_S = 25e9
ASSUMED_PCIE_BYTES_PER_S = 16e9
ASSUMED_LINK_BYTES_PER_S = 25e9

ACROSS_SOCKETS = {("L40S", "pcie4"): 2}
"""(device, interconnect in lower case) -> ranks above which the one measured box crosses its sockets, at 1.3 to 5 GB/s
(README of the collectives tables)."""

_IN_SWITCH = ("nvlink4", "nvlink5")
"""Generations whose switches reduce (NVIDIA: NVLink SHARP came with the third NVSwitch)."""


@dataclass(frozen=True)
class Links:
    """Of one rank, per direction, at the wire that bounds the collective."""

    topology: str
    bytes_per_s: float
    reduces: bool = False
    """The switch can add: each byte is sent once, not twice."""
    assumed: str | None = None
    """What was not known and taken for granted; None when all is stated."""


def links_of(facts: DeviceFacts, interconnect: str = "", *, ranks: int, nodes: int = 1, per_node: int = 1) -> Links:
    """Links of a group of `ranks` on `nodes` hosts with `per_node` of them on each.

    `interconnect` holds a table's own words ("NVLink4+NVSwitch", "PCIe5", "pairwise NVLink ..."); empty: by the facts.
    """
    words = (interconnect or facts.link or "").casefold()
    if facts.type == "cpu" and nodes <= 1:
        return Links(HOST, facts.memory_bytes_per_s or ASSUMED_LINK_BYTES_PER_S)
    if nodes > 1:
        for name, bytes_per_s in NETWORK_BYTES_PER_S.items():
            if name in words:
                each = per_node if name == "rdma" else 1
                return Links(NETWORK, bytes_per_s * each)
        return Links(NETWORK, ASSUMED_NETWORK_BYTES_PER_S, assumed="the network between the hosts")
    paired = "pair" in words or "bridge" in words
    if (paired and ranks > 2) or words.startswith("pcie") or facts.link == "none" or not words:
        crossing = ranks > ACROSS_SOCKETS.get((facts.key, words), ranks)
        return Links(
            SOCKETS if crossing else PCIE, facts.pcie_bytes_per_s or ASSUMED_PCIE_BYTES_PER_S,
            assumed=None if facts.pcie_bytes_per_s else "the PCIe generation",
        )  # fmt: skip
    rate = facts.link_bytes_per_s or ASSUMED_LINK_BYTES_PER_S
    assumed = None if facts.link_bytes_per_s else "the rate of the links between devices"
    if paired or "no switch" in words or not _switched(words, facts):
        return Links(MESH, rate, assumed=assumed)
    generation = words + " " + (facts.link or "").casefold()
    return Links(SWITCH, rate, reduces=any(name in generation for name in _IN_SWITCH), assumed=assumed)


def _switched(words: str, facts: DeviceFacts) -> bool:
    """NVLink from its third generation on comes with switches on boards of eight; tables that say otherwise say so."""
    named = "switch" in words or "nvl72" in words or "nvls" in words
    return named or any(name in words for name in ("nvlink3", "nvlink4", "nvlink5")) or "nvlink+" in words
