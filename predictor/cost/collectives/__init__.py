"""Collectives: measured curves where there are any, an algorithm's closed form calibrated to them elsewhere.

`curves` prices with the curves of one device file. `prices.CollectivePrices` prices any table on any device of the
catalog, from all curves that foretrace ships: a closed form (`traffic`, one file an algorithm) times what similar
curves say of it (`process`).
"""

from .curves import CollectiveCurves, CollectivePrice

__all__ = ["CollectiveCurves", "CollectivePrice"]
