"""Closed loop: predict steps that nobody measured yet, then measure them, and say how far off the predictions were."""
