"""Collectives: measured curves where there are any, an algorithm's closed form calibrated to them elsewhere."""

from .curves import CollectiveCurves, CollectivePrice

__all__ = ["CollectiveCurves", "CollectivePrice"]
