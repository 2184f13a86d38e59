"""Analytic prices on accelerators: arrays of rows in, base seconds and features out, one compiled file a family.

The functions of the parent folder price one `Op` on a measured CPU. These price many rows on devices that are known by
their datasheets: a base time as a pure function of shape and device facts, and beside it the dimensionless numbers that
say where the base may be wrong (waves, fill, arithmetic intensity over ridge). Learned prices correct the base with
exactly these numbers, so both come from one pass.

Imports compile or load the loops: import a family where it is called.
"""
