"""Workloads: what is trained, as a module, a batch maker, a loss and an optimizer that any plan can be applied to.

`load` finds one by name or in a user's file; `parallel` and `step` turn it into one rank's training step, the same code
for the real run and for the traced one. Importing this package does not import torch; `parallel`, `step` and
`pipeline` do.
"""

from .loader import BUILT_IN, load
from .spec import Workload

__all__ = ["BUILT_IN", "Workload", "load"]
