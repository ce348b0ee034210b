"""Drivers: one package for each kind of store, behind one contract."""

from .contract import Driver

__all__ = [
    "Driver",
]
