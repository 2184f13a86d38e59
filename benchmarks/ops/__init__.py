"""Accuracy of op prices on rows and devices that no fit has seen; writes docs/accuracy-ops.md."""
