"""Our own version, for the ground floor, which imports no other room."""

from .. import __version__

__all__ = ["__version__"]
