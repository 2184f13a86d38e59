"""Catalog: devices, links and known systems as data files, and the lookup by any name that means one of them.

    from foretrace.datasets import catalog

    catalog.device("h100-sxm")            # DeviceFacts, by key, alias, reported name, "this", or path of a device file
    catalog.find("a100")                  # Match: .facts, .how, .confidence ("low": several parts fit), .note
    catalog.reported("NVIDIA H100 80GB HBM3")   # Match or None; only names that NVML or the OS gives
    catalog.devices()                     # {key: DeviceFacts}, shipped and the user's own
    catalog.system("dgx-h100")            # SystemFacts: device, devices_per_host, links, host; .link_of("devices")
    catalog.systems(), catalog.link("nvlink4"), catalog.links()

`DeviceFacts` (None = not known): key, type, vendor, arch, family, year, flops_per_s {dtype: dense peak},
memory_bytes_per_s, memory_bytes, memory_type, sm_count, cores_per_sm, l2_bytes, clock_hz, tdp_w, link,
link_bytes_per_s and pcie_bytes_per_s (both per direction), pcie_gen, measured, source, sources, notes; and
`source_of(field)`.

A new device is one file in `devices/`, a new system one in `systems/`. A user's own device is a file of the same
layout, or of `foretrace profile machine`, named by its path or put into `$FORETRACE_CACHE_DIR/devices`.
"""

from .facts import DTYPES, DeviceFacts, LinkFacts, SystemFacts, SystemLink
from .files import read_device, user_devices, user_folder
from .lookup import Match, device, devices, find, link, links, reported, system, systems

__all__ = [
    "DTYPES",
    "DeviceFacts",
    "LinkFacts",
    "Match",
    "SystemFacts",
    "SystemLink",
    "device",
    "devices",
    "find",
    "link",
    "links",
    "read_device",
    "reported",
    "system",
    "systems",
    "user_devices",
    "user_folder",
]
