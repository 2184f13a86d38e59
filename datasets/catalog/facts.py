"""What the catalog says of a device, a link or a system: frozen records, SI units in every name, None for unknown.

Peaks are dense vendor figures, never sparse ones; a measured machine has measured rates instead and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ..machine import Machine

DTYPES = ("fp32", "fp32_matrix", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
"""Keys of `flops_per_s`. `fp32_matrix` is fp32 through matrix units (AMD); int8 counts operations."""


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator, or one CPU socket. A number that no source states is None, never 0."""

    key: str
    """What the device is called everywhere in foretrace."""
    type: str
    """gpu | tpu | npu | ipu | cpu."""
    vendor: str | None = None
    arch: str | None = None
    family: str | None = None
    """Devices of one die or of its direct derivatives share a family: what "family left out" leaves out. Our grouping;
    None when the device stands alone."""
    year: int | None = None
    flops_per_s: dict[str, float] = {}
    """Dense peak by dtype (`DTYPES`); a dtype that is absent is not supported or not known."""
    memory_bytes_per_s: float | None = None
    memory_bytes: int | None = None
    """Vendors print GB and mean GiB (an "80 GB" A100 reports 81,920 MiB); this is in bytes."""
    memory_type: str | None = None
    sm_count: int | None = None
    """Streaming multiprocessors, compute units, TensorCores, tiles or CPU cores."""
    cores_per_sm: int | None = None
    """fp32 lanes of each."""
    l2_bytes: int | None = None
    """Last on-chip level: L2, L3 of a CPU socket, Infinity Cache where notes say so, vector memory of a TPU."""
    clock_hz: float | None = None
    """Boost clock; base clock of a CPU."""
    tdp_w: float | None = None
    """Default power cap."""
    link: str | None = None
    """Scale-up link; "none" when the device is known to have none."""
    link_bytes_per_s: float | None = None
    """Sum over the device's scale-up links, per direction; 0 when `link` is "none"."""
    pcie_gen: int | None = None
    pcie_bytes_per_s: float | None = None
    """Of all its lanes, per direction."""
    measured: bool = False
    """True when the rates were measured (`foretrace profile machine`), False for datasheet peaks."""
    source: str
    """Where the numbers come from."""
    sources: dict[str, str] = {}
    """Field -> its own source, where it differs from `source`."""
    notes: str | None = None
    """Disagreements between sources, and what else to know."""

    def source_of(self, field: str) -> str:
        """Where one number comes from."""
        return self.sources.get(field, self.source)

    @classmethod
    def from_machine(cls, machine: Machine) -> DeviceFacts:
        """A measured machine as a catalog entry: rates at its largest thread count, one process."""
        facts = machine.facts
        caches = facts.get("caches_bytes") or {}
        rates = {
            dtype: rate
            for dtype in DTYPES
            if (rate := _at_most_threads(machine.peaks, f"{dtype}_flops_per_s_")) is not None
        }
        return cls(
            key=machine.name, type="cpu", flops_per_s=rates,
            memory_bytes_per_s=_at_most_threads(machine.peaks, "copy_memory_bytes_per_s_"),
            memory_bytes=facts.get("memory_bytes"), sm_count=facts.get("usable_cores"),
            l2_bytes=caches.get("L3") or caches.get("L2"), measured=True,
            source=f"measured by foretrace profile machine, {machine.created}",
            notes=facts.get("cpu_model"),
        )  # fmt: skip


def _at_most_threads(peaks: dict[str, float | None], prefix: str) -> float | None:
    """The rate `PREFIX<N>_thread[s]` of the largest N, measured with one process; None when there is none."""
    found = {}
    for name, rate in peaks.items():
        count, _, rest = name.removeprefix(prefix).partition("_")
        if name.startswith(prefix) and count.isdigit() and rest in ("thread", "threads") and rate:
            found[int(count)] = rate
    return found[max(found)] if found else None


class LinkFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of wire between devices, between a device and its host, or between hosts."""

    key: str
    joins: str
    """devices | device to host | sockets | hosts."""
    bytes_per_s: float | None = None
    """Signalling rate less line code, per direction, of one link or port: a bound, not what a message reaches."""
    per: str
    """What `bytes_per_s` is of: "link", "port", "x16 slot"."""
    latency_s: float | None = None
    """None: no vendor states it; calibrate with measured curves."""
    source: str
    notes: str | None = None


class SystemLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One use of a link in a system."""

    link: str
    """Key of a `LinkFacts`."""
    joins: str
    """devices | device to host | sockets | hosts."""
    count: int | None = None
    """Links of each device (`joins` devices, device to host), ports of each host (`joins` hosts)."""
    topology: str | None = None
    """switch | mesh | pairs | ring | torus | tree; None when it depends on the site."""
    bytes_per_s: float | None = None
    """Per direction, of each device, or of each host where it joins hosts."""


class SystemFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of machine as it is sold or rented: a host, what sits in it, and what wires it."""

    key: str
    name: str
    device: str
    """Key of a `DeviceFacts`."""
    devices_per_host: int
    hosts: int = 1
    """Hosts that one scale-up domain spans: 1 for a server, 18 for a rack of NVL72."""
    cpu: str | None = None
    cpu_sockets: int | None = None
    cpu_cores: int | None = None
    """Physical cores of a host."""
    host_memory_bytes: int | None = None
    power_w: float | None = None
    """Largest input power of a host."""
    links: tuple[SystemLink, ...] = ()
    source: str
    sources: dict[str, str] = {}
    notes: str | None = None

    def source_of(self, field: str) -> str:
        """Where one number comes from."""
        return self.sources.get(field, self.source)

    def link_of(self, joins: str) -> SystemLink | None:
        """The fastest link of one kind; None when the catalog knows none."""
        links = [link for link in self.links if link.joins == joins]
        return max(links, key=lambda link: link.bytes_per_s or 0.0, default=None)
